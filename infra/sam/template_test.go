package sam_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
)

const sampleTemplate = `
Parameters:
  Payee: {Type: String, AllowedPattern: "^0x[0-9a-f]+$"}
  Level: {Type: String, Default: info, AllowedValues: [info, debug]}
  Rate: {Type: Number, Default: 5, MinValue: 1, MaxValue: 10}
Conditions:
  Own: !Not [!Equals [!Ref Payee, "0xcd"]]
Globals:
  Function:
    Runtime: provided.al2023
    Handler: bootstrap
    Timeout: 29
    Environment: {Variables: {PAYEE: !Ref Payee, LEVEL: !Ref Level, STACK: !Ref AWS::StackName}}
Resources:
  Api: {Type: AWS::Serverless::HttpApi}
  Table: {Type: AWS::DynamoDB::Table}
  AFunction:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: functions/a
      Timeout: 5
      MemorySize: 512
      Environment: {Variables: {TABLE: !If [Own, !Ref Table, other], FIXED: 7}}
      Events:
        One: {Type: HttpApi, Properties: {ApiId: !Ref Api, Method: any, Path: /a}}
        Rest: {Type: HttpApi, Properties: {ApiId: !Ref Api}}
        Clock: {Type: ScheduleV2, Properties: {ScheduleExpression: rate(5 minutes)}}
  Other: {Type: AWS::Serverless::Function, Properties: {CodeUri: functions/other}}
`

// resolveFunctions resolves the functions of a template. It gives values to the parameter Payee
// and to the resource Table. The arguments in changes are names of further parameters and
// resources, each followed by its value. The value "-" removes a name.
func resolveFunctions(t *testing.T, text string, changes ...string) ([]sam.Function, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "template.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	template, err := sam.Read(path)
	if err != nil {
		return nil, err
	}
	params := map[string]string{"Payee": "0xab", "Table": "ledger"}
	for i := 0; i < len(changes); i += 2 {
		if params[changes[i]] = changes[i+1]; changes[i+1] == "-" {
			delete(params, changes[i])
		}
	}
	return template.Functions(params)
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	got, err := resolveFunctions(t, sampleTemplate)
	if err != nil {
		t.Fatal(err)
	}
	want := []sam.Function{{
		Name: "AFunction", Slug: "a", Handler: "bootstrap", Timeout: 5 * time.Second, Memory: 512,
		Env:    map[string]string{"PAYEE": "0xab", "LEVEL": "info", "STACK": "local", "TABLE": "ledger", "FIXED": "7"},
		Routes: []string{"$default", "ANY /a"},
	}, {
		Name: "Other", Slug: "other", Handler: "bootstrap", Timeout: 29 * time.Second,
		Env: map[string]string{"PAYEE": "0xab", "LEVEL": "info", "STACK": "local"},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestResolve checks that a condition selects the value of a variable, and that an error names
// the cause and the line in the template.
func TestResolve(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, new string // the test replaces old with new in the sample
		params   []string
		table    string
		fault    string
	}{
		"the condition holds":         {table: "ledger"},
		"it does not":                 {params: []string{"Payee", "0xcd"}, table: "other"},
		"twice not":                   {old: `!Equals [!Ref Payee, "0xcd"]`, new: `!Not [!Equals [info, "info"]]`, table: "ledger"},
		"the stack's name is given":   {params: []string{"AWS::StackName", "mine"}, table: "ledger"},
		"another condition":           {old: "!Not [!Equals", new: "!Exists [!Equals", fault: "!Exists cannot be resolved"},
		"an unknown condition":        {old: "[Own,", new: "[Missing,", fault: "no condition Missing"},
		"a parameter is missing":      {params: []string{"Payee", "-"}, fault: "parameter Payee has no default"},
		"a parameter is wrong":        {params: []string{"Payee", "me"}, fault: "Payee: does not match"},
		"a value is not allowed":      {params: []string{"Level", "loud"}, fault: "must be one of info, debug"},
		"a number is too low":         {params: []string{"Rate", "0"}, fault: "Rate: is not a number within its bounds"},
		"a number is too high":        {params: []string{"Rate", "11"}, fault: "Rate: is not a number within its bounds"},
		"not a number":                {params: []string{"Rate", "many"}, fault: "Rate: is not a number within its bounds"},
		"a parameter is unknown":      {params: []string{"Payer", "x"}, fault: `no parameter or resource "Payer"`},
		"a resource is not named":     {params: []string{"Table", "-"}, fault: "TABLE: line 23: !Ref Table cannot be resolved"},
		"another intrinsic":           {old: "!Ref Table", new: "!GetAtt Table.Arn", fault: "!GetAtt cannot be resolved"},
		"a long intrinsic":            {old: "!Ref Table", new: "{'Fn::Sub': x}", fault: "only scalars, !Ref and !If"},
		"a runtime without bootstrap": {old: "provided.al2023", new: "nodejs22.x", fault: "has no bootstrap"},
		"a pattern that is none":      {old: "^0x[0-9a-f]+$", new: "(", fault: "missing closing )"},
		"not YAML":                    {old: "Parameters:", new: "Parameters: [", fault: "parse"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(sampleTemplate, c.old) {
				t.Fatalf("the sample lacks %q", c.old)
			}
			all, err := resolveFunctions(t, strings.Replace(sampleTemplate, c.old, c.new, 1), c.params...)
			switch {
			case (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault):
				t.Errorf("error %v, want %q", err, c.fault)
			case err == nil && all[0].Env["TABLE"] != c.table:
				t.Errorf("TABLE is %q, want %q", all[0].Env["TABLE"], c.table)
			}
		})
	}
	if _, err := sam.Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a template that is not there was read")
	}
}

// TestBroken checks that Broken returns the description of a false assertion if the condition
// of its rule holds, or if the rule has no condition.
func TestBroken(t *testing.T) {
	t.Parallel()
	const rules = `
Parameters:
  Selling: {Type: String}
  Payee: {Type: String, Default: ""}
  Other: {Type: String, Default: ""}
Rules:
  Payee:
    RuleCondition: !Or [!Equals [!Ref Selling, "yes"], !Not [!Equals [!Ref Other, ""]]]
    Assertions: [{Assert: !Not [!Equals [!Ref Payee, ""]], AssertDescription: nobody is paid}]
  Always:
    Assertions: [{Assert: !And [!Not [!Equals [!Ref Selling, maybe]], !Not [!Equals [!Ref Payee, nobody]]], AssertDescription: say what you mean}]
`
	for values, want := range map[string]string{
		"yes  ": "nobody is paid", "no  ": "", "no  x": "nobody is paid", "yes p x": "", "maybe p ": "say what you mean", "maybe  x": "say what you mean, nobody is paid",
		"no nobody ": "say what you mean",
	} {
		path := filepath.Join(t.TempDir(), "template.yaml")
		if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		template, err := sam.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		v := strings.Split(values, " ")
		broken, err := template.Broken(map[string]string{"Selling": v[0], "Payee": v[1], "Other": v[2]})
		if got := strings.Join(broken, ", "); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", values, got, err, want)
		}
	}
}
