// Package deployed has what suites hold the template and what is made of it to. It is not
// in package testbed, because the catalog knows the lookups, and their tests use that.
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

	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// Stack is the name of the stack that the CDK app synthesizes.
const Stack = "hostfacts-production"

// Context is a context of the CDK app, with which it adds everything that it can add and
// needs no built functions.
func Context() map[string]any {
	return map[string]any{
		"PayTo": testbed.Account(1), "FacilitatorUrl": "https://facilitator.example", "nodes": "parameter", "assets": "none",
		"domain": "api.hostfacts.example", "alarmEmail": "ops@hostfacts.example", "ticketEmail": "tickets@hostfacts.example",
		"certificateArn":       "arn:aws:acm:us-east-1:111122223333:certificate/00000000-0000-4000-8000-000000000000",
		"FacilitatorSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:facilitator-AbCdEf",

		"FacilitatorFallbackUrl":       "https://fallback.example",
		"FacilitatorFallbackSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:fallback-GhIjKl",
	}
}

// Synthesize runs the CDK app, a program, in a folder with a context, as the CDK CLI does,
// without credentials and without a network. It returns the template that it wrote.
func Synthesize(tb testing.TB, app, dir string, context map[string]any) ([]byte, error) {
	tb.Helper()
	testbed.Find(tb, "Node for the CDK", "node")
	out := tb.TempDir()
	text, err := json.Marshal(context)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(app)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CDK_OUTDIR="+out, "CDK_CONTEXT_JSON="+string(text))
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("synthesize: %w\n%s", err, said)
	}
	return os.ReadFile(filepath.Join(out, Stack+".template.json"))
}

// Template is template.yaml as JSON has it, with the long forms of intrinsic functions.
func Template(tb testing.TB) map[string]any {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(testbed.Root(tb), "template.yaml"))
	var root yaml.Node
	if err == nil {
		err = yaml.Unmarshal(text, &root)
	}
	if err != nil {
		tb.Fatal(err)
	}
	d, _ := long(tb, root.Content[0]).(map[string]any)
	return d
}

// long is a node of a template in the long form.
func long(tb testing.TB, n *yaml.Node) any {
	var v any
	switch n.Kind { //nolint:exhaustive // a template has no other kinds
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = long(tb, n.Content[i+1])
		}
		v = m
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, long(tb, item))
		}
		v = list
	default:
		v = n.Value
		if !custom(n.Tag) {
			if err := n.Decode(&v); err != nil {
				tb.Fatal(err)
			}
		}
		if i, ok := v.(int); ok {
			v = float64(i) // as JSON has it
		}
	}
	if !custom(n.Tag) {
		return v
	}
	name := strings.TrimPrefix(n.Tag, "!")
	switch attribute, ok := v.(string); {
	case name == "Ref" || name == "Condition":
	case name == "GetAtt" && ok:
		resource, of, _ := strings.Cut(attribute, ".")
		v, name = []any{resource, of}, "Fn::GetAtt"
	default:
		name = "Fn::" + name
	}
	return map[string]any{name: v}
}

func custom(tag string) bool {
	return strings.HasPrefix(tag, "!") && !strings.HasPrefix(tag, "!!")
}

// Routes is what the template must route, by function: ANY on each priced path, because
// the code answers HEAD, OPTIONS and wrong methods itself. The function that a clock calls
// has none.
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

// On are actions on the table's items with keys of a form, as dynamodb:LeadingKeys has
// them.
func On(form string, actions ...string) (all []string) {
	for _, action := range actions {
		all = append(all, "dynamodb:"+action+" on Ledger.Arn of "+form)
	}
	return all
}

// Slots are actions on the item with an operation's leases.
func Slots(o catalog.Operation, actions ...string) (all []string) {
	if o.Kind == catalog.SmokeTest {
		return nil
	}
	return On("slots|"+o.Slug, actions...)
}

// Permissions lists by hand what each function may do: that what it is granted is what it uses
// (TestPermissionsUsedAreGranted of infra) does not say that it should.
func Permissions(slug string) (all []string) {
	payments, purchases := On("eip155:*", "GetItem", "PutItem"), On("purchase|*", "GetItem", "PutItem")
	rates := On("rate|*", "UpdateItem") // units of a client
	ready := On("ready", "GetItem")     // a key that nothing has, for /ready
	secrets := []string{"secretsmanager:GetSecretValue on FacilitatorSecretArn", "secretsmanager:GetSecretValue on FacilitatorFallbackSecretArn"}
	switch slug {
	case sam.Discovery:
		all = rates
	case sam.Health:
		all = slices.Concat(ready, rates, secrets)
	case sam.Reconcile:
		all = slices.Concat(payments, On("purchase|*", "GetItem"), On("cursor|*", "GetItem", "PutItem"), ready, secrets) // how far the chain was read
		all = append(all, "dynamodb:Query on ${Ledger.Arn}/index/"+dynamo.IndexName)
	default: // priced
		all = slices.Concat(payments, purchases, rates, secrets)
		for _, o := range catalog.All() {
			if slug == o.Slug || slug == sam.MCP {
				all = append(all, Slots(o, "UpdateItem")...)
			}
		}
		if slug == "whois" || slug == "host-intel" || slug == sam.MCP {
			all = append(all, On("rdap|bootstrap", "GetItem", "PutItem")...) // the registries' list
		}
	}
	slices.Sort(all)
	return all
}
