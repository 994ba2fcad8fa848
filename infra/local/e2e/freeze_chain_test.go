package e2e

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestFreezeWithEvidence freezes a warm function that keeps a connection to its
// Ethereum node, and spoils the connection meanwhile. The next request needs
// the chain's word on a payment in doubt, and gets it at once.
func TestFreezeWithEvidence(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs the built functions, and Node for the DynamoDB server")
	node := chaintest.Start(t)
	rpc := newLine(t, node.URL)
	f := newFreezerOn(t, "http://"+rpc.addr)
	for _, c := range []struct {
		name  string
		sleep time.Duration
		spoil func(*strand)
	}{
		{"nothing happens", 0, func(*strand) {}},
		{"the node closes", 0, func(w *strand) { w.end(false) }},
		{"the node resets", 0, func(w *strand) { w.end(true) }},
		{"the node vanishes during a long sleep", idleLimit, (*strand).vanish},
	} {
		t.Run(c.name, func(t *testing.T) {
			fairly(t, func(tb testing.TB, p *pace) {
				f.quiet()
				// The facilitator fails twice without doing anything: what happens,
				// happens on the chain.
				begun := time.Now()
				defer func() { p.took(time.Since(begun) - c.sleep) }()
				r := f.inDoubt(tb, c.name, node)
				idle := rpc.open()
				if len(idle) == 0 {
					tb.Error("no connection to the node is kept")
				}
				before := rpc.dials()
				for _, w := range idle {
					c.spoil(w)
				}
				receipt := node.Transfer(tb, signedBy(tb, r.header)) // by somebody else
				if c.sleep > 0 {
					r.pause(c.sleep)
				}
				e := r.send(r.path)
				w := result(r.fill(healthy().body))
				check(tb, e, w, subject{op: catalog.DNS(), origin: f.d.origin, terms: f.lab.terms, payer: r.wallet.Address().Checksum(), hash: receipt.Hash})
				if bytes, used := swallowed(idle); used != 0 {
					tb.Errorf("%d bytes were sent into %d connections that had idled for too long", bytes, used)
				}
				if fresh := rpc.dials() - before; c.name != "nothing happens" && fresh == 0 {
					tb.Error("no new connection to the node")
				}
				is(tb, "settlements", f.lab.settles(r.payer), 2)
				is(tb, "transfers in play money", len(f.lab.facilitator.Moved(r.payer)), 0)
				is(tb, "lookups", f.lab.dns.lookups(r.name), 1)
				f.await(tb)
				is(tb, "processes", f.host.Stats("DnsFunction").Spawned, 1)
			})
		})
	}
}

// inDoubt is a payment of which nobody knows whether it moved money: the
// facilitator has failed, and the chain says that it still can. The function is
// frozen when it returns.
func (f *freezer) inDoubt(t testing.TB, name string, node *chaintest.Node) *run {
	t.Helper()
	r := &run{TB: t, lab: f.lab, d: f.d, client: newClient(), id: fmt.Sprint("doubt", caseIDs.Add(1), strings.ReplaceAll(name, " ", ""))}
	t.Cleanup(r.client.CloseIdleConnections)
	r.wallet, r.payer = f.lab.wallet(t, x402test.FailBefore, x402test.FailBefore)
	node.Mint(t, r.wallet.Address(), dnsPrice(t))
	r.sign(r.fill(lookup("{healthy}", "A")), nil, nil)
	f.await(t)
	r.check(r.send(r.path), fails(fault.SettlementUncertain))
	f.await(t)
	return r
}

// signedBy is the authorization that a PAYMENT-SIGNATURE carries.
func signedBy(t testing.TB, header string) chaintest.Signed {
	t.Helper()
	var p x402.Payload
	if err := decodeHeader(header, &p); err != nil {
		t.Fatal(err)
	}
	signature, err := hex.DecodeString(strings.TrimPrefix(p.Payload.Signature, "0x"))
	if err != nil {
		t.Fatal(err)
	}
	return chaintest.Signed{Authorization: p.Payload.Authorization, Signature: signature}
}
