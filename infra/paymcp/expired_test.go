package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// storeSignedPurchase stores a purchase whose signature was made some time ago, as if the
// process that made the signature had been killed while it sent the signature.
func (w *world) storeSignedPurchase(ago time.Duration, tool, arguments string) {
	at := testbed.Must(parseTarget(w.url))
	kept := testbed.Must(purse.Open(filepath.Join(w.dir, folderFor(at)), time.Now, time.After))
	till := &till{program: &program{transport: newTransport()}, serverURL: at, purse: kept, upstream: newUpstream(w.url, newTransport())}
	q := buyer.Request{Tool: tool, Arguments: json.RawMessage(arguments), Meta: map[string]any{}}
	o := testbed.Must(buyer.Quote(w.t.Context(), till.upstream, q))
	way := testbed.Must(o.Choose())
	signed := testbed.Must(bill.Seal(testbed.Must(till.wallet()), o, way, time.Now().Add(-ago)))
	c, release, err := kept.Hold(w.t.Context(), at.String(), tool, []byte(arguments))
	testbed.Check(err)
	defer release()
	until := testbed.Must(x402.ParseUint256(signed.Payload.Authorization.ValidBefore))
	c.Key = "the-key-of-then"
	c.Payment = &purse.Payment{
		Payload: testbed.Must(json.Marshal(signed)), Keyed: true, Payer: signed.Payload.Authorization.From, PayTo: way.PayTo, Network: way.Network,
		Asset: way.Asset, Amount: way.Amount, Price: way.Price(), Signed: time.Now().Add(-ago), ValidBefore: time.Unix(until.Int64(), 0), Sending: true,
	}
	testbed.Check(kept.Keep(c))
}

// TestFoundAfterAKill checks a signature that may never have arrived, because the process was
// killed. The next process must send the signature again. If the signature has expired, the
// service says that nothing was charged, and the process must make another signature. Otherwise
// the old signature must pay.
func TestFoundAfterAKill(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ago      time.Duration
		payments int
	}{"expired": {time.Hour, 2}, "in time": {time.Minute, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.storeSignedPurchase(c.ago, "dns_lookup", `{"domain":"example.com"}`)
			if r := w.start().call(t, "dns_lookup", example); !isPlainAnswer(r) {
				t.Error(textOf(r))
			}
			w.checkCharged(1)
			if different, all := w.payments(); different != c.payments || all != c.payments {
				t.Errorf("%d different payments in %d messages", different, all)
			}
		})
	}
}
