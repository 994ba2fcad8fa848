package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
)

const (
	payer  = "0x857b06519E91e3A54538791bDbb0E22373e36b66"
	asset  = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	lookup = "GET /v1/tools/dns?domain=example.com&type=A"
)

func keyOf(n int) string {
	return ledger.Key("eip155:8453", asset, strings.ToLower(payer), fmt.Sprintf("0x%064x", n))
}

// buyer makes the payments of a test in a ledger, by a clock that the test moves.
type buyer struct {
	*ledger.Ledger
	t     *testing.T
	now   time.Time
	terms json.RawMessage
}

func newBuyer(t *testing.T, store ledger.Store, now time.Time) *buyer {
	t.Helper()
	terms, err := json.Marshal(x402.Terms{Network: "eip155:8453", Asset: asset, PayTo: payer, Name: "USD Coin", Version: "2"}.Requirements("5000"))
	if err != nil {
		t.Fatal(err)
	}
	b := &buyer{t: t, now: now, terms: terms}
	b.Ledger = ledger.New(store, func() time.Time { return b.now }, rand.Text)
	return b
}

func (b *buyer) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *buyer) claim(key string) *ledger.Hold {
	b.t.Helper()
	c, err := b.Claim(b.t.Context(), ledger.Payment{
		Key: key, AuthDigest: key, SigDigest: "s", Proof: ledger.Proof{Token: "t"}, Request: lookup, Terms: b.terms, ValidBefore: b.now.Add(5 * time.Minute),
	}, b.now.Add(30*time.Second))
	if err != nil || c.Standing != ledger.Held {
		b.t.Fatalf("claim %s: %+v, %v", key, c, err)
	}
	return c.Hold
}

// fill puts into a store one payment in doubt, one answer that can still be
// asked for, one refund, one that is answered, all begun at a time.
func fill(t *testing.T, store ledger.Store, now time.Time) {
	t.Helper()
	b := newBuyer(t, store, now)
	settled := func(n int) *ledger.Hold {
		h := b.claim(keyOf(n))
		b.must(h.Settled(t.Context(), ledger.Receipt{Transaction: fmt.Sprintf("0x%02x", n), Payer: payer, Network: "eip155:8453"}, true))
		return h
	}
	b.must(b.claim(keyOf(1)).Uncertain(t.Context(), "timeout", ""))
	b.must(settled(2).Release(t.Context(), ledger.Failure{Code: "dns_timeout", Message: "No resolver answered."}))
	b.must(settled(4).Redeem(t.Context(), ledger.Answer{Status: 200, Stored: true}))
	h := settled(3)
	for i := range ledger.MaxLookups {
		if i > 0 {
			b.now = b.now.Add(15 * time.Minute)
			h = b.claim(keyOf(3))
		}
		b.must(h.Release(t.Context(), ledger.Failure{Code: "upstream\x1b[31m", Message: "m"}))
	}
}

// stored is a ledger file with the records that fills have put into it, each
// given the same time, some hours ago.
func stored(t *testing.T, fills ...func(*testing.T, ledger.Store, time.Time)) (path string, paid time.Time) {
	t.Helper()
	paid = time.Now().Add(-3 * time.Hour).Truncate(time.Minute).UTC()
	path = filepath.Join(t.TempDir(), "ledger.db")
	s, err := embedded.Open(path, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, f := range fills {
		f(t, s, paid)
	}
	return path, paid
}

// command runs operate reconcile and checks its exit status.
func command(t *testing.T, code int, env map[string]string, args ...string) (out, notes string) {
	t.Helper()
	var o, n bytes.Buffer
	if got := run(t.Context(), append([]string{"reconcile"}, args...), func(name string) string { return env[name] }, &o, &n); got != code {
		t.Errorf("%q: exit status %d, want %d\n%s%s", args, got, code, &o, &n)
	}
	return o.String(), n.String()
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	path, _ := stored(t, fill)
	env := map[string]string{"LEDGER_FILE": path}
	out, notes := command(t, 0, env)
	want := "ledger    " + env["LEDGER_FILE"] + `
evidence  none (RPC_URL): nothing is decided, and nothing written
in doubt  1 of 1 listed
          1 no evidence
owed      2, refunds due: 1 (make owed lists them)
took      T
`
	out = regexp.MustCompile(`(?m)^took .*$`).ReplaceAllString(out, "took      T")
	if diff := cmp.Diff(want, out); diff != "" || notes != "" {
		t.Errorf("printed (-want +got):\n%s\n%s", diff, notes)
	}
}

// A node that does not answer decides nothing, and its key is not printed.
func TestReconcileNodeDown(t *testing.T) {
	t.Parallel()
	path, _ := stored(t, fill)
	out, notes := command(t, 0, map[string]string{"LEDGER_FILE": path, "RPC_URL": "http://127.0.0.1:1/v1/s3cr3t"})
	for _, want := range []string{
		"evidence  127.0.0.1:1\n", "1 no evidence\n", "received  0 transfers since the last run\n", "the chain could not be read to its end",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("printed, without %q:\n%s", want, out)
		}
	}
	if !strings.Contains(notes, "no evidence") || strings.Contains(out+notes, "s3cr3t") {
		t.Errorf("noted:\n%s", notes)
	}
}

// What has come in, in words.
func TestPrintReceived(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s    x402.Summary
		want string
	}{
		"nothing": {x402.Summary{Owed: 3}, "received  0 transfers since the last run\n"},
		"everything": {x402.Summary{Received: 15, Deposits: 1, Found: 2, Unasked: 3, Unmatched: 4, Unread: true}, `received  15 transfers since the last run
          1 no payment: not signed for, or of amount 0
          2 for a payment thought to be unpaid: the answer is owed now
          3 that nobody here asked an answer for: a refund is due
          4 too old to be recorded, or with a broken record: look for the answer by hand
          the chain could not be read to its end: the next run reads on
`},
	} {
		var out bytes.Buffer
		printReceived(&out, c.s)
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("%s: printed (-want +got):\n%s", name, diff)
		}
	}
}

func TestOwed(t *testing.T) {
	t.Parallel()
	path, paid := stored(t, fill)
	env := map[string]string{"LEDGER_FILE": path}
	out, notes := command(t, 0, env, "-owed")
	at := func(d time.Duration) string { return paid.Add(d).Format("2006-01-02 15:04Z") }
	row := func(cells ...string) string { return strings.Join(cells, "  ") }
	want := strings.Join([]string{
		"SINCE PAYER AMOUNT OWED LOOKUPS LAST ERROR REQUEST TRANSACTION",
		row(at(0), payer, "$0.005", "answer, until "+at(24*time.Hour), "1 of 5", "dns_timeout", lookup, "0x02"),
		row(at(0), payer, "$0.005", "refund", "5 of 5", "upstream?[31m", lookup, "0x03"),
		row(at(0), payer, "$0.005", "IN DOUBT: timeout", "0 of 5", "-", lookup, "-"),
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
		if at := strings.LastIndex(lines[i], []string{"TRANSACTION", "0x02", "0x03"}[i]); at != strings.Index(lines[0], "TRANSACTION") {
			t.Errorf("line %d: column at %d", i, at)
		}
	}
}

func TestOwedJSON(t *testing.T) {
	t.Parallel()
	path, paid := stored(t, fill)
	out, notes := command(t, 0, map[string]string{"LEDGER_FILE": path}, "-owed", "-json")
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
		debt(3, "0x03", 5, true, "upstream\x1b[31m", "m", "refund_due", time.Hour),
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
	if out, _ := command(t, 0, env, "-owed"); out != "nothing is owed, and nothing in doubt, in "+path+"\n" {
		t.Errorf("printed %q", out)
	}
	if out, _ := command(t, 0, env, "-owed", "-json"); out != "[]\n" {
		t.Errorf("printed %q", out)
	}
}

// verifyOnly skips what a quick run leaves out: go test -short needs Go alone.
func verifyOnly(t *testing.T, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in make verify: " + why)
	}
}

// With LEDGER_TABLE set the same is done on DynamoDB.
func TestTable(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node for the DynamoDB server")
	server := dynamotest.Start(t)
	table := server.Table(t)
	fill(t, dynamo.New(dynamo.Config{API: dynamotable.NewClient(server.ClientConfig()), Table: table, Timeout: time.Minute}), time.Now().Add(-3*time.Hour))
	env := map[string]string{
		"LEDGER_TABLE": table, "AWS_ENDPOINT_URL_DYNAMODB": server.URL, "AWS_REGION": dynamotest.Region,
		"AWS_ACCESS_KEY_ID": dynamotest.AccessKeyID, "AWS_SECRET_ACCESS_KEY": dynamotest.SecretAccessKey,
	}
	out, _ := command(t, 0, env)
	if !strings.Contains(out, "ledger    DynamoDB table "+table+"\n") || !strings.Contains(out, "in doubt  1 of 1 listed\n") || !strings.Contains(out, "owed      2, refunds due: 1") {
		t.Errorf("printed:\n%s", out)
	}
	if out, _ := command(t, 0, env, "-owed"); strings.Count(out, payer) != 3 {
		t.Errorf("printed:\n%s", out)
	}
	if out, _ := command(t, 0, env, "-payer", payer); !strings.Contains(out, "\n"+payer+" has paid 3 times ($0.015), got 1 answer, and is owed 2: ") {
		t.Errorf("printed:\n%s", out)
	}
	if out, _ := command(t, exitFailed, env, "-books", time.Now().UTC().Format(time.DateOnly)); !strings.Contains(out, "ledger  DynamoDB table "+table+", 4 records\n") {
		t.Errorf("printed:\n%s", out)
	}
	env["LEDGER_TABLE"] = "missing"
	if _, notes := command(t, exitFailed, env, "-owed"); !strings.Contains(notes, "list owed records") {
		t.Errorf("noted:\n%s", notes)
	}
}

func TestCannot(t *testing.T) {
	t.Parallel()
	busy := filepath.Join(t.TempDir(), "ledger.db")
	s, err := embedded.Open(busy, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	none := filepath.Join(t.TempDir(), "none.db")
	spoiled, _ := stored(t, fill)
	if err := os.Truncate(spoiled, 9000); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code int
		env  map[string]string
		args []string
		says string
	}{
		"the service runs":   {exitFailed, map[string]string{"LEDGER_FILE": busy}, nil, "If it is the service (make run), stop it first"},
		"there is no ledger": {exitFailed, map[string]string{"LEDGER_FILE": none}, []string{"-owed"}, "there is no ledger"},
		"a damaged ledger":   {exitFailed, map[string]string{"LEDGER_FILE": spoiled}, []string{"-owed"}, "the ledger file is damaged: " + spoiled},
		"a bad variable":     {exitFailed, map[string]string{"PAY_TO": "0x1", "RPC_URL": "x"}, nil, "2 fault(s)"},
		"an argument":        {exitUsage, nil, []string{"owed"}, "Usage of reconcile"},
		"a strange flag":     {exitUsage, nil, []string{"-all"}, "Usage of reconcile"},
		"JSON of what":       {exitUsage, nil, []string{"-json"}, "Usage of reconcile"},
		"two tools":          {exitUsage, nil, []string{"-owed", "-payer", payer}, "Usage of reconcile"},
		"JSON of a refund":   {exitUsage, nil, []string{"-refund", keyOf(1), "-json"}, "Usage of reconcile"},
		"closing what":       {exitUsage, nil, []string{"-transaction", "0x1"}, "Usage of reconcile"},
		"forcing what":       {exitUsage, nil, []string{"-refund", keyOf(1), "-force"}, "Usage of reconcile"},
		"no wallet":          {exitFailed, nil, []string{"-payer="}, "is no address"},
		"half a wallet":      {exitFailed, nil, []string{"-payer", payer[:41]}, "is no address"},
		"a name":             {exitFailed, nil, []string{"-payer", "vitalik.eth\x1b[31m"}, `"vitalik.eth\x1b[31m" is no address`},
		"no key":             {exitFailed, nil, []string{"-refund="}, "is no key of a payment"},
		"a purchase":         {exitFailed, nil, []string{"-refund", ledger.PurchaseKey("eip155:8453", "0xa", payer, "x")}, "is no key of a payment"},
		"half a key":         {exitFailed, nil, []string{"-refund", keyOf(1)[:163]}, "is no key of a payment"},
		"a key too long":     {exitFailed, nil, []string{"-refund", keyOf(1) + "|0x1"}, "is no key of a payment"},
		"books of what":      {exitFailed, nil, []string{"-books="}, "is no day"},
		"books of another":   {exitUsage, nil, []string{"-books", "2026-11-20", "-owed"}, "Usage of reconcile"},
		"no transaction":     {exitFailed, nil, []string{"-refund", keyOf(1), "-transaction="}, "is no transaction"},
		"half a transaction": {exitFailed, nil, []string{"-refund", keyOf(1), "-transaction", "0x12"}, "is no transaction"},
		"help":               {0, nil, []string{"-h"}, "Usage of reconcile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, notes := command(t, c.code, c.env, c.args...)
			if out != "" || !strings.Contains(notes, c.says) {
				t.Errorf("printed %q, noted %q; want %q", out, notes, c.says)
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
