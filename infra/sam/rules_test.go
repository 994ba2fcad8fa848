package sam_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// TestTemplateRules checks that template.yaml can be deployed as several stacks: it sets no
// function's name, and contains no account id, no region and no address of an account. It also
// checks that the CDK app can include template.yaml: there is no reference to a resource that
// SAM generates, no YAML alias and no long form of an intrinsic function. Every parameter must
// be used.
func TestTemplateRules(t *testing.T) {
	t.Parallel()
	var root yaml.Node
	check(t, yaml.Unmarshal(testbed.Must(os.ReadFile("../../template.yaml")), &root))
	tpl, used := template(t), map[string]bool{}
	forbidden := map[string]*regexp.Regexp{
		"an account id": regexp.MustCompile(`\b\d{12}\b`), "a region": regexp.MustCompile(`\b(us|eu|ap|sa|ca|me|af|il|mx|cn)-[a-z]+-\d\b`),
		"an address": regexp.MustCompile(`0x[0-9a-fA-F]{40}\b`),
	}
	walk(&root, func(n *yaml.Node) {
		named := n.Kind == yaml.MappingNode && slices.ContainsFunc(n.Content, func(of *yaml.Node) bool { return of.Value == "FunctionName" })
		if named && n.Content[0].Value != "Name" || strings.HasPrefix(n.Value, "Fn::") { // FunctionName is allowed only in a metric's dimension, a mapping that begins with Name
			t.Errorf("line %d: FunctionName or %s", n.Line, n.Value)
		}
		switch {
		case n.Tag == "!Ref" || n.Tag == "!GetAtt":
			name := referencedName(n)
			used[name] = true
			_, parameter := tpl.Parameters[name]
			_, resource := tpl.Resources[name]
			if known := parameter || resource || strings.HasPrefix(name, "AWS::"); !known {
				t.Errorf("line %d: %s %s is not declared here; what SAM generates must not be referred to", n.Line, n.Tag, n.Value)
			}
		case n.Kind == yaml.AliasNode:
			t.Errorf("line %d: CloudFormation does not understand YAML aliases", n.Line)
		}
		for what, text := range forbidden {
			if text.MatchString(n.Value) {
				t.Errorf("line %d: %s: %s", n.Line, what, n.Value)
			}
		}
	})
	for name := range tpl.Parameters {
		if !used[name] {
			t.Errorf("parameter %s is used nowhere", name)
		}
	}
}

// referencedName returns the name that a !Ref or !GetAtt refers to.
func referencedName(n *yaml.Node) string {
	if n.Kind == yaml.SequenceNode && n.Content[1].Value == "Version.Version" { // !GetAtt [<function>, Version.Version] is a list, because the CDK changes the form with dots
		return n.Content[0].Value
	}
	name, _, _ := strings.Cut(n.Value, ".")
	return name
}

func walk(n *yaml.Node, visit func(*yaml.Node)) {
	visit(n)
	for _, child := range n.Content {
		walk(child, visit)
	}
}

// TestNetworkParameter checks that the description of the parameter Network names every
// network that package x402 knows, and that Base is the default.
func TestNetworkParameter(t *testing.T) {
	t.Parallel()
	network := template(t).Parameters["Network"]
	if network.Default == nil || *network.Default != x402.Base {
		t.Errorf("Network is not %s unless somebody says so", x402.Base)
	}
	for _, n := range x402.Networks() {
		if named := n.Name + " (" + n.USDC.Network + ")"; !strings.Contains(network.Description, named) {
			t.Errorf("Network does not say that %s is known", named)
		}
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	tpl := template(t)
	if p := tpl.Parameters["PayTo"]; p.Default != nil || !strings.Contains(p.Description, "ledger") {
		t.Error("PayTo must have no default, and say that one payee belongs to one ledger")
	}
	for name, p := range tpl.Parameters {
		if p.Description == "" {
			t.Errorf("%s has no description", name)
		}
		secret := (strings.Contains(name, "Secret") && !strings.HasSuffix(name, "Arn")) || strings.Contains(name, "Token") || name == "RpcUrl" || name == "ReceiptKey"
		if secret != p.NoEcho {
			t.Errorf("%s: NoEcho = %v", name, p.NoEcho)
		}
		if secret && (p.Default == nil || *p.Default != "") {
			t.Errorf("%s: a secret has no default but none", name)
		}
	}
	for name, arn := range map[string]string{"HasFacilitatorSecret": "FacilitatorSecretArn", "HasFallbackSecret": "FacilitatorFallbackSecretArn"} {
		condition := document{"Fn::Not": []any{document{"Fn::Equals": []any{document{"Ref": arn}, ""}}}}
		if d := cmp.Diff(condition, section(deployed.Template(), "Conditions")[name]); d != "" {
			t.Errorf("when there is a secret (-want +template):\n%s", d)
		}
	}
}

// TestPatterns checks the patterns of the parameters with values that must be accepted and
// values that must be refused. The functions must accept every accepted value. They must also
// refuse every refused value, with two exceptions: an empty value, and the values of three
// parameters whose patterns refuse more than the functions do.
func TestPatterns(t *testing.T) {
	t.Parallel()
	settings := settingsByParameter(t)
	a43, secret := strings.Repeat("A", 43), "arn:aws:secretsmanager:eu-west-3:111122223333:secret:"
	for name, c := range map[string]struct{ taken, refused []string }{
		"PayTo":   {[]string{boot.LocalPayTo}, []string{boot.LocalPayTo[:41], ""}},
		"BaseUrl": {[]string{"https://api.example.com"}, []string{"https://api.example.com/v1", "http://api.example.com"}},
		"Network": {[]string{"eip155:84532"}, []string{"base"}},
		"FormerTerms": {
			[]string{"none", "2026-11-20T08:05:00Z,payTo=" + boot.LocalPayTo + ",dns=5000"},
			[]string{"soon", "2026-11-20T08:05:00Z"},
		},
		"UsdcAsset":                    {[]string{"", boot.LocalPayTo}, []string{"usdc", boot.LocalPayTo[:41]}},
		"UsdcName":                     {[]string{"", "USD Coin"}, []string{strings.Repeat("a", 65)}},
		"UsdcVersion":                  {[]string{"", "2"}, []string{strings.Repeat("2", 17)}},
		"DnsResolvers":                 {[]string{"[2606:4700:4700::1111]:53,1.1.1.1"}, []string{"dns.example"}},
		"OwnershipProofs":              {[]string{"0xab,0xcd"}, []string{"ab"}},
		"Contact":                      {[]string{"https://example.com/contact", "mailto:a@example.com"}, []string{"http://example.com", "a@example.com", "https://a b"}},
		"WellKnownFiles":               {[]string{`{"x402-trust.txt":"0x12\n"}`}, []string{"x402-trust.txt", "[]"}},
		"ReceiptKey":                   {[]string{a43, " "}, []string{a43 + "a"}},
		"ReceiptPublicKeys":            {[]string{a43 + "," + strings.Repeat("B", 42) + "A"}, []string{a43[1:]}},
		"FacilitatorUrl":               {[]string{"https://x402.org/facilitator", "http://127.0.0.1:8403"}, []string{"x402.org", "http://x402.org"}},
		"FacilitatorSecretArn":         {[]string{secret + "team/x402-AbCdEf"}, []string{secret + "x402", "team/x402"}},
		"FacilitatorFallbackUrl":       {[]string{"https://x402.org/facilitator"}, []string{"x402.org"}},
		"FacilitatorFallbackSecretArn": {nil, []string{secret + "x402"}},
		"RpcUrl": {
			[]string{"", " ", "none", "secret", "https://one.example/k,https://two.example", "https://rpc.example/v1/key"},
			[]string{"rpc.example", "none of these", "http://rpc.example/v1/key"},
		},
		"LogLevel": {[]string{"debug"}, []string{"loud"}},
	} {
		for i, value := range slices.Concat(c.taken, c.refused) {
			params := testParams()
			params[name] = value
			if _, err := template(t).Functions(params); (err == nil) != (i < len(c.taken)) {
				t.Errorf("%s=%q: %v", name, value, err)
			}
			err := settings[name].Check(value)
			narrower := slices.Contains([]string{"UsdcName", "UsdcVersion", "OwnershipProofs"}, name)
			if i < len(c.taken) && err != nil || i >= len(c.taken) && err == nil && value != "" && !narrower {
				t.Errorf("the functions say of %s=%q: %v", name, value, err)
			}
		}
	}
}
