package boot

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestNodesOfTheSecret checks that the list of nodes in a secret is read. If RPC_URL is empty,
// the public node must be configured as well, because the secret may have no nodes. If RPC_URL
// is "secret", the public node must not be configured. If the list is not valid or its nodes
// have failed, the secret must be read again.
func TestNodesOfTheSecret(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rpc    string
		answer http.HandlerFunc
		want   string
		says   string
	}{
		"a list": {
			"", secretAnswer(`{"token":"t","rpc_urls":["https://one.example/k","https://two.example"]}`),
			"https://one.example/k https://two.example", "",
		},
		"by the word":  {"secret", secretAnswer(`{"rpc_urls":["https://one.example/k"]}`), "https://one.example/k", ""},
		"none in it":   {"", secretAnswer(`{"token":"t"}`), "", ""},
		"a text":       {"", secretAnswer(`{"rpc_urls":"https://one.example/hush"}`), "", "rpc_urls of the secret is not a list"},
		"in the open":  {"", secretAnswer(`{"rpc_urls":["https://one.example/k","http://two.example/hush"]}`), "", "list of https URLs"},
		"no secret":    {"secret", reply(503, ""), "", "read the secret"},
		"not a secret": {"", secretAnswer(`hush`), "", "not a JSON object"},
	} {
		config := must(parseFunction(env(deployedVars(vars{"RPC_URL": c.rpc}, newVault(t, c.answer).secretVars())), ReadByReconcile))
		now := time.Unix(1_800_000_000, 0)
		got, err := config.nodesOfSecret(t.Context(), now, false)
		checkEqual(t, name+": reads again", config.secret.hasBadValue.Load(), err != nil && !strings.HasPrefix(err.Error(), "read"))
		_, _ = config.nodesOfSecret(t.Context(), now, true)
		checkEqual(t, name+": reads again after a failure", config.secret.hasBadValue.Load(), true)
		if strings.Join(got, " ") != c.want || (err == nil) != (c.says == "") ||
			err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if public := len(config.Nodes) > 0; public != (c.rpc == "") || !config.hasChain() || !config.nodesInSecret {
			t.Errorf("%s: beside the secret's nodes: %q", name, config.Nodes)
		}
	}
}

// TestWatch checks that a configured node is used to read the chain, and that /ready has a probe
// of the chain. Without a node there must be no client of the chain and no probe. The function
// evidence must then return only nil interfaces, and a warning of /ready must name RPC_URL.
func TestWatch(t *testing.T) {
	t.Parallel()
	for rpc, wants := range map[string]bool{"none": false, "http://127.0.0.1:1": true} {
		c := deployedConfig(t, vars{"RPC_URL": rpc})
		p := must(c.Components(c.Ledger.Stores(), discardLogger(), time.Now))
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
		r, err := c.Reconciling(c.Ledger.Stores(), discardLogger(), time.Now)
		if err != nil || (r.Chain != nil) != wants || r.Reconciler == nil || r.Ledger == nil {
			t.Errorf("RPC_URL=%s: %+v, %v", rpc, r, err)
		}
		if watches, scanner := evidence(r.Chain); (watches != nil) != wants || (scanner != nil) != wants {
			t.Errorf("RPC_URL=%s: evidence %v, scanner %v", rpc, watches, scanner)
		}
	}
}
