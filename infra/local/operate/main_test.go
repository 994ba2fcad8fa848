package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// TestCannot: what cannot be done is said before anything is done, and prints
// nothing. infra runs the drill of restore on a server that can restore.
func TestCannot(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none.db")
	spoiled, _ := stored(t, fill)
	if err := os.Truncate(spoiled, 9000); err != nil {
		t.Fatal(err)
	}
	type env = map[string]string
	table := env{"LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1"}
	const usage, programs, origin = "Usage of reconcile", "usage: operate reconcile|restore|smoke", "is no origin such as"
	for name, c := range map[string]struct {
		code int
		env  env
		line string
		says string
	}{
		"no command":          {exitUsage, nil, "", programs},
		"another command":     {exitUsage, nil, "settle", programs},
		"there is no ledger":  {exitFailed, env{"LEDGER_FILE": none}, "reconcile -owed", "there is no ledger"},
		"a damaged ledger":    {exitFailed, env{"LEDGER_FILE": spoiled}, "reconcile -owed", "the ledger file is damaged, or another version of this program wrote it"},
		"a bad variable":      {exitFailed, env{"PAY_TO": "0x1", "RPC_URL": "x"}, "reconcile", "2 fault(s)"},
		"no payee":            {exitFailed, table, "reconcile", "PAY_TO is not set"},
		"books of no payee":   {exitFailed, table, "reconcile -books 2026-11-20", "PAY_TO is not set"},
		"an argument":         {exitUsage, nil, "reconcile owed", usage},
		"a strange flag":      {exitUsage, nil, "reconcile -all", usage},
		"JSON of what":        {exitUsage, nil, "reconcile -json", usage},
		"two tools":           {exitUsage, nil, "reconcile -owed -payer " + payer, usage},
		"JSON of a refund":    {exitUsage, nil, "reconcile -refund " + keyOf(1) + " -json", usage},
		"closing what":        {exitUsage, nil, "reconcile -transaction 0x1", usage},
		"answered when":       {exitUsage, nil, "reconcile -answered " + keyOf(1), usage},
		"answered what":       {exitFailed, nil, "reconcile -answered x -transaction 0x1", "is no key of a payment"},
		"forcing what":        {exitUsage, nil, "reconcile -refund " + keyOf(1) + " -force", usage},
		"no wallet":           {exitFailed, nil, "reconcile -payer=", "is no address"},
		"half a wallet":       {exitFailed, nil, "reconcile -payer " + payer[:41], "is no address"},
		"a name":              {exitFailed, nil, "reconcile -payer vitalik.eth\x1b[31m", `"vitalik.eth\x1b[31m" is no address`},
		"no key":              {exitFailed, nil, "reconcile -refund=", "is no key of a payment"},
		"a purchase":          {exitFailed, nil, "reconcile -refund " + ledger.PurchaseKey("eip155:8453", "0xa", payer, "x"), "is no key of a payment"},
		"half a key":          {exitFailed, nil, "reconcile -refund " + keyOf(1)[:163], "is no key of a payment"},
		"a key too long":      {exitFailed, nil, "reconcile -refund " + keyOf(1) + "|0x1", "is no key of a payment"},
		"books of what":       {exitFailed, nil, "reconcile -books=", "is no day"},
		"books of another":    {exitUsage, nil, "reconcile -books 2026-11-20 -owed", usage},
		"no transaction":      {exitFailed, nil, "reconcile -refund " + keyOf(1) + " -transaction=", "is no transaction"},
		"half a transaction":  {exitFailed, nil, "reconcile -refund " + keyOf(1) + " -transaction 0x12", "is no transaction"},
		"help":                {0, nil, "reconcile -h", usage},
		"help with a restore": {0, nil, "restore -h", "-drill"},
		"a copy of no table":  {exitFailed, nil, "restore -to copy", "LEDGER_TABLE is not set"},
		"a copy of no name":   {exitFailed, table, "restore", "-to must name"},
		"a copy over it":      {exitFailed, table, "restore -to ledger", "-to must name"},
		"a copy at no time":   {exitFailed, table, "restore -to copy -at yesterday", "is no time such as"},
		"a copy, and more":    {exitFailed, table, "restore -to copy now", `"now" is not expected`},
		"a copy by nobody":    {exitFailed, table, "restore -to copy", "AWS_ACCESS_KEY_ID"},
		"no deployment":       {exitFailed, nil, "smoke", "usage: make smoke ORIGIN="},
		"two deployments":     {exitFailed, nil, "smoke https://a https://b", "usage: make smoke ORIGIN="},
		"a host":              {exitFailed, nil, "smoke api.example.com", origin},
		"a path":              {exitFailed, nil, "smoke https://api.example.com/v1", origin},
		"somebody's":          {exitFailed, nil, "smoke https://u:p@api.example.com", origin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, notes := operate(t, c.code, c.env, strings.Fields(c.line)...)
			if prints(t, notes, c.says); out != "" {
				t.Errorf("printed %q", out)
			}
		})
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("an empty ledger was made")
	}
}

// A stopped command says what it has seen, and that it is not everything.
func TestStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path, _ := stored(t, fill)
	var out, notes bytes.Buffer
	env := func(name string) string { return map[string]string{"LEDGER_FILE": path}[name] }
	if code := run(ctx, []string{"reconcile"}, env, &out, &notes); code != exitFailed || !strings.Contains(notes.String(), "context canceled") {
		t.Errorf("exit status %d\n%s%s", code, &out, &notes)
	}
}

// What /ready says is printed, and decides.
func TestSmoke(t *testing.T) {
	t.Parallel()
	const unseen = "The ledger's table was not looked at: LEDGER_TABLE names none.\n"
	for name, c := range map[string]struct {
		status     int
		body       string
		says, fail string
	}{
		"ready":          {200, `{"status":"ready","checks":{"ledger":{"status":"ok"},"chain":{"status":"warning","message":"no node"}}}`, "chain            warning no node\nledger           ok\n" + unseen, ""},
		"not ready":      {503, `{"status":"not_ready","checks":{"facilitator":{"status":"failing","code":"facilitator_unauthorized","message":"refused"}}}`, "facilitator      failing refused\n", "not ready: /ready answers 503"},
		"a gateway":      {500, `Internal Server Error`, "", "/ready answers 500, and not as this service does"},
		"for a terminal": {200, `{"checks":{"a\u001b[2J":{"status":"ok\u202e"}}}`, "a?[2J            ok?\n" + unseen, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/ready" {
					t.Errorf("it asks for %s", r.URL.Path)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer s.Close()
			code := 0
			if c.fail != "" {
				code = exitFailed
			}
			out, notes := operate(t, code, nil, "smoke", s.URL+"/")
			if rest, ok := strings.CutPrefix(notes, c.says); !ok || !strings.HasPrefix(rest, c.fail) || c.fail == "" && rest != "" || out != "" {
				t.Errorf("it prints %q and %q, want %q and %q", out, notes, c.says, c.fail)
			}
		})
	}
}
