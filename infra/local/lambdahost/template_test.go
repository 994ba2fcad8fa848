package lambdahost_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
)

const sample = `
Parameters:
  Payee: {Type: String, AllowedPattern: "^0x[0-9a-f]+$"}
  Level: {Type: String, Default: info, AllowedValues: [info, debug]}
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
      ReservedConcurrentExecutions: 2
      Environment: {Variables: {TABLE: !Ref Table, FIXED: 7}}
      Events:
        One: {Type: HttpApi, Properties: {ApiId: !Ref Api, Method: any, Path: /a}}
        Rest: {Type: HttpApi, Properties: {ApiId: !Ref Api}}
        Clock: {Type: ScheduleV2, Properties: {ScheduleExpression: rate(5 minutes)}}
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "template.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFromTemplate(t *testing.T) {
	t.Parallel()
	got, err := lambdahost.FromTemplate(write(t, sample), "build",
		map[string]string{"Payee": "0xab", "Table": "ledger"}, map[string]string{"EXTRA": "1"})
	if err != nil {
		t.Fatal(err)
	}
	want := lambdahost.Config{
		Functions: []lambdahost.Function{{
			Name: "AFunction", Dir: filepath.Join("build", "a"), Handler: "bootstrap", Timeout: 5 * time.Second, Memory: 512, Concurrency: 2,
			Env: map[string]string{"PAYEE": "0xab", "LEVEL": "info", "STACK": "local", "TABLE": "ledger", "FIXED": "7", "EXTRA": "1"},
		}},
		Routes: []lambdahost.Route{{Key: "$default", Function: "AFunction"}, {Key: "ANY /a", Function: "AFunction"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A value may depend on a condition on parameters.
func TestFromTemplateConditions(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]string{
		`!Equals [!Ref Payee, "0xab"]`:         "ledger",
		`!Not [!Equals [!Ref Payee, "0xab"]]`:  "other",
		`!Not [!Not [!Equals [info, "info"]]]`: "ledger",
		`!Or [a, b]`:                           "", // not known here
	} {
		text := strings.Replace(sample, "!Ref Table", "!If [Own, !Ref Table, other]", 1)
		text = strings.Replace(text, "Parameters:", "Conditions:\n  Own: "+condition+"\nParameters:", 1)
		got, err := lambdahost.FromTemplate(write(t, text), "build", map[string]string{"Payee": "0xab", "Table": "ledger"}, nil)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "!Or cannot be resolved") {
				t.Errorf("%s: %v", condition, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", condition, err)
		}
		if table := got.Functions[0].Env["TABLE"]; table != want {
			t.Errorf("%s: TABLE is %q, want %q", condition, table, want)
		}
	}
}

func TestFromTemplateFaults(t *testing.T) {
	t.Parallel()
	good := map[string]string{"Payee": "0xab", "Table": "ledger"}
	for _, c := range []struct {
		name, old, new string
		params         map[string]string
		want           string
	}{
		{"a parameter is missing", "", "", map[string]string{"Table": "ledger"}, "parameter Payee has no default"},
		{"a parameter is wrong", "", "", map[string]string{"Payee": "me", "Table": "ledger"}, "Payee: does not match"},
		{"a value is not allowed", "", "", map[string]string{"Payee": "0xab", "Table": "l", "Level": "loud"}, "must be one of info, debug"},
		{"a parameter is unknown", "", "", map[string]string{"Payee": "0xab", "Table": "l", "Payer": "x"}, `no parameter or resource "Payer"`},
		{"a resource is not named", "", "", map[string]string{"Payee": "0xab"}, "TABLE: line 21: !Ref Table cannot be resolved"},
		{"another intrinsic", "!Ref Table", "!GetAtt Table.Arn", good, "!GetAtt cannot be resolved"},
		{"a long intrinsic", "!Ref Table", "{'Fn::Sub': x}", good, "only scalars, !Ref and !If"},
		{"an unknown condition", "!Ref Table", "!If [Nobody, !Ref Table, x]", good, "no condition Nobody"},
		{"the implicit API", "{ApiId: !Ref Api, Method: any, Path: /a}", "{Method: any, Path: /a}", good, "ApiId must be a !Ref"},
		{"another resource as API", "ApiId: !Ref Api, Method", "ApiId: !Ref Table, Method", good, "ApiId must be a !Ref"},
		{"a path variable", "Path: /a", "Path: '/{proxy+}'", good, "path variables are not supported"},
		{"a runtime without bootstrap", "provided.al2023", "nodejs22.x", good, "has no bootstrap"},
		{"a pattern that is none", "^0x[0-9a-f]+$", "(", good, "AllowedPattern"},
		{"not YAML", "Parameters:", "Parameters: [", good, "parse"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(sample, c.old) {
				t.Fatalf("the sample lacks %q", c.old)
			}
			_, err := lambdahost.FromTemplate(write(t, strings.Replace(sample, c.old, c.new, 1)), "build", c.params, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want %q", err, c.want)
			}
		})
	}
	if _, err := lambdahost.FromTemplate(filepath.Join(t.TempDir(), "none"), "build", nil, nil); err == nil {
		t.Error("a template that is not there was read")
	}
}
