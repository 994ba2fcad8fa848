package boot

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// The view of the chain: on Lambda the network's public node unless another is
// named, on this machine none unless one is.
func TestRPCURL(t *testing.T) {
	t.Parallel()
	const mustBe, unset = "RPC_URL must be an https URL (http only for this machine), or none", "RPC_URL is not set, and no public node of eip155:1"
	const public = "https://mainnet.base.org"
	rpc := func(url string) vars { return vars{"RPC_URL": url} }
	for name, c := range map[string]struct {
		vars vars
		want string
		says string // a fault
	}{
		"Base":            {nil, public, ""},
		"Base Sepolia":    {vars{"NETWORK": "eip155:84532"}, "https://sepolia.base.org", ""},
		"off":             {rpc("none"), "", ""},
		"a node":          {rpc(" https://rpc.example/v2/key "), "https://rpc.example/v2/key", ""},
		"another chain":   {vars{"NETWORK": "eip155:1"}, "", unset},
		"another, off":    {vars{"NETWORK": "eip155:1", "RPC_URL": "none"}, "", ""},
		"no host":         {rpc("https:///s3cr3t"), "", mustBe},
		"another scheme":  {rpc("wss://rpc.example/s3cr3t"), "", mustBe},
		"no URL":          {rpc("http://[s3cr3t"), "", mustBe},
		"two nodes":       {rpc("https://one.example/k, http://127.0.0.1:8545"), "https://one.example/k,http://127.0.0.1:8545", ""},
		"one is no URL":   {rpc("https://one.example,s3cr3t"), "", mustBe},
		"a comma":         {rpc(","), "", mustBe},
		"too many":        {rpc(strings.Repeat("https://one.example,", 6)), "", mustBe},
		"secret, default": {vars{"FACILITATOR_SECRET_ARN": secretARN}, public, ""},
		"secret alone":    {vars{"FACILITATOR_SECRET_ARN": secretARN, "RPC_URL": "secret"}, "", ""},
		"no secret":       {rpc("secret"), "", "RPC_URL is secret, and FACILITATOR_SECRET_ARN is not set"},
		"no network":      {vars{"NETWORK": "base"}, "", "1 fault(s)"},
	} {
		v := deployed(c.vars)
		check := func(who, url string, err error, want, says string) {
			t.Helper()
			switch {
			case says == "" && (err != nil || url != want):
				t.Errorf("%s, %s: %q, %v; want %q", name, who, url, err, want)
			case says != "" && (err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cr3t")):
				t.Errorf("%s, %s: %v; want %q, and the URL hidden", name, who, err, says)
			}
		}
		function, err := readFunction(env(v))
		check("function", strings.Join(function.Nodes, ","), err, c.want, c.says)
		delete(v, "LEDGER_TABLE")
		local, err := ReadLocal(env(v))
		if v["RPC_URL"] == "" { // on this machine nobody is asked then
			c.want, c.says = "", strings.TrimPrefix(c.says, unset)
		}
		check("local", strings.Join(local.Nodes, ","), err, c.want, c.says)
	}
}

// The secret's nodes come first, the others only where it names none; with the word
// secret there are no others, and a secret that cannot be read does not make it ask
// the public node then.
func TestNodesOfTheSecret(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rpc    string
		answer http.HandlerFunc
		want   string
		says   string
	}{
		"a list": {
			"", holds(`{"token":"t","rpc_urls":["https://one.example/k","https://two.example"]}`),
			"https://one.example/k https://two.example", "",
		},
		"by the word":  {"secret", holds(`{"rpc_urls":["https://one.example/k"]}`), "https://one.example/k", ""},
		"none in it":   {"", holds(`{"token":"t"}`), "", ""},
		"a text":       {"", holds(`{"rpc_urls":"https://one.example/hush"}`), "", "rpc_urls of the secret is not a list"},
		"in the open":  {"", holds(`{"rpc_urls":["https://one.example/k","http://two.example/hush"]}`), "", "list of https URLs"},
		"no secret":    {"secret", reply(503, ""), "", "read the secret"},
		"not a secret": {"", holds(`hush`), "", "not a JSON object"},
	} {
		config := must(readFunction(env(deployed(vars{"RPC_URL": c.rpc}, newVault(t, c.answer).secretVars()))))
		now := time.Unix(1_800_000_000, 0)
		got, err := config.readNodes(t.Context(), now, false)
		same(t, name+": reads again", config.secret.wrong.Load(), err != nil && !strings.HasPrefix(err.Error(), "read"))
		_, _ = config.readNodes(t.Context(), now, true)
		same(t, name+": reads again after a failure", config.secret.wrong.Load(), true)
		if strings.Join(got, " ") != c.want || (err == nil) != (c.says == "") ||
			err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if public := len(config.Nodes) > 0; public != (c.rpc == "") || !config.hasChain() || !config.nodesInSecret {
			t.Errorf("%s: beside the secret's nodes: %q", name, config.Nodes)
		}
	}
}

// The view of the chain and its probe come and go together; without them the
// interfaces are nil, and /ready says what is not set.
func TestWatch(t *testing.T) {
	t.Parallel()
	for rpc, wants := range map[string]bool{"none": false, "http://127.0.0.1:1": true} {
		c := configured(t, vars{"RPC_URL": rpc})
		p := must(c.Parts(c.Ledger.Stores(), quiet(), time.Now))
		probes := 0
		for _, p := range p.probes {
			if p.Name == "chain" {
				probes++
				if err := p.Check(t.Context()); err == nil {
					t.Error("a node that is not there is ready")
				}
			}
		}
		warned := strings.Contains(c.warnings()["chain"], "RPC_URL")
		if (probes == 1) != wants || warned == wants || c.warnings()["payee"] == "" {
			t.Errorf("RPC_URL=%s: %d probes, warnings %v", rpc, probes, c.warnings())
		}
		r, err := c.Reconciling(c.Ledger.Stores(), quiet(), time.Now)
		if err != nil || (r.Chain != nil) != wants || r.Reconciler == nil || r.Ledger == nil {
			t.Errorf("RPC_URL=%s: %+v, %v", rpc, r, err)
		}
		if watches, scanner := evidence(r.Chain); (watches != nil) != wants || (scanner != nil) != wants {
			t.Errorf("RPC_URL=%s: evidence %v, scanner %v", rpc, watches, scanner)
		}
	}
}
