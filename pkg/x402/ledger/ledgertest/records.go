// Package ledgertest holds what tests of the ledger share: the conformance
// suite that every ledger.Store passes, a store in memory, and a store that
// fails on demand.
package ledgertest

import (
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// First returns a record as a first claim would leave it: version 1, a fresh
// write id, little else.
func First(key string) ledger.Record {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	return ledger.Record{
		Key: key, Version: 1, WriteID: rand.Text(), State: ledger.Settling,
		AuthDigest: "a1", SigDigest: "51", Request: "f1", Terms: json.RawMessage(`{}`),
		Attempt: 1, LeaseUntil: at.Add(30 * time.Second),
		ValidBefore: at.Add(5 * time.Minute), CreatedAt: at, UpdatedAt: at,
		ExpiresAt: at.Add(72 * time.Hour),
	}
}

// Next returns r with the next version and a fresh write id.
func Next(r ledger.Record) ledger.Record {
	r.Version++
	r.WriteID = rand.Text()
	return r
}

// Full returns a first record with a value in every field, nanoseconds in
// every time, and text that needs escaping.
func Full(key string) ledger.Record {
	const text = "\x00 \t\r\n \"quoted\" <b>&amp;</b> \u2028 \u00e9 \U0001f4b8 back\\slash"
	r := First(key)
	at := time.Date(2026, 11, 1, 12, 0, 0, 123456789, time.UTC)
	r.State = ledger.Redeemed
	r.AuthDigest, r.SigDigest, r.Request = "a"+text, "s"+text, "r"+text
	r.Terms = json.RawMessage(`{"amount":"115792089237316195423570985008687907853269984665640564039457584007913129639935","n":1.50}`)
	r.Attempt, r.Doubt, r.Transaction, r.Reason = 3, true, "0xabc", text
	r.Payload, r.Proof = json.RawMessage(`{"signature":"0x00"}`), &ledger.Proof{Token: text, Key: text}
	r.Purchase, r.Owner, r.Sent = "p"+text, "o"+text, true
	r.Refusals, r.RefusedAt = 4, at.Add(9*time.Second)
	r.Asked, r.RefusedBy = []string{"o" + text, text}, text
	r.Disproved, r.Refund, r.Block = true, "0xfed", 1<<63-1
	r.Receipt = &ledger.Receipt{Transaction: "0xdef", Payer: text, Network: "eip155:8453"}
	r.Lookups, r.LookupAt = 2, at.Add(1*time.Second)
	r.LastFault = &ledger.Failure{Code: "dns_timeout", Message: text}
	r.Answer = &ledger.Answer{Receipt: text, Status: 404, Encoding: "gzip", Stored: true, Owed: []string{text}, Body: []byte("\x1f\x8b\x00\xff\xfe body")}
	r.LeaseUntil, r.ValidBefore = at.Add(2*time.Second), at.Add(3*time.Second)
	r.CreatedAt, r.UpdatedAt = at.Add(4*time.Second), at.Add(5*time.Second)
	r.SettledAt, r.ExpiresAt = at.Add(6*time.Second), at.Add(7*time.Second)
	r.AnsweredAt = at.Add(8 * time.Second)
	return r
}
