package infra

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/local/runtimeapi"
	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const reconcileEvent = "../events/" + sam.Reconcile + ".json"

// hosted are the built functions, configured by the template; logs waits for their end.
func hosted(t *testing.T, params, env map[string]string) (h *cloud.Host, logs func() string) {
	t.Helper()
	var text bytes.Buffer
	h = cloud.Deployment{Functions: testbed.Functions(t), Parameters: params, Environment: env, Logs: &text}.Open(t)
	return h, func() string { h.Close(); return text.String() }
}

// reconciled is what the scheduled function makes of its event.
func reconciled(t *testing.T, h *cloud.Host) ([]byte, error) {
	t.Helper()
	payload, _, err := h.Call(sam.LogicalID(sam.Reconcile), testbed.Must(os.ReadFile(reconcileEvent)))
	return payload, err
}

// held claims a payment in a ledger at a time.
func held(t *testing.T, l *ledger.Ledger, key string, at time.Time) *ledger.Hold {
	t.Helper()
	c := testbed.Must(l.Claim(t.Context(), ledger.Submission{
		Key: key, AuthDigest: key, SigDigest: "s", Request: "GET /v1/tools/dns?domain=example.com&type=A",
		Terms: testbed.Must(json.Marshal(testbed.LocalTerms(t).Requirements("5000"))), ValidBefore: at.Add(5 * time.Minute),
	}, at.Add(time.Minute)))
	if c.Result != ledger.Held {
		t.Fatalf("claim: %+v", c)
	}
	return c.Hold
}

// claim drafts a payment on a chain, signs it and claims it in a ledger.
func claim(t *testing.T, l *ledger.Ledger, payer *x402test.Wallet) (testbed.SignedTransfer, *ledger.Hold, string) {
	t.Helper()
	payee := testbed.Must(x402.ParseAddress(boot.LocalPayTo))
	terms, now := testbed.Terms(payee), time.Now()
	signed := testbed.SignTransfer(t, payer, testbed.Authorization(payer, payee, 5000, now.Add(5*time.Minute)))
	key := ledger.Key(terms.Network, strings.ToLower(terms.Asset), payer.Address().String(), signed.Authorization.Nonce)
	return signed, held(t, l, key, now), key
}

// abandon makes a payment one whose attempt died an hour ago, before it was sent: its
// purchase names another one.
func abandon(t *testing.T, store ledger.Store, key string) {
	t.Helper()
	r := ledgertest.Payment(t, store, key)
	if r == nil {
		t.Fatalf("%s is not there", key)
	}
	ago := time.Now().Add(-time.Hour)
	r.Version, r.WriteID, r.Purchase = r.Version+1, "abandoned", "purchase|"+key
	r.CreatedAt, r.UpdatedAt, r.LeaseUntil, r.ValidBefore = ago, ago, ago, ago
	ledgertest.MustPut(t, store, *r)
	purchase := ledger.Purchase{
		Row:   ledger.Row{Key: r.Purchase, Version: 1, WriteID: "bought", CreatedAt: ago, UpdatedAt: ago, ExpiresAt: ago.Add(24 * time.Hour)},
		Owner: "another", AuthDigest: "another",
	}
	ledgertest.MustPut(t, store, purchase)
}

// TestReconcileFunction runs the built function, by its event, on a DynamoDB
// table and an Ethereum node: what was paid is settled, what was not stays in
// doubt, what was never sent is closed, what is owed is counted.
func TestReconcileFunction(t *testing.T) {
	t.Parallel()
	watch, node := newRecorder(t), testbed.StartChain(t)
	store := cloud.Dynamo{URL: watch.url}.Open(watch.table)
	payer, l := testbed.Must(x402test.NewWallet(rand.Reader)), ledgerOf(store)
	node.Mint(t, payer.Address(), 1_000_000)

	signed, lost, paid := claim(t, l, payer)
	receipt := node.Transfer(t, signed)
	_, silent, open := claim(t, l, payer)
	check(t, errors.Join(lost.End(t.Context(), ledger.EventUncertain, "timeout", ""), silent.End(t.Context(), ledger.EventUncertain, "timeout", "")))
	owed := pays(t, l)
	_, _, unsent := claim(t, l, payer)
	abandon(t, store, unsent)
	terms, longAgo := testbed.LocalTerms(t), func() time.Time { return time.Now().Add(-72 * time.Hour) }
	former := ledger.NewPayees(ledger.New(store, longAgo, rand.Text)) // who is done with now
	check(t, former.Note(t.Context(), terms.Network, strings.ToLower(terms.Asset), testbed.Account(5), "5000"))
	params := bothFacilitators(t, watch.table)
	params["RpcUrl"], params["LogLevel"] = "secret", "error"
	h, logs := hosted(t, params, watch.environment(t, sam.Reconcile, `,"rpc_urls":["`+node.URL+`"]`))
	if payload, err := reconciled(t, h); err != nil || string(payload) != "null" {
		t.Errorf("it answered %s, %v", payload, err)
	}
	for key, want := range map[string]ledger.State{paid: ledger.Settled, open: ledger.Uncertain, unsent: ledger.Refused, owed: ledger.Settled} {
		r := ledgertest.Payment(t, store, key)
		if r == nil || r.State != want {
			t.Errorf("%s: %+v; want %s", key, r, want)
		}
		if key == paid && (r.Receipt == nil || r.Receipt.Transaction != receipt.Hash || r.Receipt.Payer != payer.Address().Checksum()) {
			t.Errorf("receipt %+v, want transaction %s", r.Receipt, receipt.Hash)
		}
	}
	// LogLevel does not silence what alarms are made of.
	checkLine(t, logs(), map[string]any{
		"level": "INFO", "evidence": true, "unread": false, "Open": 2.0, "SettledLate": 1.0, "RefusedLate": 1.0, "StillOpen": 1.0, "OwedUnclaimed": 2.0,
		"ReconcileFailed": 0.0, "Ready": 1.0, "ReadyLedger": 1.0, "ReadyFacilitator": 1.0, "ReadyResolvers": 1.0, "ReadyChain": 1.0,
		"ReadyMark": 0.0, "not_ready": []any{"facilitator_primary", "mark"}, // and it is ready all the same
	})
	if d := cmp.Diff(watch.granted[sam.Reconcile], watch.used(sam.Reconcile)); d != "" {
		t.Errorf("permissions (-may +used):\n%s", d)
	}
}

// TestReconcileMark: what reconcile says of the ledger's table, by the built function. The
// mark of this stack counts: not that of another one, nor one with another payee.
func TestReconcileMark(t *testing.T) {
	t.Parallel()
	server := cloud.StartDynamo(t)
	names := testbed.Resolver(t, testbed.ReadZone(t, "com. 30 NS a.gtld-servers.net."))
	table := boot.Table{Name: server.Table(t), AWS: server.Config()}
	params := map[string]string{"Ledger": table.Name, "RpcUrl": "none", "DnsResolvers": names, "FacilitatorUrl": testbed.Serve(t, testbed.NewFacilitator(t))}
	says := func(marked float64) {
		t.Helper()
		h, logs := hosted(t, params, server.Settings(table.Name))
		if _, err := reconciled(t, h); err != nil {
			t.Error(err)
		}
		checkLine(t, logs(), map[string]any{"Ready": 1.0, "ReadyLedger": 1.0, "ReadyMark": marked})
	}
	write := func(stack, payee string) {
		t.Helper()
		testbed.Must(table.SetMark(t.Context(), boot.Mark{Stack: stack, Payee: payee, Written: time.Now(), By: "test"}, true))
	}
	write("another", boot.LocalPayTo)
	says(0)
	write("local", boot.LocalPayTo)
	says(1)
	write("local", testbed.Account(5))
	says(0)
	params["FormerTerms"] = time.Now().Add(time.Minute).UTC().Format(time.RFC3339) + ",payTo=" + testbed.Account(5)
	says(1)
	params["FormerTerms"] = "none"
	says(0)
}

// TestReconcileFunctionFails: without its table the invocation fails, so that
// Lambda's own error metric counts it, and the line is there all the same. Where nothing is
// to be sold, nobody misses the facilitator.
func TestReconcileFunctionFails(t *testing.T) {
	t.Parallel()
	names := testbed.Resolver(t, testbed.ReadZone(t, "com. 30 NS a.gtld-servers.net."))
	want := map[string]any{
		"level": "ERROR", "evidence": false, "Open": nil, "ReconcileFailed": 1.0, "Ready": 0.0, "ReadyLedger": 0.0, "ReadyResolvers": 1.0, "ReadyChain": nil,
	}
	for selling, more := range map[string]map[string]any{
		"yes": {"not_ready": []any{"facilitator", "ledger", "mark"}, "ReadyFacilitator": 0.0},
		"no":  {"not_ready": []any{"ledger", "mark"}, "ReadyFacilitator": nil},
	} {
		h, logs := hosted(t, map[string]string{"Ledger": "Ledger", "RpcUrl": "none", "DnsResolvers": names, "Selling": selling},
			map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1"})
		var failed runtimeapi.Failed
		if _, err := reconciled(t, h); !errors.As(err, &failed) || !strings.Contains(string(failed), "list open records") {
			t.Errorf("it answered %s, want a function error", failed)
		}
		maps.Copy(want, more)
		checkLine(t, logs(), want)
	}
}

// checkLine wants one line of the run, with the name of its invocation, metrics under
// the stack's name, and these members, nil where there is none. What else a line has
// is tested in pkg/service.
func checkLine(t *testing.T, logs string, want map[string]any) {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(logs) {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == "reconcile" {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d lines, want 1, in:\n%s", len(found), logs)
	}
	line := found[0]
	if id, ok := line["lambda_request_id"].(string); !ok || id == "" {
		t.Errorf("the line does not name its invocation: %v", line)
	}
	if metrics := fmt.Sprint(line["_aws"]); !strings.Contains(metrics, "Namespace:Hostfacts/local") {
		t.Errorf("metrics %s", metrics)
	}
	got := map[string]any{}
	for name := range want {
		got[name] = line[name]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("line (-want +got):\n%s", d)
	}
}
