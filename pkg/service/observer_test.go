package service_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// calldata is what transferWithAuthorization(from,to,value,validAfter,validBefore,nonce,v,r,s)
// puts on a public chain.
type calldata struct {
	from, to, value, validAfter, validBefore, nonce string
	v                                               byte
	r, s                                            string
}

func published(t *testing.T, header string) calldata {
	t.Helper()
	raw := must(base64.StdEncoding.DecodeString(header))
	var p x402.Payload
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	a, sig := p.Payload.Authorization, strings.TrimPrefix(p.Payload.Signature, "0x")
	var v byte
	fmt.Sscanf(sig[128:], "%02x", &v)
	return calldata{a.From, a.To, a.Value, a.ValidAfter, a.ValidBefore, a.Nonce, v, sig[:64], sig[64:128]}
}

// header is made by somebody who has the chain and our public offer, and no key.
func (c calldata) header(t *testing.T, s *testService) string {
	t.Helper()
	offer, err := s.Challenge(t.Context(), s.url+"/v1/tools/dns")
	if err != nil {
		t.Fatal(err)
	}
	accepted, _ := json.Marshal(offer.Accepts[0])
	h, err := x402.EncodeHeader(x402.Payload{
		X402Version: 2, Resource: &offer.Resource, Accepted: accepted, Extensions: offer.Extensions,
		Payload: x402.ExactPayload{
			Signature:     fmt.Sprintf("0x%s%s%02x", c.r, c.s, c.v),
			Authorization: x402.Authorization{From: c.from, To: c.to, Value: c.value, ValidAfter: c.validAfter, ValidBefore: c.validBefore, Nonce: c.nonce},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A settlement publishes the signature. A copy of it does not show which domain the
// payer asked about, and gives no access to the answer.
func TestObserverReadsNothing(t *testing.T) {
	s := newService(t, 0, 50)
	reply, header, err := s.Buy(t.Context(), s.dns("secret-merger.com"))
	if err != nil || reply.Status != 200 {
		t.Fatal(reply.Status, err)
	}
	copied := published(t, header).header(t, s)
	for _, guess := range []string{"apple.com", "google.com", "secret-merger.com", "example.org"} {
		r, err := s.Get(t.Context(), s.dns(guess), copied)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status == http.StatusOK {
			t.Errorf("without the key: payer %s asked about %s, and here is the answer that was paid for: %s", published(t, header).from, guess, r.Body)
		}
	}
}

// A copy does not use up the lookups of an owed answer either.
func TestObserverUsesNoLookups(t *testing.T) {
	var skew atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	var n atomic.Int64
	memory := newService(t, 0, 0).store
	s := newServiceWith(t, 0, 50, func(d *parts) {
		d.Now = now
		d.Ledger = ledger.New(memory, now, func() string { return fmt.Sprint("w", n.Add(1)) })
	})
	s.resolver = func() (dns.Result, error) { return dns.Result{}, fault.New(fault.UpstreamUnavailable, nil) }
	r, header, err := s.Buy(t.Context(), s.dns("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	copied := published(t, header).header(t, s)
	for _, seconds := range []int64{2, 11, 61, 601} {
		skew.Add(seconds * int64(time.Second))
		r, err = s.Get(t.Context(), s.dns("example.com"), copied)
		if err != nil {
			t.Fatal(err)
		}
	}
	s.resolver = nil // the resolvers are well again
	skew.Add(int64(time.Hour))
	r, err = s.Get(t.Context(), s.dns("example.com"), header)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != 200 {
		t.Errorf("the payer's owed lookups were used up by a stranger: %d", r.Status)
	}
}

// named adds a payment-identifier to what is sent.
func named(t *testing.T, extensions map[string]json.RawMessage, id string) map[string]json.RawMessage {
	t.Helper()
	out := map[string]json.RawMessage{}
	for k, v := range extensions {
		out[k] = v
	}
	var e map[string]any
	if err := json.Unmarshal(out["payment-identifier"], &e); err != nil {
		t.Fatal(err)
	}
	e["info"].(map[string]any)["id"] = id
	out["payment-identifier"], _ = json.Marshal(e)
	return out
}

// An observer's copy does not use up an identifier that the payer may use for the
// next payment either.
func TestObserverTakesNoIdentifier(t *testing.T) {
	s := newService(t, 0, 50)
	_, header, err := s.Buy(t.Context(), s.dns("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	const id = "order-2026-0000000002" // the payer's next
	raw, _ := base64.StdEncoding.DecodeString(published(t, header).header(t, s))
	var p x402.Payload
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	p.Extensions = named(t, p.Extensions, id)
	copied, _ := x402.EncodeHeader(p)
	r, err := s.Get(t.Context(), s.dns("any.example.org"), copied) // the URL need not be known
	if err != nil {
		t.Fatal(err)
	}

	offer, err := s.Challenge(t.Context(), s.dns("example.com"))
	if err != nil {
		t.Fatal(err)
	}
	draft, err := s.Wallet.Draft(offer, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	draft.Payload.Extensions = named(t, draft.Payload.Extensions, id)
	mine, err := s.Wallet.Seal(draft)
	if err != nil {
		t.Fatal(err)
	}
	r, err = s.Get(t.Context(), s.dns("example.com"), mine)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != 200 {
		t.Errorf("the payer's own new payment under %s: %d", id, r.Status)
	}
}

// A copy shows nothing either when the answer has expired and the record has not.
func TestObserverLearnsNothingLater(t *testing.T) {
	var skew, n atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	memory := newService(t, 0, 0).store
	s := newServiceWith(t, 0, 50, func(d *parts) {
		d.Now = now
		d.Ledger = ledger.New(memory, now, func() string { return fmt.Sprint("w", n.Add(1)) })
	})
	_, header, err := s.Buy(t.Context(), s.dns("secret-merger.com"))
	if err != nil {
		t.Fatal(err)
	}
	copied := published(t, header).header(t, s)
	skew.Add(int64(48 * time.Hour))
	said := map[string]string{}
	for _, guess := range []string{"apple.com", "secret-merger.com"} {
		r, err := s.Get(t.Context(), s.dns(guess), copied)
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ Error string }
		json.Unmarshal(r.Body, &body)
		said[guess] = fmt.Sprint(r.Status, " ", body.Error)
	}
	if said["apple.com"] != said["secret-merger.com"] {
		t.Error("two days later a stranger can still tell which domain was asked about")
	}
}
