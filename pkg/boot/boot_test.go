package boot

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// TestFaults checks that all faults of a configuration are reported together, each with the
// name of its variable, and that the report never shows a secret.
func TestFaults(t *testing.T) {
	t.Parallel()
	const one, other = "https://one.example/x402", "https://other.example"
	const claims = "WELL_KNOWN_FILES"
	const window, windowSays = "DUPLICATE_WINDOW_SECONDS", "a whole number from 0 to 86400"
	_, public := keyPair(1)
	secret := vars{"FACILITATOR_SECRET_ARN": secretARN}
	otherToken := vars{"USDC_ASSET": "0x209693bc6afc0c5328ba36faf03c514ef312287c", "USDC_NAME": "Coin", "USDC_VERSION": "1"}
	const rpcSays = "RPC_URL must be an https URL (http only for this machine), or none"
	withFallback := func(more vars) vars {
		more["FACILITATOR_URL"], more["FACILITATOR_FALLBACK_URL"] = one, other
		return more
	}
	for _, c := range []struct {
		vars      vars
		wantFault string // what the report must say; "|" separates two texts; "" means no fault
	}{
		{vars{"PAY_TO": ""}, "PAY_TO is not set"},
		{vars{"LEDGER_TABLE": ""}, "LEDGER_TABLE is not set"},
		{vars{"BASE_URL": "api.example.com"}, "must be an origin"},
		{vars{"BASE_URL": "http://api.example.com"}, "http is allowed only on this machine"},
		{vars{"BASE_URL": "https://u:p@api.example.com"}, "must not have"},
		{vars{"BASE_URL": "https://api.example.com?"}, "must not have"},
		{vars{"BASE_URL": "https://*.example.com"}, "host name"},
		{vars{"BASE_URL": "https://api.example.com:99999"}, "port"},
		{vars{"BASE_URL": "https://api.example.com:"}, "host name"},
		{vars{"PAY_TO": "0x70997970C51812dc3A010C7d01b50e0d17dc79C9"}, "wrong checksum"},
		{vars{"PAY_TO": "0x0000000000000000000000000000000000000000"}, "zero address"},
		{vars{"PAY_TO": "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"}, "token's contract"},
		{vars{"USDC_ASSET": "0x833589FCD6eDb6E08f4c7C32D4f71b54bdA02914"}, "wrong checksum"},
		{vars{"STACK_NAME": "1-is-first"}, "a letter first"},
		{vars{"STACK_NAME": strings.Repeat("s", 128), "LEDGER_TABLE": strings.Repeat("t", 255)}, ""},
		{vars{"STACK_NAME": strings.Repeat("s", 129), "LEDGER_TABLE": strings.Repeat("t", 256)}, "DynamoDB table name|STACK_NAME"},
		{vars{"LEDGER_TABLE": "tt"}, "DynamoDB table name"},
		{vars{window: "-1"}, windowSays},
		{vars{window: "86401"}, windowSays},
		{vars{window: "45s"}, "whole number"},
		{vars{"CONTACT": "https://example.com/contact?of=us#form"}, ""},
		{vars{"CONTACT": "mailto:op@example.com", "WELL_KNOWN_FILES": `{"glama.json": "{\"a\":1}", "402index-verify.txt": "hush\n"}`}, ""},
		{vars{"CONTACT": "op@example.com"}, "CONTACT must be"},
		{vars{"CONTACT": "http://example.com"}, "CONTACT must be"},
		{vars{"CONTACT": "https://u:p@example.com"}, "CONTACT must be"},
		{vars{"CONTACT": "https://example.com/(a)"}, "CONTACT must be"},
		{vars{"CONTACT": "mailto:op"}, "CONTACT must be"},
		{vars{"CONTACT": "mailto:op@example.com?cc=x"}, "CONTACT must be"},
		{vars{"CONTACT": "https://example.com/" + strings.Repeat("a", 90)}, "CONTACT must be"},
		{vars{claims: `{"security.txt":"hush","../x":"a"}`}, `WELL_KNOWN_FILES has "`},
		{vars{claims: `{"x402-trust.txt":"é"}`}, `has "x402-trust.txt"`},
		{vars{claims: `{"x402-trust.txt":""}`}, `has "x402-trust.txt"`},
		{vars{claims: `{"x402-trust.txt":1}`}, "must be a JSON object"},
		{vars{claims: `{"glama.json":"{"}`}, `has "glama.json"`},
		{vars{claims: `["a"]`}, "must be a JSON object"},
		{vars{claims: `{"x402-trust.txt":"` + strings.Repeat("a", 2048) + `"}`}, "at most 2048 bytes"},
		{vars{"RECEIPT_KEY": "hush"}, "RECEIPT_KEY must be 32 bytes"},
		{vars{"RECEIPT_PUBLIC_KEYS": public + ",short"}, "RECEIPT_PUBLIC_KEYS is a set of keys"},
		{vars{"RECEIPT_PUBLIC_KEYS": strings.Repeat(public+",", receipt.MaxKeys+1)}, "RECEIPT_PUBLIC_KEYS has more than 16 keys"},
		{vars{
			"BASE_URL": "https://api.example.com/prod", "PAY_TO": "0x12", "NETWORK": "base", "USDC_ASSET": "usdc",
			"FACILITATOR_URL": "ftp://x", "FACILITATOR_KEY_ID": "id", "DNS_RESOLVERS": "dns.google", "LEDGER_TABLE": "a b",
			"LOG_LEVEL": "loud", "STACK_NAME": "my stack", "AWS_REGION": "",
		}, "BASE_URL|PAY_TO|NETWORK|USDC_ASSET|FACILITATOR_URL|FACILITATOR_KEY_ID|DNS_RESOLVERS|" +
			"LEDGER_TABLE|LOG_LEVEL|STACK_NAME|AWS_REGION is not set"},

		{vars{
			"PAY_TO": "", "LEDGER_TABLE": "", "AWS_REGION": "", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "FACILITATOR_URL": "ftp://x", "RPC_URL": "x",
		}, "7 fault(s)|AWS_ACCESS_KEY_ID is not set|AWS_SECRET_ACCESS_KEY is not set|RPC_URL must be|FACILITATOR_URL must be"},

		// A configuration may have only one kind of credentials, and must have all parts of it.
		{vars{"FACILITATOR_KEY_SECRET": "hush"}, "go together"},
		{vars{"FACILITATOR_TOKEN": "hush", "FACILITATOR_KEY_ID": "id", "FACILITATOR_KEY_SECRET": "hush"}, "choose one"},
		{secret, ""},
		{deployedVars(secret, vars{"FACILITATOR_TOKEN": "hush"}), "FACILITATOR_SECRET_ARN and other"},
		{deployedVars(secret, vars{"AWS_ACCESS_KEY_ID": ""}), "1 fault(s)"}, // the ledger's table and the secret both need this variable, but it is reported once
		{deployedVars(secret, vars{"FACILITATOR_KEY_ID": "i"}),
			"FACILITATOR_SECRET_ARN and other|FACILITATOR_KEY_ID and FACILITATOR_KEY_SECRET go together"},
		{vars{"FACILITATOR_SECRET_ARN": "facilitator"}, "FACILITATOR_SECRET_ARN must be the complete ARN"},
		{vars{"FACILITATOR_SECRET_ARN": strings.TrimSuffix(secretARN, "-AbCdEf")}, "six random characters"},
		{vars{"FACILITATOR_SECRET_ARN": strings.Replace(secretARN, "111122223333", "1111", 1)}, "must be the complete ARN"},
		{vars{"FACILITATOR_SECRET_ARN": strings.Replace(secretARN, "secretsmanager", "ssm", 1)}, "must be the complete ARN"},
		{vars{"FACILITATOR_SECRET_ARN": strings.Replace(secretARN, "arn:aws:", "arn:aws-us-gov:", 1)}, ""},
		{vars{"FACILITATOR_SECRET_ARN": "x", "FACILITATOR_TOKEN": "hush", "FACILITATOR_KEY_ID": "i", "PAY_TO": "me"},
			"PAY_TO must|FACILITATOR_SECRET_ARN must|FACILITATOR_SECRET_ARN and other|" +
				"FACILITATOR_TOKEN and FACILITATOR_KEY_ID|go together"},

		// The URLs of facilitators and nodes must be https, or http on this machine. A second
		// facilitator must have other credentials.
		{vars{"FACILITATOR_URL": one}, ""},
		{vars{"FACILITATOR_URL": "http://198.51.100.9/hush"}, "FACILITATOR_URL must be an https URL"},
		{vars{"FACILITATOR_URL": "ftp://127.0.0.1/hush"}, "FACILITATOR_URL must be an https URL"},
		{vars{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": "http://other.example"}, "FACILITATOR_FALLBACK_URL must be an https URL"},
		{vars{"FACILITATOR_URL": "http://127.0.0.1:8403", "RPC_URL": "http://[::1]:8545,http://localhost:8546"}, ""},
		{vars{"RPC_URL": "https://one.example,http://10.0.0.1/hush"}, rpcSays},
		{vars{"RPC_URL": "https://:443/hush"}, rpcSays},
		{vars{"RPC_URL": "wss://rpc.example/hush"}, rpcSays},
		{vars{"RPC_URL": "http://[hush"}, rpcSays},
		{vars{"RPC_URL": ","}, rpcSays},
		{vars{"RPC_URL": strings.Repeat("https://one.example,", 6)}, rpcSays},
		{vars{"RPC_URL": "secret"}, "RPC_URL is secret, and FACILITATOR_SECRET_ARN is not set"},
		{vars{"NETWORK": "eip155:1"}, "RPC_URL is not set, and no public node of eip155:1|USDC_ASSET, USDC_NAME and USDC_VERSION are all needed on eip155:1"},
		{deployedVars(otherToken, vars{"NETWORK": "eip155:1", "RPC_URL": "none"}), ""},
		{deployedVars(otherToken, vars{"NETWORK": "eip155:1", "RPC_URL": "none", "USDC_VERSION": ""}), "USDC_VERSION are all needed on eip155:1"},
		{vars{"NETWORK": "base"}, "1 fault(s)"},
		{vars{"NETWORK": "eip155:84532"}, ""},
		{vars{"NETWORK": "eip155:84532", "USDC_ASSET": x402.USDC().Asset}, "name the USDC of eip155:8453, and the network is eip155:84532"},
		{vars{"NETWORK": "eip155:84532", "USDC_NAME": "USD Coin"}, `the USDC of eip155:84532 has the name "USDC" and the version "2"`},
		{otherToken, ""},
		{vars{"USDC_ASSET": otherToken["USDC_ASSET"]}, "are all needed for a token that is not the USDC of eip155:8453"},
		{withFallback(vars{"FACILITATOR_FALLBACK_TOKEN": "hush"}), ""},
		{withFallback(vars{"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_SECRET_ARN": otherARN}), ""},
		{vars{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": "https://one.example/other"}, ""},
		{vars{"FACILITATOR_FALLBACK_URL": other}, ""}, // nothing is sold without a primary facilitator; see TestValues
		{vars{"SELLING": "perhaps"}, "SELLING must be yes or no"},
		{vars{"FORMER_TERMS": "2026-11-20T08:05:00Z"}, "FORMER_TERMS must be none, or a time"},
		{vars{"FORMER_TERMS": "soon,dns=5000"}, "FORMER_TERMS must be none, or a time"},
		{vars{"FORMER_TERMS": "2026-11-20T08:05:00Z,payTo=0x0000000000000000000000000000000000000000"}, "FORMER_TERMS is the zero address"},
		{vars{"FORMER_TERMS": "2026-11-20T08:05:00Z,dns=0.005,mcp=1,payTo="}, `FORMER_TERMS has "dns=0.005"|FORMER_TERMS has "mcp=1"|FORMER_TERMS has "payTo="`},
		{vars{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": "other"}, "FACILITATOR_FALLBACK_URL must be"},
		{vars{"FACILITATOR_URL": one + "?key=hush", "FACILITATOR_FALLBACK_URL": "https://:443"}, "FACILITATOR_URL cannot be used: |FACILITATOR_FALLBACK_URL must be"},
		{vars{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_URL": "http://ONE.example/x402/"},
			"FACILITATOR_FALLBACK_URL is the facilitator of FACILITATOR_URL"},
		{vars{"FACILITATOR_URL": one, "FACILITATOR_FALLBACK_TOKEN": "hush"},
			"FACILITATOR_FALLBACK_TOKEN is set, and FACILITATOR_FALLBACK_URL is not"},
		{withFallback(vars{"FACILITATOR_TOKEN": "hush", "FACILITATOR_FALLBACK_TOKEN": "hush"}),
			"FACILITATOR_FALLBACK_TOKEN is that of FACILITATOR_TOKEN"},
		{withFallback(vars{"FACILITATOR_SECRET_ARN": secretARN, "FACILITATOR_FALLBACK_SECRET_ARN": secretARN}),
			"FACILITATOR_FALLBACK_SECRET_ARN is that of"},
		{withFallback(vars{"FACILITATOR_FALLBACK_KEY_ID": "hush"}),
			"FACILITATOR_FALLBACK_KEY_ID and FACILITATOR_FALLBACK_KEY_SECRET go together"},
		{withFallback(vars{"FACILITATOR_FALLBACK_SECRET_ARN": "fallback"}), "FACILITATOR_FALLBACK_SECRET_ARN must be the complete ARN"},
	} {
		_, err := parseFunction(env(deployedVars(c.vars)), ReadByOthers)
		if (err == nil) != (c.wantFault == "") || err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%v: %v", c.vars, err)
			continue
		}
		for says := range strings.SplitSeq(c.wantFault, "|") {
			if err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%v: %q is not said in:\n%v", c.vars, says, err)
			}
		}
	}
}

// TestFormerTerms checks how FORMER_TERMS is read: the former terms, and the time until which
// they are accepted. If that time is more than a day away, Components must return an error.
// TestFormerTerms also checks two warnings of /ready: former_terms while FORMER_TERMS is set,
// and one_resolver if there is only one resolver.
func TestFormerTerms(t *testing.T) {
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	read := func(v string) *service.FormerTerms { return deployedConfig(t, vars{"FORMER_TERMS": v}).Former }
	if read("") != nil || read("none") != nil {
		t.Error("there are former terms, and nobody named them")
	}
	f := read("2026-11-20T08:05:00Z, payTo=" + LocalPayTo + ",dns=7000")
	if f.Terms.PayTo != LocalPayTo || f.Terms.Network != "eip155:8453" || f.Prices["dns"] != "7000" || !f.Until.Equal(now.Add(5*time.Minute)) {
		t.Errorf("%+v", f)
	}
	c := deployedConfig(t, vars{"FORMER_TERMS": "2026-11-20T08:05:00Z,dns=7000"})
	checkEqual(t, "the payee stays", c.Former.Terms.PayTo, c.Terms.PayTo)
	checkEqual(t, "/ready says that releases are not watched", c.warnings()["former_terms"] != "", true)
	for list, alone := range map[string]bool{"": false, "9.9.9.9": true, "9.9.9.9,1.1.1.1": false} {
		checkEqual(t, "/ready says that "+list+" is one resolver", deployedConfig(t, vars{"DNS_RESOLVERS": list}).warnings()["one_resolver"] != "", alone)
	}
	for early, says := range map[time.Duration]string{0: "", 25 * time.Hour: "FORMER_TERMS ends more than a day from now: five minutes after the deployment are enough"} {
		_, err := c.Components(stores(), discardLogger(), func() time.Time { return now.Add(-early) })
		if err != nil && err.Error() != says || (err != nil) != (says != "") {
			t.Errorf("%v before: %v", early, err)
		}
	}
}

// TestValues checks how valid values are read. Nothing is for sale if SELLING is no or if
// there is no facilitator, whatever the other settings are. The local runner needs no
// settings. If the local runner listens on all addresses of the machine, its origin must have
// the loopback address. There is a warning if real money would go to an address whose private
// key is published.
func TestValues(t *testing.T) {
	type values map[string]any
	local := func(v vars) Local { return must(ParseLocal(env(v))) }
	payTo := func(v vars) any { return local(v).Terms.PayTo }
	nodes := func(v vars) any { return strings.Join(deployedConfig(t, v).Nodes, " ") }
	sells := func(v vars) any {
		c := deployedConfig(t, vars{"FACILITATOR_URL": "https://one.example", "FACILITATOR_FALLBACK_URL": "https://b.example"}, v)
		return fmt.Sprintln(c.Paused, c.FacilitatorURL, c.FallbackURL)
	}
	payeeWarning := func(v vars) any { return deployedConfig(t, v).warnings()["payee"] != "" }
	const payee, upper = "0x209693bc6afc0c5328ba36faf03c514ef312287c", "0x209693BC6AFC0C5328BA36FAF03C514EF312287C"
	for _, c := range []struct {
		name string // the name of the variable
		show func(vars) any
		want values
	}{
		{"PAY_TO", payTo, values{"": LocalPayTo, LocalPayTo: LocalPayTo, payee: payee, upper: upper}},
		{"PAY_TO", payeeWarning, values{LocalPayTo: true, strings.ToLower(LocalPayTo): true, payee: false}},
		{"AWS_ENDPOINT_URL_DYNAMODB", payeeWarning, values{"http://127.0.0.1:8000": false}},
		{"BASE_URL", func(v vars) any { return deployedConfig(t, v).BaseURL }, values{
			"": "", "https://API.example.com": "https://api.example.com", "https://API.example.com/": "https://api.example.com",
			"https://api.example.com#": "https://api.example.com", "https://api.example.com:8443": "https://api.example.com:8443",
			"https://192.0.2.1": "https://192.0.2.1", "http://127.0.0.1:8402": "http://127.0.0.1:8402",
			"http://[::1]:8402": "http://[::1]:8402",
		}},
		{"LOCAL_ADDR", func(v vars) any { return local(v).BaseURL + " on " + local(v).Addr }, values{
			"": "http://127.0.0.1:8402 on 127.0.0.1:8402", ":8410": "http://127.0.0.1:8410 on :8410",
			"0.0.0.0:8410":          "http://127.0.0.1:8410 on 0.0.0.0:8410",
			"[::ffff:0.0.0.0]:8410": "http://127.0.0.1:8410 on [::ffff:0.0.0.0]:8410",
			"[::]:8410":             "http://[::1]:8410 on [::]:8410", "192.0.2.1:80": "http://192.0.2.1:80 on 192.0.2.1:80",
			"localhost:8410": "http://localhost:8410 on localhost:8410", "8410": "http://8410 on 8410",
		}},
		{"DUPLICATE_WINDOW_SECONDS", func(v vars) any { return local(v).DuplicateWindow }, values{
			"": 45 * time.Second, "0": time.Duration(0), " 90 ": 90 * time.Second, "86400": 24 * time.Hour,
		}},
		{"CONTACT", func(v vars) any { return local(v).userAgent() }, values{
			"": "Hostfacts/0.1.0 (+https://github.com/hostfacts/hostfacts)", "mailto:op@example.com": "Hostfacts/0.1.0 (+mailto:op@example.com)",
		}},
		{"DNS_RESOLVERS", func(v vars) any { return strings.Join(local(v).Resolvers, " ") }, values{
			"": "1.1.1.1:53 8.8.8.8:53 9.9.9.10:53",
		}},
		{"NETWORK", func(v vars) any {
			terms := local(v).Terms
			return strings.Join([]string{terms.Network, terms.Asset, terms.Name, terms.Version}, " ")
		}, values{
			"":             "eip155:8453 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 USD Coin 2",
			"eip155:84532": "eip155:84532 0x036CbD53842c5426634e7929541eC2318f3dCF7e USDC 2",
		}},
		{"NETWORK", nodes, values{"eip155:84532": "https://sepolia.base.org"}},
		{"NETWORK", func(v vars) any {
			l := local(v)
			return fmt.Sprint(l.FacilitatorURL, " ", l.Nodes, " ", l.GivesAway())
		}, values{
			"": " [] false", "eip155:8453": " [] false",
			"eip155:84532": "https://x402.org/facilitator [https://sepolia.base.org] false",
		}},
		{"NETWORK", func(v vars) any { return deployedConfig(t, v).FacilitatorURL }, values{
			"": "", "eip155:84532": "https://x402.org/facilitator",
		}},
		{"FACILITATOR_URL", func(v vars) any {
			l, sepolia := local(v), local(vars{"NETWORK": x402.BaseSepolia, "FACILITATOR_URL": v["FACILITATOR_URL"]})
			return fmt.Sprint(l.FacilitatorURL, " ", l.Nodes, " ", l.GivesAway(), " ", sepolia.FacilitatorURL)
		}, values{
			"http://localhost:8403": "http://localhost:8403 [] false http://localhost:8403",
			"http://[::1]:8403":     "http://[::1]:8403 [] false http://[::1]:8403",
			"https://one.example":   "https://one.example [https://mainnet.base.org] true https://one.example",
		}},
		{"PAY_TO", func(v vars) any {
			return local(vars{"FACILITATOR_URL": "https://one.example", "PAY_TO": v["PAY_TO"]}).GivesAway()
		}, values{"": true, payee: false}},
		{"LEDGER_TABLE", func(v vars) any { return local(v).LedgerFile + local(v).Ledger.Name }, values{"": LocalLedgerFile}},
		{"FACILITATOR_URL", sells, values{"": "false  \n", "https://a.example": "false https://a.example https://b.example\n"}},
		{"SELLING", sells, values{"yes": "false https://one.example https://b.example\n", "no": "true  \n"}},
		// A blank means the same as an empty value, because the SAM CLI accepts no empty
		// answer for a hidden parameter.
		{"RPC_URL", nodes, values{
			" ": "https://mainnet.base.org", " none ": "", " https://rpc.example/v2/key ": "https://rpc.example/v2/key",
			"https://one.example/k, http://127.0.0.1:8545": "https://one.example/k http://127.0.0.1:8545",
		}},
		{"RPC_URL", func(v vars) any { return strings.Join(local(v).Nodes, " ") }, values{"": "", "https://one.example": "https://one.example"}},
		{"FACILITATOR_TOKEN", func(v vars) any {
			return must(deployedConfig(t, v).credentials.Authorization(httptest.NewRequest(http.MethodGet, "/", nil), time.Time{}))
		}, values{
			" ": "", " t": "Bearer t",
		}},
	} {
		for value, want := range c.want {
			checkEqual(t, c.name+"="+value, c.show(vars{c.name: value}), want)
		}
	}
}

// TestDiscoveryNeedsATableForItsLimit checks that the documents' function needs the ledger's
// table if, and only if, it has a rate limit.
func TestDiscoveryNeedsATableForItsLimit(t *testing.T) {
	v := deployedVars(vars{"LEDGER_TABLE": ""})
	if _, err := parseDocuments(env(v)); err == nil || !strings.Contains(err.Error(), "LEDGER_TABLE is not set") {
		t.Errorf("without a table: %v", err)
	}
	v["RATE_LIMIT_PER_MINUTE"] = "0"
	checkEqual(t, "a table that is not needed", must(parseDocuments(env(v))).Ledger.Name, "")
	v["RATE_LIMIT_PER_MINUTE"], v["LEDGER_TABLE"] = "", "ledger"
	c := must(parseDocuments(env(v)))
	if c.Caps != (discovery.Caps{PerMinute: 300, Undecided: 5, Refused: 20, Single: 50, Bundle: 20}) || c.Ledger.Name != "ledger" || c.limits(stores(), time.Now).Rate == nil {
		t.Errorf("%+v of %s", c.Caps, c.Ledger.Name)
	}
}

// TestOrigin checks that the origin comes from the configuration or the platform, and never from
// a client's Host header. On Lambda, r.Host is not that header but the gateway's domain name.
func TestOrigin(t *testing.T) {
	r := httptest.NewRequest("GET", "https://Abc.execute-api.us-east-1.amazonaws.com/", nil)
	checkEqual(t, "configured", (Config{BaseURL: "https://api.example.com"}).origin(r), "https://api.example.com")
	checkEqual(t, "not configured", Config{}.origin(r), "https://abc.execute-api.us-east-1.amazonaws.com")
}

var update = flag.Bool("update", false, "write the table of settings into the runbook")

// TestRunbookSettings checks that the runbook's table of settings has exactly the settings of
// this package, or writes the table with -update.
func TestRunbookSettings(t *testing.T) {
	t.Parallel()
	const runbook, head = "../../infra/RUNBOOK.md", "| Variable | Meaning | Default |\n|---|---|---|\n"
	var table strings.Builder
	for _, s := range Settings() {
		usual := cmp.Or(s.Otherwise, "none")
		if s.Default != "" {
			usual = "`" + s.Default + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", s.Name, s.Meaning, usual)
	}
	text := string(must(os.ReadFile(runbook)))
	before, rest, _ := strings.Cut(text, head)
	printed, after, _ := strings.Cut(rest, "\n\n")
	if *update {
		check(t, os.WriteFile(runbook, []byte(before+head+table.String()+"\n"+after), 0o644))
	} else if diff := gocmp.Diff(table.String(), printed+"\n"); diff != "" {
		t.Errorf("settings (-list +runbook), which go test ./pkg/boot -run RunbookSettings -update writes:\n%s", diff)
	}
}
