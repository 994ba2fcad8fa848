package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// TestMarkLedger marks a table for two stacks. The payee of a mark may be replaced only with
// -force. Other commands, and readers of the whole table, must not see the marks. If no origin
// is typed, the mark must keep the origin that it has.
func TestMarkLedger(t *testing.T) {
	t.Parallel()
	server := cloud.StartDynamo(t)
	table := server.Table(t)
	env := server.Settings(table)
	env["PAY_TO"], env["STACK_NAME"] = payer, "shop"
	out, _ := operate(t, 0, env, "mark-ledger")
	checkContains(t, out, "ledger  DynamoDB table "+table+"\n", "stack   shop\n", "sold    never; if the stack has sold before, this table is not its ledger\n",
		"before  no mark of this stack\n", "now  marked for "+payer+"\n")

	fillFour(newBuyer(t, server.Open(table), time.Now().Add(-3*time.Hour)))
	out, _ = operate(t, 0, env, "mark-ledger")
	checkContains(t, out, "before  marked for "+payer+", ", " by "+localUser()+"\n", "now  marked for "+payer+"\n")

	env["PAY_TO"] = sender
	out, notes := operate(t, exitFailed, env, "mark-ledger")
	checkContains(t, out, "before  marked for "+payer+", ")
	checkContains(t, notes, "the table is marked for another payee; nothing was written", "changed to "+sender+": make mark-ledger FORCE=1\n")
	marked := func(stack, payee string) {
		t.Helper()
		m, err := testbed.Must(boot.ParseLocal(func(name string) string { return env[name] })).Ledger.LoadMark(t.Context(), stack)
		if err != nil || m == nil || m.Stack != stack || m.Payee != payee || m.By != localUser() || time.Since(m.Written) > time.Hour {
			t.Errorf("%s is marked %+v, %v; want %s", stack, m, err, payee)
		}
	}
	marked("shop", payer)
	env["STACK_NAME"] = "other"
	operate(t, 0, env, "mark-ledger")
	env["STACK_NAME"] = "shop"
	operate(t, 0, env, "mark-ledger", "-force")
	marked("shop", sender)
	marked("other", sender)

	env["STACK_NAME"] = "shop"
	origin := func() string {
		return testbed.Must(testbed.Must(boot.ParseLocal(func(name string) string { return env[name] })).Ledger.LoadMark(t.Context(), "shop")).Origin
	}
	_, notes = operate(t, exitFailed, env, "mark-ledger", "api.example.com")
	checkContains(t, notes, `ORIGIN="api.example.com" is not an origin`)
	operate(t, 0, env, "mark-ledger", "https://API.example.com/")
	operate(t, 0, env, "mark-ledger") // no origin is typed, so the mark keeps the one that it has
	if got := origin(); got != "https://api.example.com" {
		t.Errorf("the origin is %q", got)
	}

	env["PAY_TO"] = payee
	out, _ = operate(t, 0, env, "owed")
	if strings.Count(out, payer) != 3 {
		t.Errorf("owed printed:\n%s", out)
	}
	out, _ = operate(t, 0, env, "payer", payer)
	checkContains(t, out, "\n"+payer+" has paid 3 times")
	page, err := server.Open(table).Page(t.Context(), "", "", 100)
	if err != nil || len(page.Records) == 0 || len(page.Corrupt) > 0 {
		t.Errorf("the whole table: %d records, %q unreadable, %v", len(page.Records), page.Corrupt, err)
	}
}

// TestMarkLedgerCannot checks that mark-ledger fails and prints nothing but an error if a
// setting is missing, or if the server of the table cannot be reached.
func TestMarkLedgerCannot(t *testing.T) {
	t.Parallel()
	table := map[string]string{
		"LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "STACK_NAME": "shop", "PAY_TO": payer,
		"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1",
	}
	for missing, says := range map[string]string{
		"LEDGER_TABLE": "A ledger in a file needs no mark", "STACK_NAME": "STACK_NAME is not set", "PAY_TO": "PAY_TO is not set",
		"none": "dynamo: get item",
	} {
		value := table[missing]
		delete(table, missing)
		out, notes := operate(t, exitFailed, table, "mark-ledger")
		checkContains(t, notes, says)
		if out != "" {
			t.Errorf("without %s it printed:\n%s", missing, out)
		}
		table[missing] = value
	}
}
