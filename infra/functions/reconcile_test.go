package functions

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/local/runtimeapi"
	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/payments"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// callReconcile sends the scheduled function its example event, and returns the answer.
func callReconcile(t *testing.T, h *cloud.Host) ([]byte, error) {
	t.Helper()
	event := testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), "events", sam.Reconcile+".json")))
	payload, _, err := h.Call(sam.LogicalID(sam.Reconcile), event)
	return payload, err
}

// TestReconcileFunction runs the built reconcile function with a DynamoDB table and an Ethereum
// node. A payment that is on the chain must become settled. A payment that was sent, but is not
// on the chain, must stay in doubt. A payment that was never sent must become refused. The owed
// answers must be counted. The function must use exactly the permissions that the template
// grants.
func TestReconcileFunction(t *testing.T) {
	t.Parallel()
	watch := newRecorder(t)
	node := testbed.StartChain(t)
	store := cloud.Dynamo{URL: watch.url}.Open(watch.table)
	l := payments.Ledger(store)
	payer := testbed.Must(x402test.NewWallet(rand.Reader))
	node.Mint(t, payer.Address(), 1_000_000)

	signed, lost, paid := payments.Transfer(t, l, payer)
	receipt := node.Transfer(t, signed)
	_, silent, open := payments.Transfer(t, l, payer)
	testbed.Check(errors.Join(lost.End(t.Context(), ledger.EventUncertain, "timeout", ""), silent.End(t.Context(), ledger.EventUncertain, "timeout", "")))
	owed := payments.Owe(t, l)
	_, _, unsent := payments.Transfer(t, l, payer)
	payments.Abandon(t, store, unsent)
	terms := testbed.LocalTerms(t)
	longAgo := func() time.Time { return time.Now().Add(-72 * time.Hour) }
	former := ledger.NewPayees(ledger.New(store, longAgo, rand.Text)) // this record of a former payee is so old that reconcile deletes it
	testbed.Check(former.Record(t.Context(), terms.Network, strings.ToLower(terms.Asset), testbed.Account(5), "5000"))
	params := bothFacilitators(t, watch.table)
	params["RpcUrl"], params["LogLevel"] = "secret", "error"
	h, logs := openHost(t, params, watch.environment(t, sam.Reconcile, `,"rpc_urls":["`+node.URL+`"]`))
	if payload, err := callReconcile(t, h); err != nil || string(payload) != "null" {
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
	// The alarms need this line, so the function must log it although LogLevel is error.
	checkLine(t, logs(), map[string]any{
		"level": "INFO", "evidence": true, "unread": false, "Open": 2.0, "SettledLate": 1.0, "RefusedLate": 1.0, "StillOpen": 1.0, "OwedUnclaimed": 2.0,
		"ReconcileFailed": 0.0, "Ready": 1.0, "ReadyLedger": 1.0, "ReadyFacilitator": 1.0, "ReadyResolvers": 1.0, "ReadyChain": 1.0,
		"ReadyMark": 0.0, "not_ready": []any{"facilitator_primary", "mark"}, // these two faults do not keep the service from being ready
	})
	if d := cmp.Diff(watch.grantedPermissions[sam.Reconcile], watch.usedPermissions(sam.Reconcile)); d != "" {
		t.Errorf("permissions (-may +used):\n%s", d)
	}
}

// TestReconcileMark checks the metric ReadyMark. It must be 1 if the table has a mark of this
// stack with the current payee, or with a former payee that is in FormerTerms. Otherwise it
// must be 0, even if the table has a mark of another stack.
func TestReconcileMark(t *testing.T) {
	t.Parallel()
	server := cloud.StartDynamo(t)
	names := testbed.Resolver(t, testbed.ReadZone(t, "com. 30 NS a.gtld-servers.net."))
	table := boot.Table{Name: server.Table(t), AWS: server.Config()}
	params := map[string]string{"Ledger": table.Name, "RpcUrl": "none", "DnsResolvers": names, "FacilitatorUrl": testbed.Serve(t, testbed.NewFacilitator(t))}
	checkReadyMark := func(marked float64) {
		t.Helper()
		h, logs := openHost(t, params, server.Settings(table.Name))
		if _, err := callReconcile(t, h); err != nil {
			t.Error(err)
		}
		checkLine(t, logs(), map[string]any{"Ready": 1.0, "ReadyLedger": 1.0, "ReadyMark": marked})
	}
	write := func(stack, payee string) {
		t.Helper()
		testbed.Must(table.SetMark(t.Context(), boot.Mark{Stack: stack, Payee: payee, Written: time.Now(), By: "test"}, true))
	}
	write("another", boot.LocalPayTo)
	checkReadyMark(0)
	write("local", boot.LocalPayTo)
	checkReadyMark(1)
	write("local", testbed.Account(5))
	checkReadyMark(0)
	params["FormerTerms"] = time.Now().Add(time.Minute).UTC().Format(time.RFC3339) + ",payTo=" + testbed.Account(5)
	checkReadyMark(1)
	params["FormerTerms"] = "none"
	checkReadyMark(0)
}

// TestReconcileFunctionFails runs reconcile without a table, and with a facilitator that does
// not answer. The invocation must fail, so that Lambda's error metric counts it, but the
// function must still write its log line. The line must report the facilitator as not ready if
// Selling is "yes". If Selling is "no", the line must not report on the facilitator.
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
		h, logs := openHost(t, map[string]string{"Ledger": "Ledger", "RpcUrl": "none", "DnsResolvers": names, "Selling": selling},
			map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1"})
		var failed runtimeapi.Failed
		if _, err := callReconcile(t, h); !errors.As(err, &failed) || !strings.Contains(string(failed), "list open records") {
			t.Errorf("it answered %s, want a function error", failed)
		}
		maps.Copy(want, more)
		checkLine(t, logs(), want)
	}
}

// checkLine checks that the logs have exactly one reconcile line. The line must have the id of
// the invocation, the metric namespace of the stack, and the members in want. A nil value in
// want means that the member must be missing. The tests of pkg/service check the rest of the
// line.
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
