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
	"time"

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
	table := env{"LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
	const usage, programs, origin = "usage: operate ", "usage: operate reconcile|owed|payer|refund|answered|books|restore|smoke", "is not an origin such as"
	for name, c := range map[string]struct {
		code int
		env  env
		line string
		says string
	}{
		"no command":          {exitUsage, nil, "", programs},
		"another command":     {exitUsage, nil, "settle", programs},
		"there is no ledger":  {exitFailed, env{"LEDGER_FILE": none}, "owed", "there is no ledger"},
		"a damaged ledger":    {exitFailed, env{"LEDGER_FILE": spoiled}, "owed", "the ledger file is damaged, or another version of this program wrote it"},
		"a bad variable":      {exitFailed, env{"PAY_TO": "0x1", "RPC_URL": "x"}, "reconcile", "2 fault(s)"},
		"no payee":            {exitFailed, table, "reconcile", "PAY_TO is not set"},
		"books of no payee":   {exitFailed, table, "books " + time.Now().UTC().Format(time.DateOnly), "PAY_TO is not set"},
		"an argument":         {exitUsage, nil, "reconcile owed", usage + "reconcile"},
		"a strange flag":      {exitUsage, nil, "owed -all", usage + "owed [-json]"},
		"JSON of what":        {exitUsage, nil, "reconcile -json", usage + "reconcile"},
		"JSON of a refund":    {exitUsage, nil, "refund -json " + keyOf(1), usage + "refund"},
		"answered when":       {exitUsage, nil, "answered " + keyOf(1), usage + "answered [-force] KEY TRANSACTION"},
		"answered what":       {exitFailed, nil, "answered x 0x1", "is not the key of a payment"},
		"no wallet":           {exitUsage, nil, "payer", usage + "payer [-json] WALLET"},
		"half a wallet":       {exitFailed, nil, "payer " + payer[:41], "is not an address"},
		"a name":              {exitFailed, nil, "payer vitalik.eth\x1b[31m", `"vitalik.eth\x1b[31m" is not an address`},
		"no key":              {exitUsage, nil, "refund", usage + "refund [-force] KEY [TRANSACTION]"},
		"a purchase":          {exitFailed, nil, "refund " + ledger.PurchaseKey("eip155:8453", "0xa", payer, "x"), "is not the key of a payment"},
		"half a key":          {exitFailed, nil, "refund " + keyOf(1)[:163], "is not the key of a payment"},
		"a key too long":      {exitFailed, nil, "refund " + keyOf(1) + "|0x1", "is not the key of a payment"},
		"no day":              {exitUsage, nil, "books", usage + "books [-json] DAY"},
		"books of what":       {exitFailed, nil, "books x", "is not a day"},
		"half a transaction":  {exitFailed, nil, "refund " + keyOf(1) + " 0x12", "is not a transaction"},
		"help":                {0, nil, "owed -h", usage + "owed [-json]"},
		"help with a restore": {0, nil, "restore -h", "-drill"},
		"a copy of no table":  {exitFailed, nil, "restore -to copy", "LEDGER_TABLE is not set"},
		"a copy of no name":   {exitFailed, table, "restore", "-to must name"},
		"a copy over it":      {exitFailed, table, "restore -to ledger", "-to must name"},
		"a copy at no time":   {exitFailed, table, "restore -to copy -at yesterday", "is not a time such as"},
		"a copy, and more":    {exitUsage, table, "restore -to copy now", usage + "restore"},
		"a copy by nobody":    {exitFailed, env{"LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1"}, "restore -to copy", "AWS_ACCESS_KEY_ID"},
		"no deployment":       {exitUsage, nil, "smoke", usage + "smoke ORIGIN"},
		"two deployments":     {exitUsage, nil, "smoke https://a https://b", usage + "smoke ORIGIN"},
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
