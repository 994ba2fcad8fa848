package boot

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// The view of the chain: on Lambda the network's public node unless another is
// named, on this machine none unless one is.
func TestRPCURL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		vars            map[string]string
		deployed, local string
		deployedSays    string // a fault
		localSays       string
	}{
		"Base":            {nil, "https://mainnet.base.org", "", "", ""},
		"Base Sepolia":    {map[string]string{"NETWORK": "eip155:84532"}, "https://sepolia.base.org", "", "", ""},
		"off":             {map[string]string{"RPC_URL": "none"}, "", "", "", ""},
		"a node":          {map[string]string{"RPC_URL": " https://rpc.example/v2/key "}, "https://rpc.example/v2/key", "https://rpc.example/v2/key", "", ""},
		"another chain":   {map[string]string{"NETWORK": "eip155:1"}, "", "", "RPC_URL is not set, and no public node of eip155:1", ""},
		"another, off":    {map[string]string{"NETWORK": "eip155:1", "RPC_URL": "none"}, "", "", "", ""},
		"another, a node": {map[string]string{"NETWORK": "eip155:1", "RPC_URL": "http://10.0.0.1:8545"}, "http://10.0.0.1:8545", "http://10.0.0.1:8545", "", ""},
		"no URL":          {map[string]string{"RPC_URL": "s3cr3t"}, "", "", "RPC_URL must be an http or https URL, or none", "RPC_URL must be an http or https URL, or none"},
		"no host":         {map[string]string{"RPC_URL": "https:///s3cr3t"}, "", "", "RPC_URL must be", "RPC_URL must be"},
		"another scheme":  {map[string]string{"RPC_URL": "wss://rpc.example/s3cr3t"}, "", "", "RPC_URL must be", "RPC_URL must be"},
		"no URL at all":   {map[string]string{"RPC_URL": "http://[s3cr3t"}, "", "", "RPC_URL must be", "RPC_URL must be"},
		"two nodes":       {map[string]string{"RPC_URL": "https://one.example/k, http://two.example"}, "https://one.example/k,http://two.example", "https://one.example/k,http://two.example", "", ""},
		"one is no URL":   {map[string]string{"RPC_URL": "https://one.example,s3cr3t"}, "", "", "RPC_URL must be", "RPC_URL must be"},
		"a comma":         {map[string]string{"RPC_URL": ","}, "", "", "RPC_URL must be", "RPC_URL must be"},
		"too many":        {map[string]string{"RPC_URL": strings.Repeat("https://one.example,", 6)}, "", "", "RPC_URL must be", "RPC_URL must be"},
		"secret, default": {map[string]string{"FACILITATOR_SECRET_ARN": secretARN}, "https://mainnet.base.org", "", "", ""},
		"secret alone":    {map[string]string{"FACILITATOR_SECRET_ARN": secretARN, "RPC_URL": "secret"}, "", "", "", ""},
		"no secret":       {map[string]string{"RPC_URL": "secret"}, "", "", "RPC_URL is secret, and FACILITATOR_SECRET_ARN is not set", "RPC_URL is secret, and"},
		"no network":      {map[string]string{"NETWORK": "base"}, "", "", "1 fault(s)", "1 fault(s)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vars := good()
			for k, v := range c.vars {
				vars[k] = v
			}
			check := func(who, url string, err error, want, says string) {
				t.Helper()
				switch {
				case says == "" && (err != nil || url != want):
					t.Errorf("%s: %q, %v; want %q", who, url, err, want)
				case says != "" && (err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cr3t")):
					t.Errorf("%s: %v; want %q, and the URL hidden", who, err, says)
				}
			}
			priced, err := readPriced(env(vars))
			check("priced", priced.RPCURL, err, c.deployed, c.deployedSays)
			reconcile, err := readReconcile(env(vars))
			check("reconcile", reconcile.RPCURL, err, c.deployed, c.deployedSays)
			delete(vars, "LEDGER_TABLE")
			local, err := ReadLocal(env(vars))
			check("local", local.RPCURL, err, c.local, c.localSays)
		})
	}
}

// The secret's nodes come first, the others only where it names none; with the word
// secret there are no others, and a secret that cannot be read is no reason to ask
// the public node then.
func TestNodesOfTheSecret(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rpc, secret string
		status      int
		want        string
		says        string
	}{
		"a list":       {"", `{"token":"t","rpc_urls":["https://one.example/k","https://two.example"]}`, 200, "https://one.example/k https://two.example", ""},
		"by the word":  {"secret", `{"rpc_urls":["https://one.example/k"]}`, 200, "https://one.example/k", ""},
		"none in it":   {"", `{"token":"t"}`, 200, "", ""},
		"a text":       {"", `{"rpc_urls":"https://one.example/hush"}`, 200, "", "rpc_urls is a list"},
		"no secret":    {"secret", `{}`, 503, "", "read the chain's nodes"},
		"not a secret": {"", `hush`, 200, "", "not a JSON object"},
	} {
		v := &vault{}
		v.holds(c.secret)
		if c.status != 200 {
			v.says(c.status, "")
		}
		manager := httptest.NewServer(v)
		vars := good()
		vars["RPC_URL"], vars["FACILITATOR_SECRET_ARN"], vars["AWS_ENDPOINT_URL_SECRETS_MANAGER"] = c.rpc, secretARN, manager.URL
		config, err := readReconcile(env(vars))
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.readNodes(t.Context())
		if strings.Join(got, " ") != c.want || (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if public := config.RPCURL != ""; public != (c.rpc == "") || !config.watched() {
			t.Errorf("%s: beside the secret's nodes: %q", name, config.RPCURL)
		}
		manager.Close()
	}
}

// The reconcile function needs the ledger and the chain, and asks the facilitator and
// the resolvers whether they are there. It signs no receipt and limits nobody.
func TestReconcileFaults(t *testing.T) {
	t.Parallel()
	_, err := readReconcile(env(map[string]string{"FACILITATOR_URL": "ftp://x", "RPC_URL": "x"}))
	if err == nil || !strings.Contains(err.Error(), "5 fault(s)") {
		t.Fatalf("%v", err)
	}
	for _, name := range []string{"PAY_TO is not set", "LEDGER_TABLE is not set", "AWS_REGION is not set", "RPC_URL must be", "FACILITATOR_URL must be"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q is not reported in:\n%v", name, err)
		}
	}
	for _, name := range []string{"RECEIPT_KEY", "RATE_LIMIT_PER_MINUTE", "CONCURRENCY_SINGLE"} {
		if slices.Contains(ReconcileVars(), name) {
			t.Errorf("the reconcile function is told %s", name)
		}
	}
}

// The view of the chain and its probe come and go together; without them the
// interfaces are nil, and /ready says what is not set.
func TestWatch(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for rpc, wants := range map[string]bool{"none": false, "http://127.0.0.1:1": true} {
		vars := good()
		vars["RPC_URL"] = rpc
		c, err := readPriced(env(vars))
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Parts(c.Ledger.Stores(), log, time.Now)
		if err != nil {
			t.Fatal(err)
		}
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
		r, err := c.Reconciling(c.Ledger.Stores().Ledger, c.Ledger.Index(), log, time.Now)
		if err != nil || (r.Chain != nil) != wants || r.Reconciler == nil || r.Ledger == nil {
			t.Errorf("RPC_URL=%s: %+v, %v", rpc, r, err)
		}
		if evidence, scanner := watchers(r.Chain); (evidence != nil) != wants || (scanner != nil) != wants {
			t.Errorf("RPC_URL=%s: evidence %v, scanner %v", rpc, evidence, scanner)
		}
	}
	store := (Table{Name: "t", Region: "us-east-1", Credentials: func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, nil }}).Stores().Ledger
	if _, err := (Config{RPCURL: "https://rpc.example"}).Reconciling(store, nil, log, time.Now); err == nil {
		t.Error("terms without a network were accepted")
	}
}
