package service_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// copyOf is what somebody can make of a payment who has no key: of what
// transferWithAuthorization puts on a public chain, and of our public offer.
func (s *shop) copyOf(header string) (p x402.Payload) {
	s.Helper()
	if err := json.Unmarshal(plain(header).(json.RawMessage), &p); err != nil {
		s.Fatal(err)
	}
	offer := s.offer("/v1/tools/dns")
	p.Resource, p.Accepted, p.Extensions = &offer.Resource, must(json.Marshal(offer.Accepts[0])), offer.Extensions
	return p
}

// named adds a payment-identifier to what is sent.
func named(extensions map[string]json.RawMessage, id string) map[string]json.RawMessage {
	var e struct {
		Info   map[string]any `json:"info"`
		Schema any            `json:"schema"`
	}
	if err := json.Unmarshal(extensions[x402.ExtensionIdentifier], &e); err != nil {
		panic(err)
	}
	e.Info["id"] = id
	out := maps.Clone(extensions)
	out[x402.ExtensionIdentifier] = must(json.Marshal(e))
	return out
}

// A settlement publishes the signature. A copy of it does not show which domain the
// payer asked about, gives no access to the answer, does not use up the lookups of
// an owed answer, nor an identifier that the payer may use for the next payment, and
// shows nothing either when the answer has expired and the record has not.
func TestObserver(t *testing.T) {
	t.Parallel()
	const asked, id = "secret-merger.com", "order-2026-0000000002"
	var skew atomic.Int64
	s := newShop(t, slots(50), func(p *parts) {
		p.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	})
	guess := func(payment x402.Payload) {
		t.Helper()
		header, said := must(x402.EncodeHeader(payment)), map[string]bool{}
		for _, domain := range []string{"apple.com", "google.com", asked, "example.org"} {
			r := s.get(pathOf(domain), header)
			said[codeOf(r)+" "+must(r.Required()).Error] = true
			if r.Status != http.StatusPaymentRequired {
				t.Errorf("without the key: a payer asked about %s, and here is the answer: %d %s", domain, r.Status, r.Body)
			}
		}
		same(t, "answers that tell which domain was asked about", len(said), 1)
	}
	w := way{shop: s}
	_, header := s.buy(dnsPath)
	copied := s.copyOf(header)
	copied.Extensions = named(copied.Extensions, id)
	guess(copied)
	offer := s.offer(dnsPath)
	offer.Extensions = named(offer.Extensions, id)
	w.expect(w.ask("example.com", s.pay(offer)), 200, "", "")

	s.resolver = failsWith(fault.New(fault.UpstreamUnavailable, nil))
	header = w.sign(asked)
	w.expect(w.ask(asked, header), 503, "upstream_unavailable", "true")
	for _, wait := range []time.Duration{2 * time.Second, 11 * time.Second, 61 * time.Second, 601 * time.Second} {
		skew.Add(int64(wait))
		guess(s.copyOf(header))
	}
	s.resolver = nil // the resolvers are well again
	skew.Add(int64(time.Hour))
	w.expect(w.ask(asked, header), 200, "", "")
	guess(s.copyOf(header))
	skew.Add(int64(48 * time.Hour))
	guess(s.copyOf(header))
}
