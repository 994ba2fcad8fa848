// Package pkg_test checks the architecture: which packages may import which.
package pkg_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hostfacts/hostfacts/"

// layer says which of our packages a package may import, and why it may import no others.
type layer struct {
	pkg     string // a path below the module, or a pattern for path.Match
	allowed []string
	reason  string
}

// layers returns the table of layers. The first row that matches a package counts. Imports
// point in one direction: lookups know nothing of money, and the payment layer knows nothing
// of lookups or of the catalog. Package service joins the two, and package boot is the only
// one that knows about Lambda.
func layers() []layer {
	return []layer{
		{"pkg/untrusted", nil, "what others wrote is read and shown the same way everywhere: everything may use it"},
		{"pkg/x402/fault", []string{"pkg/untrusted"}, "the error type is the bottom: everything may use it"},
		{"pkg/lookup", []string{"pkg/x402/fault"}, "the codes of lookups are a table"},
		{"pkg/mcp", []string{"pkg/untrusted", "pkg/x402"}, "the protocol knows how payments travel in it, and not what is sold"},
		{"pkg/x402/mcptest", []string{"pkg/x402", "pkg/x402/x402test"}, "a paying client of tools sees the wire only"},
		{"pkg/catalog", []string{"pkg/lookup", "pkg/lookup/*", "pkg/x402/fault"}, "the catalog is facts: it reads the fields of results, and asks nobody"},
		{"pkg/lookup/guard", []string{"pkg/lookup", "pkg/x402/fault"}, "the guard decides by name and address alone"},
		{"pkg/lookup/origin", []string{"pkg/lookup", "pkg/x402/fault", "pkg/lookup/guard", "pkg/untrusted"}, "an origin is asked; what its answer means is a lookup's business"},
		{"pkg/lookup/bundle", []string{"pkg/lookup", "pkg/lookup/*", "pkg/x402/fault", "pkg/lookup/guard", "pkg/lookup/origin"}, "a bundle knows its children"},
		{"pkg/lookup/*", []string{"pkg/lookup", "pkg/lookup/dns", "pkg/x402/fault", "pkg/lookup/guard", "pkg/lookup/origin"}, "lookups know nothing of money; what they ask is a resolver, an address or an origin"},
		{"pkg/lookup/whois/registry", []string{"pkg/lookup", "pkg/x402/fault", "pkg/lookup/guard", "pkg/lookup/whois", "pkg/untrusted"}, "the RDAP library is heavy: only the functions that ask a registry link it"},
		{"pkg/x402", []string{"pkg/x402/fault", "pkg/untrusted", "pkg/x402/ledger", "pkg/x402/receipt"}, "the payment layer knows nothing of lookups and is given its offer"},
		{"pkg/x402/ledger", nil, "the ledger's rules depend on nothing that could change them"},
		{"pkg/x402/receipt", nil, "a receipt is words and a signature; when to give one is the Gate's"},
		{"pkg/x402/facilitator", []string{"pkg/x402/fault", "pkg/untrusted", "pkg/x402"}, "the client classifies outcomes; what they mean is the Gate's"},
		{"pkg/x402/fallback", []string{"pkg/x402/fault", "pkg/x402"}, "a Settler decides whom a payment is sent to; what a reply means is the Gate's"},
		{"pkg/x402/reconcile", []string{"pkg/x402", "pkg/x402/fault", "pkg/x402/ledger"}, "it decides what requests left in doubt, and meets the Gate in the ledger only: the Gate knows nothing of it"},
		{"pkg/x402/chain", []string{"pkg/x402/fault", "pkg/untrusted", "pkg/x402", "pkg/x402/reconcile"}, "the client says what the chain says; what follows is the Gate's"},
		{"pkg/x402/ledger/file", []string{"pkg/x402/ledger"}, "a store compares and swaps, and nothing else"},
		{"pkg/x402/ledger/ledgertest", []string{"pkg/x402/ledger"}, "one suite for every store"},
		{"pkg/x402/x402test", []string{"pkg/x402", "pkg/x402/fault", "pkg/x402/reconcile", "pkg/x402/x402test/judge"}, "the other sides of a payment see the wire, and say what moved as a chain does"},
		{"pkg/x402/x402test/judge", []string{"pkg/x402"}, "any seller is judged by the wire alone: wallets and play money are given to it"},
		{"pkg/x402/storefront", []string{"pkg/x402/limit", "pkg/mcp", "pkg/untrusted", "pkg/x402", "pkg/x402/fault", "pkg/x402/ledger", "pkg/x402/reconcile"}, "how everything that is sold is answered: what is sold is given to it"},
		{"pkg/x402/x402http", []string{"pkg/x402/storefront", "pkg/x402/limit", "pkg/mcp", "pkg/untrusted", "pkg/x402", "pkg/x402/chain", "pkg/x402/facilitator", "pkg/x402/fault", "pkg/x402/ledger", "pkg/x402/reconcile"}, "the seller knows how requests are answered, and not with what"},
		{"pkg/discovery", []string{"pkg/catalog", "pkg/lookup", "pkg/x402/fault", "pkg/mcp", "pkg/untrusted", "pkg/x402", "pkg/x402/ledger", "pkg/x402/receipt"}, "documents are rendered from facts"},
		{"pkg/x402/limit", []string{"pkg/x402/fault"}, "limits count clients and slots; they know neither payments nor lookups"},
		{"pkg/x402/ledger/dynamo", []string{"pkg/x402/limit", "pkg/x402/ledger"}, "a store compares and swaps, or adds, and nothing else; a file in the table is anybody's"},
		{"pkg/x402/limit/limittest", []string{"pkg/x402/fault", "pkg/x402/limit"}, "one suite for every store"},
		{"pkg/service", []string{"pkg/lookup", "pkg/catalog", "pkg/discovery", "pkg/x402/fault", "pkg/lookup/guard", "pkg/x402/limit", "pkg/lookup/*", "pkg/mcp", "pkg/lookup/origin", "pkg/untrusted", "pkg/x402", "pkg/x402/ledger", "pkg/x402/receipt", "pkg/x402/reconcile", "pkg/x402/x402http", "pkg/x402/storefront"}, "service joins lookups and payments, and runs anywhere"},
		{"pkg/boot", []string{"pkg/lookup", "pkg/*", "pkg/lookup/*", "pkg/x402/chain", "pkg/x402/facilitator", "pkg/x402/fallback", "pkg/x402/fault", "pkg/x402/ledger", "pkg/x402/ledger/dynamo", "pkg/x402/limit", "pkg/x402/receipt", "pkg/x402/reconcile", "pkg/x402/storefront"}, "boot wires what is deployed, and no test package"},
		{"pkg/operations", []string{"pkg/lookup", "pkg/boot", "pkg/lookup/*", "pkg/lookup/whois/registry", "pkg/service"}, "every operation with its client, for programs that run all of them"},
		{"functions/mcp", []string{"pkg/boot", "pkg/operations", "pkg/service"}, "the tools are every operation"},
		{"functions/*", []string{"pkg/boot", "pkg/lookup/*", "pkg/lookup/whois/registry", "pkg/service"}, "a main joins one operation and its client"},
		{"infra/sam", nil, "a template is read whatever it deploys"},
		{"infra/functions", nil, "built functions are tested from outside, and the package is tests and nothing else"},
		{"infra/samcli", nil, "the SAM CLI is a program that others publish, and the package is tests and nothing else"},
		{"infra/runbook", nil, "operators run programs, and the package is tests and nothing else"},
		{"infra/workflows", nil, "the workflows import nothing, and the package is tests and nothing else"},
		{"infra/operators", nil, "who may do what is kept apart from how a role is made"},
		{"infra/cdk", []string{"infra/deploy/stackfile", "infra/operators", "infra/sam", "pkg/catalog", "pkg/service", "pkg/x402", "pkg/x402/ledger/dynamo"}, "infrastructure reads facts, also those of networks and of the ledger's table"},
		{"infra/deploy", []string{"infra/deploy/stackfile", "infra/sam", "pkg/boot", "pkg/catalog", "pkg/untrusted", "pkg/x402", "pkg/x402/fault"}, "a deployment is seen from outside, and compared with facts; its table is marked as boot has it"},
		{"infra/deploy/stackfile", []string{"infra/sam", "pkg/catalog"}, "a file is held to the template, by every way to deploy it"},
		{"infra/local", []string{"infra/local/called", "infra/local/keyfile", "pkg/boot", "pkg/catalog", "pkg/x402/ledger/dynamo", "pkg/x402/limit", "pkg/operations", "pkg/untrusted", "pkg/x402", "pkg/x402/ledger", "pkg/x402/ledger/file", "pkg/x402/receipt", "pkg/x402/x402test"}, "the local runner is the service with other stores and play money"},
		{"infra/judge", []string{"infra/judge/launch", "infra/local/called", "pkg/x402", "pkg/x402/x402test", "pkg/x402/x402test/judge"}, "a seller is judged from outside, whatever it is made of"},
		{"infra/judge/launch", []string{"infra/testbed/programs", "pkg/x402/x402test/judge"}, "a program is started and killed, whatever it sells"},
		{"infra/local/pay", []string{"infra/local/bill", "infra/local/called", "infra/local/keyfile", "pkg/untrusted", "pkg/x402", "pkg/x402/x402test"}, "a client sees the wire only: the names of headers, and what a bill says"},
		{"infra/local/bill", []string{"infra/local/keyfile", "pkg/catalog", "pkg/lookup/guard", "pkg/untrusted", "pkg/x402", "pkg/x402/receipt", "pkg/x402/x402test"}, "what every client that pays does with a bill: it sees the wire only, and receipts with how a question is written there"},
		{"infra/paymcp/purse", []string{"infra/local/keyfile", "pkg/x402"}, "what is on the disk does not depend on who decides it"},
		{"infra/paymcp/buyer", []string{"infra/local/bill", "infra/paymcp/purse", "pkg/mcp", "pkg/untrusted", "pkg/x402", "pkg/x402/x402test"}, "what may be signed is decided without a network, and without the SDK"},
		{"infra/paymcp", []string{"infra/local/bill", "infra/local/called", "infra/local/keyfile", "infra/paymcp/buyer", "infra/paymcp/purse", "pkg/catalog", "pkg/mcp", "pkg/untrusted", "pkg/x402", "pkg/x402/chain", "pkg/x402/x402test"}, "a host is served, and a paid server is asked, as any client may"},
		{"infra/local/operate", []string{"infra/local/called", "pkg/boot", "pkg/catalog", "pkg/x402/ledger/dynamo", "pkg/untrusted", "pkg/service", "pkg/x402", "pkg/x402/chain", "pkg/x402/ledger", "pkg/x402/ledger/dynamo", "pkg/x402/limit", "pkg/x402/ledger/file", "pkg/x402/reconcile"}, "the operator's commands, on any store; a table is copied whatever is in it, and a deployment is seen as a monitor sees it"},
		{"infra/local/keys", []string{"infra/local/called", "infra/local/keyfile", "pkg/x402", "pkg/x402/receipt", "pkg/x402/x402test"}, "an offline tool makes a key, or signs one line and checks it as the service does"},
		{"infra/local/secret", []string{"infra/local/called", "infra/local/keyfile", "pkg/boot", "pkg/untrusted", "pkg/x402/ledger/dynamo"}, "a secret is checked as the functions read it, and AWS is asked as they ask it"},
		{"infra/local/called", nil, "how a command is typed is the same for all"},
		{"infra/local/keyfile", nil, "a file is read whatever the key is for"},
		{"infra/local/runtimeapi", []string{"infra/sam"}, "a built function is run whatever it does"},
		{"infra/local/invoke", []string{"infra/local/runtimeapi", "infra/sam", "pkg/boot", "pkg/x402", "pkg/x402/x402test"}, "it runs one function, beside play money on the terms of its configuration"},
		{"infra/local/e2e", nil, "the end-to-end suite is tests and nothing else"},
		{"infra/bench", []string{"pkg/catalog", "pkg/mcp", "pkg/x402/mcptest", "pkg/x402", "pkg/x402/ledger", "pkg/x402/ledger/file", "pkg/x402/x402http", "pkg/x402/x402test", "infra/testbed/programs"}, "the service is measured from outside, on ledgers that are filled beforehand"},
		{"infra/testbed/deployed", []string{"infra/sam", "infra/testbed", "infra/testbed/programs", "pkg/catalog", "pkg/x402/ledger/dynamo"}, "what a template is held to is read from facts"},
		{"infra/testbed", []string{"infra/sam", "infra/testbed/programs", "pkg/x402/fault", "pkg/lookup/guard", "pkg/lookup", "pkg/x402", "pkg/x402/ledger", "pkg/x402/x402test"}, "what the suites share runs the service and what is around it; it judges nothing"},
		{"infra/testbed/payments", []string{"infra/testbed", "pkg/boot", "pkg/x402", "pkg/x402/ledger", "pkg/x402/ledger/ledgertest", "pkg/x402/x402test"}, "payments are put into a ledger for tests, and the tests of the ledger use testbed"},
		{"infra/testbed/cloud", []string{"infra/local/runtimeapi", "infra/sam", "infra/testbed", "infra/testbed/programs", "pkg/x402/ledger", "pkg/x402/ledger/dynamo"}, "what stands for AWS is apart from what all suites share"},
		{"infra/demo", []string{"infra/local/bill", "infra/testbed", "infra/testbed/programs", "pkg/x402", "pkg/x402/x402test"}, "it shows sellers from outside, in the world that the suites have"},
		{"infra/demo/thirty", []string{"pkg/x402"}, "it has what an example has"},
		{"infra/outside", nil, "what somebody does who has no clone is tests and nothing else"},
		{"infra/testbed/programs", nil, "a program is started whatever it is"},
		{"infra/testbed/modproxy", nil, "a module is packed whatever is in it"},
		{"infra/testbed/npmproxy", nil, "it reads a list of packages of others"},
		{"infra/clients", []string{"pkg/catalog", "pkg/x402/fault", "pkg/x402/x402test"}, "the description judges the replies of a client; the programs of others are run from outside"},
		{"infra/simnet", nil, "the small internet is tests and nothing else"},
		{"infra/gameday", nil, "alarms are judged by their definition alone; only the tests know a service"},
	}
}

// restrictedModules returns a table of the modules that only some packages may import, each
// with the reason.
func restrictedModules() []layer {
	return []layer{
		{"github.com/aws/aws-sdk-go-v2", []string{"pkg/x402/ledger/dynamo", "infra/testbed/cloud", "pkg/boot", "infra/deploy", "infra/local/operate", "infra/local/secret"}, "only the stores, their wiring, who restores their table, who keeps their secret and who deploys know AWS"},
		{"github.com/aws/aws-lambda-go", []string{"pkg/boot", "infra/testbed/cloud", "infra/local/invoke"}, "only boot knows Lambda"},
		{"code.dny.dev/ssrf", []string{"pkg/lookup/guard"}, "one guard judges addresses"},
		{"github.com/go-json-experiment/json", []string{"pkg/untrusted"}, "one reader of JSON that others wrote"},
		{"github.com/miekg/dns", []string{"infra/bench", "infra/testbed", "pkg/lookup/dns"}, "DNS messages are the lookup's business"},
		{"github.com/openrdap/rdap", []string{"infra/bench", "pkg/lookup/whois/registry"}, "RDAP answers are the lookup's business"},
		{"github.com/santhosh-tekuri/jsonschema", []string{"infra/clients"}, "schemas are published, and judged by tests only"},
		{"modernc.org/sqlite", []string{"pkg/x402/ledger/file"}, "the file store is not deployed"},
		{"github.com/decred/dcrd", []string{"infra/bench", "pkg/x402", "pkg/x402/x402test"}, "signatures are the payment layer's business"},
		{"golang.org/x/term", []string{"infra/local/pay", "infra/local/keys", "infra/local/secret", "infra/paymcp"}, "nothing that is deployed has a terminal"},
		{"github.com/cdklabs/cdk-nag-go", []string{"infra/cdk"}, "the linter of the envelope is a part of it"},
		{"github.com/aws/aws-cdk-go", []string{"infra/cdk"}, "the envelope alone is made of constructs; what it includes is YAML"},
		{"github.com/DataDog/datadog-agent", []string{"pkg/discovery"}, "documents alone are made of templates"},
		{"html/template", nil, "it looks methods up by name, so that the linker keeps every exported method: 2 MB more in every function; the imports of pkg/discovery have the numbers"},
		{"text/template", nil, "it looks methods up by name, so that the linker keeps every exported method: 2 MB more in every function; the imports of pkg/discovery have the numbers"},
		{"github.com/golang-jwt/jwt", []string{"pkg/x402/facilitator"}, "only the facilitator takes tokens"},
	}
}

type listedPackage struct {
	Name, ImportPath string
	Imports, Deps    []string
}

// listPackages returns the packages of this module and of the three modules below infra.
func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	var all []listedPackage
	for _, folder := range []string{"..", "../infra/cdk", "../infra/deploy", "../infra/paymcp"} {
		cmd := exec.Command("go", "list", "-json=Name,ImportPath,Imports,Deps", "./...")
		cmd.Dir = folder
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", folder, err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var p listedPackage
			if err := d.Decode(&p); err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
	}
	return all
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}

func TestLayers(t *testing.T) {
	all, used := layers(), map[string]bool{}
	for _, p := range listPackages(t) {
		name, ours := strings.CutPrefix(p.ImportPath, module)
		i := slices.IndexFunc(all, func(l layer) bool { return matchesAny([]string{l.pkg}, name) })
		switch {
		case !ours || name == "pkg": // pkg itself holds only this test
			continue
		case i < 0:
			t.Errorf("%s is in no layer: add it to the table with a reason", name)
			continue
		}
		used[all[i].pkg] = true
		checkImports(t, name, p.Imports, all[i])
	}
	for _, l := range all {
		if !used[l.pkg] {
			t.Errorf("%s is in the table and is not a package", l.pkg)
		}
	}
}

// checkImports checks the imports of a package. The package may import another package of ours
// only if its layer allows that. It may import a module in the table restrictedModules only if
// the row of that module allows it.
func checkImports(t *testing.T, name string, imports []string, l layer) {
	t.Helper()
	for _, imported := range imports {
		if dep, ours := strings.CutPrefix(imported, module); ours && !matchesAny(l.allowed, dep) {
			t.Errorf("%s imports %s, which it may not: %s", name, dep, l.reason)
		}
		for _, f := range restrictedModules() {
			if strings.HasPrefix(imported, f.pkg) && !matchesAny(f.allowed, name) {
				t.Errorf("%s imports %s, which it may not: %s", name, imported, f.reason)
			}
		}
	}
}

// TestDeployedCode checks that the deployed functions link no test package and no file store.
// It also checks that only the functions that query a registry link the RDAP library, because
// it is large.
func TestDeployedCode(t *testing.T) {
	const library = "github.com/openrdap/rdap"
	banned := []string{"x402test", "mcptest", "ledgertest", "limittest", "testbed", "ledger/file", "modernc.org/sqlite", "net/http/httptest", "testing"}
	var linked []string
	for _, p := range listPackages(t) {
		name, deployed := strings.CutPrefix(p.ImportPath, module+"functions/")
		if !deployed {
			continue
		}
		if slices.Contains(p.Deps, library) {
			linked = append(linked, name)
		}
		for _, dep := range p.Deps {
			if slices.ContainsFunc(banned, func(b string) bool { return dep == b || strings.HasSuffix(dep, "/"+b) }) {
				t.Errorf("%s links %s", p.ImportPath, dep)
			}
		}
	}
	if want := []string{"host-intel", "mcp", "whois"}; !slices.Equal(linked, want) {
		t.Errorf("%s is linked by %v, want %v", library, linked, want)
	}
}

// TestTheSellerStandsAlone checks the packages that another program can use to sell something
// else over x402. They must not link the lookups or the rest of this product.
func TestTheSellerStandsAlone(t *testing.T) {
	sellerPackages := []string{"pkg/x402/x402http", "pkg/x402/ledger/file", "pkg/x402/ledger/dynamo", "pkg/x402/chain"}
	for _, p := range listPackages(t) {
		name, _ := strings.CutPrefix(p.ImportPath, module)
		if !slices.Contains(sellerPackages, name) {
			continue
		}
		sellerPackages = slices.DeleteFunc(sellerPackages, func(s string) bool { return s == name })
		for _, dep := range p.Deps {
			if dep, ours := strings.CutPrefix(dep, module); ours && !matchesAny([]string{"pkg/x402", "pkg/x402/*", "pkg/x402/*/*", "pkg/mcp", "pkg/untrusted"}, dep) {
				t.Errorf("%s needs %s", name, dep)
			}
		}
	}
	if len(sellerPackages) > 0 {
		t.Errorf("there is no package %v", sellerPackages)
	}
}

// TestEnvironmentIsReadOnce checks that boot is the only package below pkg that reads the
// environment.
func TestEnvironmentIsReadOnce(t *testing.T) {
	out, err := exec.Command("grep", "-rnE", `os\.(Getenv|LookupEnv|Environ)\b`, "--include=*.go", "--exclude=*_test.go", ".").Output()
	if err != nil && len(out) > 0 {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		file, _, _ := strings.Cut(strings.TrimPrefix(line, "./"), ":")
		if !strings.HasPrefix(file, "boot/") {
			t.Errorf("pkg/%s reads the environment: that is boot's", strings.TrimSpace(line))
		}
	}
}

// TestPlayMoneyIsLocal checks that only the local runner declares play money and provides a
// wallet for it. The local runner is a command, so nothing that is deployed can import it.
func TestPlayMoneyIsLocal(t *testing.T) {
	out, err := exec.Command("grep", "-rnE", `\.Play(Money|Wallet) = `, "--include=*.go", "--exclude=*_test.go", "--exclude-dir=node_modules", "..").Output()
	if err != nil {
		t.Fatal(err)
	}
	const runner, page = "../infra/local/main.go", "../pkg/discovery/page.go" // page.go only copies what the local runner has set
	settings := map[string]int{}
	for line := range strings.Lines(string(out)) {
		file, _, _ := strings.Cut(line, ":")
		settings[file]++
	}
	if want := map[string]int{runner: 2, page: 1}; !maps.Equal(settings, want) {
		t.Errorf("play money and its wallet are set in %v, want %v", settings, want)
	}
}
