// Package deployed helps tests check the template and everything derived from it. It is not
// part of package testbed, because that would be an import cycle: package deployed imports the
// catalog, the catalog imports the lookups, and the tests of the lookups import testbed.
package deployed

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// Stack is the name of the stack that the CDK app synthesizes.
const Stack = "hostfacts-production"

// Context returns a context for the CDK app. With this context, the app adds everything that
// is optional, and needs no built functions.
func Context() map[string]any {
	return map[string]any{
		"PayTo":                        testbed.Account(1),
		"FacilitatorUrl":               "https://facilitator.example",
		"nodes":                        "parameter",
		"assets":                       "none",
		"domain":                       "api.hostfacts.example",
		"alarmEmail":                   "ops@hostfacts.example",
		"ticketEmail":                  "tickets@hostfacts.example",
		"alarmPhone":                   "+12025550123",
		"alarmUrl":                     "https://events.example/integration/0123/enqueue",
		"slackChannel":                 "T0123ABCD/C0123ABCD",
		"teamsChannel":                 "00000000-0000-4000-8000-000000000001/00000000-0000-4000-8000-000000000002/19%3a0123%40thread.tacv2",
		"certificateArn":               "arn:aws:acm:us-east-1:111122223333:certificate/00000000-0000-4000-8000-000000000000",
		"FacilitatorSecretArn":         "arn:aws:secretsmanager:us-east-1:111122223333:secret:facilitator-AbCdEf",
		"mayRead":                      "arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_Support_0123456789abcdef arn:aws:iam::111122223333:user/ann",
		"mayRefund":                    "arn:aws:iam::111122223333:root",
		"mayRestore":                   "arn:aws:iam::111122223333:root",
		"mayDeploy":                    "arn:aws:iam::111122223333:role/pipeline",
		"FacilitatorFallbackUrl":       "https://fallback.example",
		"FacilitatorFallbackSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:fallback-GhIjKl",
	}
}

// Synthesize runs the CDK app at the path app in the folder dir, as the CDK CLI does. It
// returns the template that the app writes. The app needs no credentials and no network.
// Synthesize ignores what the race detector finds in the app, because the CDK's library has a
// data race when the app ends.
func Synthesize(tb testing.TB, app, dir string, context map[string]any) ([]byte, error) {
	testbed.Find(tb, "Node for the CDK", "node")
	out := tb.TempDir()
	text, err := json.Marshal(context)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(app)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CDK_OUTDIR="+out, "CDK_CONTEXT_JSON="+string(text), "GORACE=exitcode=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("synthesize: %w\n%s", err, said)
	}
	return os.ReadFile(filepath.Join(out, Stack+".template.json"))
}

// Template returns template.yaml in the form of decoded JSON. Intrinsic functions have their
// long forms.
func Template() (d map[string]any) {
	var root yaml.Node
	text := testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), "template.yaml")))
	testbed.Check(yaml.Unmarshal(text, &root))
	expandShortForms(&root)
	var v any
	testbed.Check(root.Decode(&v))
	testbed.Check(json.Unmarshal(testbed.Must(json.Marshal(v)), &d)) // in JSON, all numbers become float64
	return d
}

// expandShortForms changes the intrinsic functions in a node of a template to their long forms.
func expandShortForms(n *yaml.Node) {
	for _, child := range n.Content {
		expandShortForms(child)
	}
	name, custom := strings.CutPrefix(n.Tag, "!")
	if !custom || strings.HasPrefix(name, "!") {
		return
	}
	text := func(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }
	value := &yaml.Node{Kind: n.Kind, Content: n.Content}
	if n.Kind == yaml.ScalarNode {
		value = text(n.Value)
	}
	if resource, of, dotted := strings.Cut(n.Value, "."); dotted && name == "GetAtt" {
		value = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{text(resource), text(of)}}
	}
	if name != "Ref" && name != "Condition" {
		name = "Fn::" + name
	}
	*n = yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text(name), value}}
}

// Routes returns the routes that the template must have, by the slug of the function. A priced
// path has the method ANY, because the function itself answers HEAD, OPTIONS and wrong
// methods. The scheduled function has no route.
func Routes() map[string][]string {
	all := map[string][]string{
		sam.Discovery: {"$default"},
		sam.Health:    {"ANY " + catalog.PathHealth, "ANY " + catalog.PathReady},
		sam.MCP:       {"ANY " + catalog.PathMCP},
		sam.Reconcile: nil,
	}
	for _, o := range catalog.All() {
		all[o.Slug] = []string{"ANY " + o.Path}
	}
	return all
}

// Granted returns the permissions that the template gives a function, sorted. A permission
// names an action and a resource. The resource is the items of a table whose keys match a
// pattern, an index of a table, or a secret. An example is "dynamodb:GetItem on Ledger.Arn of
// rate|*". A statement about anything else fails the test. A policy template or a managed
// policy of AWS also fails the test, because these grant more than a function needs.
func Granted(tb testing.TB, slug string) (all []string) {
	resources := Template()["Resources"].(object)
	properties := func(id string) object { return resources[id].(object)["Properties"].(object) }
	if resources[sam.LogicalID(slug)] == nil {
		tb.Errorf("template.yaml has no %s", sam.LogicalID(slug))
		return nil
	}
	function := properties(sam.LogicalID(slug))
	if function["Role"] != nil {
		tb.Errorf("%s: its role has other permissions", slug)
	}
	for _, p := range function["Policies"].([]any) {
		policy := p.(object)
		if ref, shared := policy["Ref"].(string); shared {
			policy = properties(ref)["PolicyDocument"].(object)
			delete(policy, "Version")
		}
		statements, _ := policy["Statement"].([]any)
		if len(policy) != 1 || statements == nil {
			tb.Errorf("%s: %v is not a list of statements", slug, p)
		}
		for _, s := range statements {
			permissions := permissionsOf(s.(object))
			if permissions == nil {
				tb.Errorf("%s: %v grants what no function needs, or under no condition", slug, s)
			}
			all = append(all, permissions...)
		}
	}
	slices.Sort(all)
	return all
}

type object = map[string]any

// permissionsOf returns the permissions of a statement. The statement must be about one of these:
//
//   - the stack's ledger table, the table that LedgerTableName names, or the index of either;
//   - a secret that the facilitator needs, on the condition that a parameter names it.
//
// It returns nil for any other statement.
func permissionsOf(statement object) (all []string) {
	const other = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/${LedgerTableName}"
	table := func(own any, part string) any {
		return object{"Fn::If": []any{"CreateLedger", own, object{"Fn::Sub": other + part}}}
	}
	if choice, named := statement["Fn::If"].([]any); named {
		secret := map[any]string{"HasFacilitatorSecret": "FacilitatorSecretArn", "HasFallbackSecret": "FacilitatorFallbackSecretArn"}[choice[0]]
		want := object{"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": object{"Ref": secret}}
		if secret != "" && cmp.Equal(choice[1:], []any{want, object{"Ref": "AWS::NoValue"}}) {
			all = append(all, "secretsmanager:GetSecretValue on "+secret)
		}
		return all
	}
	index := "/index/" + dynamo.IndexName
	query := object{"Effect": "Allow", "Action": "dynamodb:Query", "Resource": table(object{"Fn::Sub": "${Ledger.Arn}" + index}, index)}
	if cmp.Equal(statement, query) {
		return []string{"dynamodb:Query on ${Ledger.Arn}" + index}
	}
	// A condition with ForAllValues is also true for a request without keys. That is safe
	// here, because every request for one of these actions has keys.
	condition, _ := statement["Condition"].(object)
	keys, _ := condition["ForAllValues:StringLike"].(object)
	items := object{"Effect": "Allow", "Action": statement["Action"], "Resource": table(object{"Fn::GetAtt": []any{"Ledger", "Arn"}}, ""),
		"Condition": object{"ForAllValues:StringLike": object{"dynamodb:LeadingKeys": keys["dynamodb:LeadingKeys"]}}}
	actions, _ := statement["Action"].([]any)
	forms, _ := keys["dynamodb:LeadingKeys"].([]any)
	if !cmp.Equal(statement, items) {
		return nil
	}
	for _, action := range actions {
		for _, form := range forms {
			all = append(all, fmt.Sprintf("%v on Ledger.Arn of %v", action, form))
		}
	}
	return all
}
