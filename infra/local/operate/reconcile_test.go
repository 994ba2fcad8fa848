package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// TestPrintSummary prints the summary of a reconcile run that has read transfers from the
// chain. Each number of transfers must be printed with a description. The summary must also
// say that the chain was not read to its end.
func TestPrintSummary(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	order{out: &out}.printSummary(reconcile.Summary{Received: 15, Deposits: 1, Found: 2, Unasked: 3, Unmatched: 4, Unread: true}, true)
	if diff := cmp.Diff(`in doubt   0 of 0 listed
received   15 transfers since the last run
           1 not a payment: without a signed authorization, or below the cheapest price
           2 for a payment that was recorded as unpaid: the answer is owed now
           3 without a request: a refund is due
           4 too old to be recorded, or with a broken record: look for the answer by hand
           the chain could not be read to its end: the next run continues
owed       0, 0 of them for more than an hour, refunds due: 0 (make owed lists them)
`, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTable checks that the commands reconcile, owed and payer find the payments of a ledger in
// the DynamoDB table that LEDGER_TABLE names. If there is no such table, owed must fail.
func TestTable(t *testing.T) {
	t.Parallel()
	server := cloud.StartDynamo(t)
	table := server.Table(t)
	store := server.Open(table)
	fillFour(newBuyer(t, store, time.Now().Add(-3*time.Hour)))
	env := server.Settings(table)
	env["PAY_TO"] = payee
	out, _ := operate(t, 0, env, "reconcile")
	checkContains(t, out, "ledger    DynamoDB table "+table+"\n", "in doubt   1 of 1 listed\n", "owed       2, 2 of them for more than an hour, refunds due: 1")
	if out, _ = operate(t, 0, env, "owed"); strings.Count(out, payer) != 3 {
		t.Errorf("printed:\n%s", out)
	}
	out, _ = operate(t, 0, env, "payer", payer)
	checkContains(t, out, "\n"+payer+" has paid 3 times ($0.015), got 1 answer (1 with 200), and is owed 2: ")
	env["LEDGER_TABLE"] = "missing"
	_, notes := operate(t, exitFailed, env, "owed")
	checkContains(t, notes, "list owed records")
}

func TestDollars(t *testing.T) {
	t.Parallel()
	for atomic, want := range map[string]string{
		"5000": "$0.005", "15000": "$0.015", "1": "$0.000001", "0": "$0.00", "1000000": "$1.00", "1230000": "$1.23",
		"123456789012345678901234567890": "$123456789012345678901234.56789", "": "-", "-5": "-5", "1e6": "1e6", "٣": "٣",
	} {
		if got := formatDollars(atomic); got != want {
			t.Errorf("dollars(%q) = %q, want %q", atomic, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"": "-", "0xab": "0xab", "a\tb\nc\x1b[0m\u202e\xff": "a b c?[0m?\ufffd", strings.Repeat("x", 201): strings.Repeat("x", 197) + "…",
	} {
		if got := cellText(s); got != want {
			t.Errorf("plain(%q) = %q, want %q", s, got, want)
		}
	}
}
