// Package ledgertest has helpers for ledger tests: the conformance suite that every
// ledger.Store must pass, a store in memory, and a store that fails on demand.
package ledgertest

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

func noon() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }

// First returns a record as the first claim of a payment writes it: version 1, a new write id,
// and few other fields.
func First(key string) ledger.Payment {
	at := noon()
	return ledger.Payment{
		Row: ledger.Row{
			Key:       key,
			Version:   1,
			WriteID:   rand.Text(),
			CreatedAt: at,
			UpdatedAt: at,
			ExpiresAt: at.Add(72 * time.Hour),
		},
		State:       ledger.Settling,
		AuthDigest:  "a1",
		SigDigest:   "51",
		Request:     "f1",
		Terms:       json.RawMessage(`{}`),
		Attempt:     1,
		LeaseUntil:  at.Add(30 * time.Second),
		ValidBefore: at.Add(5 * time.Minute),
	}
}

// Next returns r with the next version and a new write id.
func Next(r ledger.Payment) ledger.Payment {
	r.Version++
	r.WriteID = rand.Text()
	return r
}

// Full returns a record of version 1 with a value in every field, nanoseconds in every time,
// and text that needs escaping.
func Full(key string) ledger.Payment {
	const text = "\x00 \t\r\n \"quoted\" <b>&amp;</b> \u2028 \u00e9 \U0001f4b8 back\\slash"
	r := First(key)
	at := noon().Add(123456789)
	r.State = ledger.Redeemed
	r.AuthDigest = "a" + text
	r.SigDigest = "s" + text
	r.Request = "r" + text
	r.Terms = json.RawMessage(`{"amount":"115792089237316195423570985008687907853269984665640564039457584007913129639935","n":1.50}`)
	r.Attempt = 3
	r.Doubt = true
	r.Transaction = "0xabc"
	r.Reason = text
	r.Payload = json.RawMessage(`{"signature":"0x00"}`)
	r.Token = text
	r.Purchase = "p" + text
	r.Owner = "o" + text
	r.Sent = true
	r.Refusals = 4
	r.BadSignature = true
	r.RefusedAt = at.Add(9 * time.Second)
	r.Asked = []string{"o" + text, text}
	r.RefusedBy = text
	r.Disproved = true
	r.Refund = "0xfed"
	r.NoNode = true
	r.Endpoint = "e" + text
	r.Receipt = &ledger.Receipt{Transaction: "0xdef", Payer: text, Network: "eip155:8453"}
	r.Lookups = 2
	r.Silent = 1
	r.MostLookups = 7
	r.LookupAt = at.Add(1 * time.Second)
	r.DueBack = ledger.DueLate
	r.LastFault = &ledger.Failure{
		Code:    "dns_timeout",
		Status:  504,
		Message: text,
		Silence: true,
		Pause:   time.Minute,
	}
	r.Answer = &ledger.Answer{
		Header:   map[string][]string{"Content-Type": {text}},
		Receipt:  text,
		Status:   404,
		Encoding: "gzip",
		Stored:   true,
		Owed:     []string{text},
		Body:     []byte("\x1f\x8b\x00\xff\xfe body"),
	}
	r.SendingBack = &ledger.SendingBack{At: at.Add(10 * time.Second), By: text}
	r.ClosedBy = "c" + text
	r.LeaseUntil = at.Add(2 * time.Second)
	r.ValidBefore = at.Add(3 * time.Second)
	r.CreatedAt = at.Add(4 * time.Second)
	r.UpdatedAt = at.Add(5 * time.Second)
	r.SettledAt = at.Add(6 * time.Second)
	r.ExpiresAt = at.Add(7 * time.Second)
	r.AnsweredAt = at.Add(8 * time.Second)
	r.AnswerValidUntil = at.Add(10 * time.Second)
	return r
}

// Others returns one record of each kind except payments. Each has version 1 and a value in
// every field.
func Others(key string) []ledger.Record {
	at := noon().Add(123456789)
	row := func(kind string) ledger.Row {
		return ledger.Row{
			Key:       key + kind,
			Version:   1,
			WriteID:   rand.Text(),
			CreatedAt: at,
			UpdatedAt: at.Add(1),
			ExpiresAt: at.Add(2),
		}
	}
	return []ledger.Record{
		ledger.Purchase{Row: row("purchase"), Owner: "owner", AuthDigest: "a1"},
		ledger.Cursor{Row: row("cursor"), Next: 1<<63 - 1, DebtsFrom: 1 << 63},
		ledger.Repayment{Row: row("repayment"), Debt: "debt"},
		ledger.Sold{Row: row("sold"), Payees: []ledger.Payee{{Address: "0x1", Until: at, Cheapest: "1"}, {Address: "0x2", Until: at.Add(3), Cheapest: "2"}}},
	}
}

// WithRow returns the record r with the given Row in place of its present one.
func WithRow(r ledger.Record, row ledger.Row) ledger.Record {
	switch r := r.(type) {
	case ledger.Payment:
		r.Row = row
		return r
	case ledger.Purchase:
		r.Row = row
		return r
	case ledger.Cursor:
		r.Row = row
		return r
	case ledger.Repayment:
		r.Row = row
		return r
	case ledger.Sold:
		r.Row = row
		return r
	}
	panic("ledgertest: an unknown kind of record")
}

// MustPut writes a record in place of the version before it. If the write does not succeed,
// MustPut fails the test.
func MustPut(t testing.TB, s ledger.Store, r ledger.Record) {
	t.Helper()
	head := r.Head()
	if held, err := s.Put(t.Context(), r); err != nil || held == nil || held.Head().WriteID != head.WriteID {
		t.Fatalf("Put of version %d of %q = %+v, %v; want success", head.Version, head.Key, held, err)
	}
}

// Holds fails the test unless a store returns a record as it was written.
func Holds(t testing.TB, s ledger.Store, want ledger.Record) {
	t.Helper()
	key := want.Head().Key
	got, err := s.Fetch(t.Context(), key)
	if err != nil || got == nil {
		t.Fatalf("Fetch of %q = %v, %v", key, got, err)
	}
	checkSame(t, want, got)
}

// Payment returns the record of a payment, or nil if there is none.
func Payment(t testing.TB, s ledger.Store, key string) *ledger.Payment {
	t.Helper()
	r, err := s.Fetch(t.Context(), key)
	must(t, err)
	if r == nil {
		return nil
	}
	p, ok := r.(ledger.Payment)
	if !ok {
		t.Fatalf("under %q is a %s", key, r.Kind())
	}
	return &p
}

func checkMissing(t *testing.T, s ledger.Store, key string) {
	t.Helper()
	if r, err := s.Fetch(t.Context(), key); r != nil || err != nil {
		t.Errorf("Fetch of %q = %+v, %v; want nothing", key, r, err)
	}
}

// checkSame fails the test if two records differ. An answer with a nil body equals one with an
// empty body.
func checkSame(t testing.TB, want, got ledger.Record) {
	t.Helper()
	key := want.Head().Key
	if w, g := bodyOf(want), bodyOf(got); !bytes.Equal(w, g) {
		t.Errorf("answer of %q: got %d bytes, want other %d bytes", key, len(g), len(w))
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ledger.Answer{}, "Body")); diff != "" {
		t.Errorf("record %q (-want +got):\n%s", key, diff)
	}
}

func bodyOf(r ledger.Record) []byte {
	if p, ok := r.(ledger.Payment); ok && p.Answer != nil {
		return p.Answer.Body
	}
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
