package main

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// readEvent decodes an event strictly: a field that format 2.0 does not have is
// a mistake in the file.
func readEvent(t *testing.T, path string) events.APIGatewayV2HTTPRequest {
	t.Helper()
	f := must(os.Open(path))(t)
	defer f.Close()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	var e events.APIGatewayV2HTTPRequest
	if err := d.Decode(&e); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	method := catalog.Method
	if e.RawPath == catalog.PathMCP {
		method = http.MethodPost
	}
	if e.Version != "2.0" || e.RequestContext.RequestID == "" || e.RequestContext.HTTP.Method != method {
		t.Errorf("%s: version %q, method %q, request id %q", path, e.Version, e.RequestContext.HTTP.Method, e.RequestContext.RequestID)
	}
	return e
}

// TestTemplateRules: what would break a second stack in the same account, or
// the include of the template in the CDK app.
func TestTemplateRules(t *testing.T) {
	t.Parallel()
	var root yaml.Node
	read(t, &root)
	tpl := template(t)
	declared := map[string]bool{}
	for name := range tpl.Parameters {
		declared[name] = true
	}
	for name := range tpl.Resources {
		declared[name] = true
	}
	used := map[string]bool{}
	forbidden := []struct {
		what string
		re   *regexp.Regexp
	}{
		{"an account id", regexp.MustCompile(`\b\d{12}\b`)},
		{"a region", regexp.MustCompile(`\b(us|eu|ap|sa|ca|me|af|il|mx|cn)-[a-z]+-\d\b`)},
		{"an address other than Base USDC", regexp.MustCompile(`0x[0-9a-fA-F]{40}\b`)},
	}
	const usdc = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
	walk(&root, func(n *yaml.Node) {
		switch {
		case n.Value == "FunctionName" || strings.HasPrefix(n.Value, "Fn::"):
			t.Errorf("line %d: %s", n.Line, n.Value)
		case n.Tag == "!Ref" || n.Tag == "!GetAtt":
			name, _, _ := strings.Cut(n.Value, ".")
			used[name] = true
			if !declared[name] && !strings.HasPrefix(name, "AWS::") {
				t.Errorf("line %d: %s %s is not declared here; what SAM generates must not be referred to", n.Line, n.Tag, n.Value)
			}
		case n.Kind == yaml.AliasNode:
			t.Errorf("line %d: CloudFormation does not understand YAML aliases", n.Line)
		}
		for _, f := range forbidden {
			if v := strings.ReplaceAll(n.Value, usdc, ""); f.re.MatchString(v) {
				t.Errorf("line %d: %s: %s", n.Line, f.what, n.Value)
			}
		}
	})
	for name := range tpl.Parameters {
		if !used[name] {
			t.Errorf("parameter %s is used nowhere", name)
		}
	}
}

func walk(n *yaml.Node, visit func(*yaml.Node)) {
	visit(n)
	for _, child := range n.Content {
		walk(child, visit)
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
	// Every default satisfies its own pattern, and the patterns refuse what
	// boot refuses.
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"PayTo", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", true},
		{"PayTo", "0x70997970C51812dc3A010C7d01b50e0d17dc79C", false},
		{"PayTo", "", false},
		{"BaseUrl", "https://api.example.com", true},
		{"BaseUrl", "https://api.example.com/v1", false},
		{"BaseUrl", "http://api.example.com", false},
		{"Network", "eip155:84532", true},
		{"Network", "base", false},
		{"DnsResolvers", "[2606:4700:4700::1111]:53,1.1.1.1", true},
		{"DnsResolvers", "dns.example", false},
		{"OwnershipProofs", "0xab,0xcd", true},
		{"OwnershipProofs", "ab", false},
		{"ReceiptKey", strings.Repeat("a", 43), true},
		{"ReceiptKey", " ", true},
		{"ReceiptKey", strings.Repeat("a", 44), false},
		{"ReceiptPublicKeys", strings.Repeat("a", 43) + "," + strings.Repeat("b", 43), true},
		{"ReceiptPublicKeys", strings.Repeat("a", 42), false},
		{"FacilitatorUrl", "https://x402.org/facilitator", true},
		{"FacilitatorUrl", "x402.org", false},
		{"FacilitatorSecretArn", "arn:aws:secretsmanager:eu-west-3:111122223333:secret:team/x402-AbCdEf", true},
		{"FacilitatorSecretArn", "arn:aws:secretsmanager:eu-west-3:111122223333:secret:x402", false},
		{"FacilitatorSecretArn", "team/x402", false},
		{"FacilitatorFallbackUrl", "https://x402.org/facilitator", true},
		{"FacilitatorFallbackUrl", "x402.org", false},
		{"FacilitatorFallbackSecretArn", "arn:aws:secretsmanager:eu-west-3:111122223333:secret:x402", false},
		{"RpcUrl", "", true},
		{"RpcUrl", " ", true},
		{"RpcUrl", "none", true},
		{"RpcUrl", "secret", true},
		{"RpcUrl", "https://one.example/k,https://two.example", true},
		{"RpcUrl", "https://rpc.example/v1/key", true},
		{"RpcUrl", "rpc.example", false},
		{"RpcUrl", "none of these", false},
		{"LogLevel", "debug", true},
		{"LogLevel", "loud", false},
	} {
		params := testParams()
		params[c.name] = c.value
		_, err := lambdahost.FromTemplate(templatePath, "build", params, nil)
		if (err == nil) != c.ok {
			t.Errorf("%s=%q: error = %v, want ok = %v", c.name, c.value, err, c.ok)
		}
	}
}
