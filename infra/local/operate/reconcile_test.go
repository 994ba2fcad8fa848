package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	path, _ := stored(t, fill)
	env := map[string]string{"LEDGER_FILE": path}
	out, notes := operate(t, 0, env, "reconcile")
	want := "ledger    " + env["LEDGER_FILE"] + `
evidence  not asked (RPC_URL)
in doubt   1 of 1 listed
           1 no evidence
owed       2, refunds due: 1 (make owed lists them)
took       T
`
	out = regexp.MustCompile(`(?m)^took .*$`).ReplaceAllString(out, "took       T")
	if diff := cmp.Diff(want, out); diff != "" || notes != "" {
		t.Errorf("printed (-want +got):\n%s\n%s", diff, notes)
	}
}

// A node that does not answer decides nothing, and its key is not printed.
func TestReconcileNodeDown(t *testing.T) {
	t.Parallel()
	path, _ := stored(t, fill)
	out, notes := operate(t, 0, map[string]string{"LEDGER_FILE": path, "RPC_URL": "http://127.0.0.1:1/v1/s3cr3t"}, "reconcile")
	prints(t, out, "evidence  127.0.0.1:1\n", "1 no evidence\n", "received   0 transfers since the last run\n", "the chain could not be read to its end")
	if !strings.Contains(notes, "no evidence") || strings.Contains(out+notes, "s3cr3t") {
		t.Errorf("noted:\n%s", notes)
	}
}

// What has come in, in words.
func TestPrintSummary(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s    x402.Summary
		want string
	}{
		"nothing": {x402.Summary{Owed: 3}, "received   0 transfers since the last run\nowed       3, refunds due: 0 (make owed lists them)\n"},
		"everything": {x402.Summary{Received: 15, Deposits: 1, Found: 2, Unasked: 3, Unmatched: 4, Unread: true}, `received   15 transfers since the last run
           1 no payment: not signed for, or of less than anything costs
           2 for a payment thought to be unpaid: the answer is owed now
           3 that nobody here asked an answer for: a refund is due
           4 too old to be recorded, or with a broken record: look for the answer by hand
           the chain could not be read to its end: the next run reads on
owed       0, refunds due: 0 (make owed lists them)
`},
	} {
		var out bytes.Buffer
		printSummary(&out, c.s, true)
		_, received, _ := strings.Cut(out.String(), "listed\n")
		if diff := cmp.Diff(c.want, received); diff != "" {
			t.Errorf("%s: printed (-want +got):\n%s", name, diff)
		}
	}
}

func TestOwed(t *testing.T) {
	t.Parallel()
	path, paid := stored(t, fill)
	env := map[string]string{"LEDGER_FILE": path}
	out, notes := operate(t, 0, env, "owed")
	row := func(cells ...string) string { return strings.Join(cells, "  ") }
	want := strings.Join([]string{
		"SINCE PAYER AMOUNT OWED LOOKUPS LAST ERROR REQUEST TRANSACTION",
		row(minute(paid), payer, "$0.005", "answer, until "+minute(paid.Add(24*time.Hour)), "1 of 5", "dns_timeout", lookup, "0x02"),
		row(minute(paid), payer, "$0.005", "refund", "5 of 5", "upstream?[31m", lookup, paidIn),
		row(minute(paid), payer, "$0.005", "IN DOUBT: timeout", "0 of 5", "-", lookup, "-"),
		"",
		"2 owed in " + env["LEDGER_FILE"] + ", refunds due: 1, in doubt: 1",
		"make refund KEY='" + keyOf(3) + "'",
		"",
	}, "\n")
	spaces := regexp.MustCompile(` +`)
	tidy := func(s string) string { return spaces.ReplaceAllString(s, " ") }
	if diff := cmp.Diff(tidy(want), tidy(out)); diff != "" || notes != "" {
		t.Errorf("printed (-want +got):\n%s\n%s", diff, notes)
	}
	lines := strings.Split(out, "\n")
	for i := range 3 { // a table: the columns stand below each other
		if at := strings.LastIndex(lines[i], []string{"TRANSACTION", "0x02", paidIn}[i]); at != strings.Index(lines[0], "TRANSACTION") {
			t.Errorf("line %d: column at %d", i, at)
		}
	}
}

func TestOwedJSON(t *testing.T) {
	t.Parallel()
	path, paid := stored(t, fill)
	out, notes := operate(t, 0, map[string]string{"LEDGER_FILE": path}, "owed", "-json")
	var got []map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil || notes != "" {
		t.Fatalf("%v\n%s%s", err, out, notes)
	}
	at := func(d time.Duration) string { return paid.Add(d).Format(time.RFC3339) }
	debt := func(n int, tx string, lookups float64, refund bool, code, message, standing string, updated time.Duration) map[string]any {
		return map[string]any{
			"key": keyOf(n), "standing": standing, "updated": at(updated),
			"payer": payer, "amount": "5000", "asset": asset, "network": "eip155:8453", "transaction": tx, "request": lookup,
			"since": at(0), "lookups": lookups, "last_error": map[string]any{"code": code, "message": message},
			"refund_due": refund, "ask_until": at(24 * time.Hour),
		}
	}
	want := []map[string]any{
		debt(2, "0x02", 1, false, "dns_timeout", "No resolver answered.", "answer_owed", 0),
		debt(3, paidIn, 5, true, "upstream\x1b[31m", "m", "refund_due", time.Hour),
		{
			"key": keyOf(1), "standing": "in_doubt", "updated": at(0), "payer": payer, "amount": "5000", "asset": asset, "network": "eip155:8453",
			"transaction": "", "request": lookup, "since": at(0), "lookups": 0.0, "last_error": nil, "reason": "timeout", "refund_due": false,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

func TestNothingOwed(t *testing.T) {
	t.Parallel()
	path, _ := stored(t)
	env := map[string]string{"LEDGER_FILE": path}
	for flag, want := range map[string]string{"-json=false": "nothing is owed, and nothing in doubt, in " + path + "\n", "-json": "[]\n"} {
		if out, _ := operate(t, 0, env, "owed", flag); out != want {
			t.Errorf("printed %q, want %q", out, want)
		}
	}
}

// With LEDGER_TABLE set the same is done on DynamoDB.
func TestTable(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node for the DynamoDB server")
	server := testbed.StartDynamo(t)
	table := server.Table(t)
	store := server.Open(table)
	fill(newBuyer(t, store, time.Now().Add(-3*time.Hour)))
	env := map[string]string{
		"LEDGER_TABLE": table, "PAY_TO": payee, "AWS_ENDPOINT_URL_DYNAMODB": server.URL, "AWS_REGION": testbed.DynamoRegion,
		"AWS_ACCESS_KEY_ID": testbed.DynamoKeyID, "AWS_SECRET_ACCESS_KEY": testbed.DynamoSecret,
	}
	out, _ := operate(t, 0, env, "reconcile")
	prints(t, out, "ledger    DynamoDB table "+table+"\n", "in doubt   1 of 1 listed\n", "owed       2, refunds due: 1")
	if out, _ = operate(t, 0, env, "owed"); strings.Count(out, payer) != 3 {
		t.Errorf("printed:\n%s", out)
	}
	out, _ = operate(t, 0, env, "payer", payer)
	prints(t, out, "\n"+payer+" has paid 3 times ($0.015), got 1 answer (1 with 200), and is owed 2: ")
	env["LEDGER_TABLE"] = "missing"
	_, notes := operate(t, exitFailed, env, "owed")
	prints(t, notes, "list owed records")
}

func TestDollars(t *testing.T) {
	t.Parallel()
	for atomic, want := range map[string]string{
		"5000": "$0.005", "15000": "$0.015", "1": "$0.000001", "0": "$0.00", "1000000": "$1.00", "1230000": "$1.23",
		"123456789012345678901234567890": "$123456789012345678901234.56789", "": "-", "-5": "-5", "1e6": "1e6", "٣": "٣",
	} {
		if got := dollars(atomic); got != want {
			t.Errorf("dollars(%q) = %q, want %q", atomic, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"": "-", "0xab": "0xab", "a\tb\nc\x1b[0m\u202e\xff": "a b c?[0m?\ufffd", strings.Repeat("x", 201): strings.Repeat("x", 197) + "…",
	} {
		if got := plain(s); got != want {
			t.Errorf("plain(%q) = %q, want %q", s, got, want)
		}
	}
}
