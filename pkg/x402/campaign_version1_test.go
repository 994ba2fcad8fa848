package x402_test

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// runFirstVersion is one request to a process that still runs the first version of
// this code during a deploy. It writes a row without proof and purchase, sends, and
// writes its verdict, or dies. That version does not know purchases, so a second
// transfer for one purchase in which it took part is no violation.
func (c *actors) runFirstVersion(a *authorization) {
	p := c.process()
	p.kind, p.pay, p.path, p.signed = asFirstVersion, a, "GET /a", a.forms[form{c.w.ownKey, withNothing}]
	done := make(chan struct{})
	go func() {
		defer close(done) // Goexit runs it too
		ctx, cancel := context.WithTimeout(context.Background(), invocation)
		defer cancel()
		p.serveFirstVersion(ctx, c.f.offer.Required("").Accepts[0], c.ids())
	}()
	<-done
}

func (p *process) serveFirstVersion(ctx context.Context, terms x402.Requirements, id func() string) {
	raw, err := json.Marshal(terms)
	if err != nil {
		panic(err)
	}
	now := p.now()
	r := ledger.Record{
		Key: p.pay.key, Version: 1, WriteID: id(), State: ledger.Settling, AuthDigest: p.pay.digest,
		SigDigest: p.signed.digest, Request: p.path, Terms: raw, Attempt: 1, LeaseUntil: now.Add(minimumLease),
		ValidBefore: p.pay.validBefore, CreatedAt: now, UpdatedAt: now,
	}
	if old, err := p.Create(ctx, r); old != nil || err != nil {
		return
	}
	p.w.mu.Lock()
	p.w.observed("beside an older version")
	p.slot = slotHeld // slots are not modelled for the first version
	p.w.mu.Unlock()
	if time.Since(p.begun) > invocation-12*time.Second {
		return // it was frozen, and too little time is left to settle
	}
	payload := p.pay.payload
	payload.Signature = p.signed.signature
	bounded, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	s := p.Settle(bounded, x402.Payload{Payload: payload}, terms)
	r.Version, r.WriteID, r.LeaseUntil, r.UpdatedAt = 2, id(), time.Time{}, p.now()
	r.Reason = s.Reason
	switch s.Class {
	case x402.Moved:
		r.State, r.SettledAt, r.Transaction = ledger.Settled, p.now(), s.Transaction
		r.Receipt = &ledger.Receipt{Transaction: s.Transaction, Payer: p.pay.payload.Authorization.From, Network: terms.Network}
	case x402.Refused, x402.TurnedAway, x402.NotSent:
		r.State = ledger.Refused
	case x402.Unknown:
		r.State, r.Doubt = ledger.Uncertain, true
	}
	if r.State == ledger.Refused {
		r.ExpiresAt = r.ValidBefore.Add(35 * 24 * time.Hour)
	}
	_ = p.Replace(background(), r) // if this fails, the record is in doubt when its lease ends
}
