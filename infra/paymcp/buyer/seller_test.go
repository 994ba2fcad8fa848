package buyer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	payee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	price = "5000"
)

// deed is how a request with a payment is handled.
type deed int

const (
	fine       deed = iota
	unreached       // the buyer cannot connect
	lostThere       // the request is lost on its way
	lostBack        // the request is handled, but the reply is lost
	later           // an error before any charge; the payment may be sent again
	muchLater       // like later, but the payment may be sent again only after an hour
	owing           // an error after the charge; the answer is owed, and the payment may be sent again
	refusal         // the facilitator refuses the payment, and nothing is charged
	uncertain       // the money moves, but the settlement is reported as failed
	broken          // the tool fails before any charge, and the error does not mention the payment
	killed          // like lostBack, and the buyer's process is killed
	killedThen      // like lostThere, and the buyer's process is killed
	deeds
)

// seller is a paid server with its own chain, which executes an authorization only once.
type seller struct {
	// keeps means that the server keeps records as this product does: it charges a purchase
	// once, even if several payments for the purchase arrive, and every error says whether the
	// payment was charged. Without keeps, the server behaves like the reference servers.
	keeps bool
	offer x402.PaymentRequired
	plan  func() deed
	now   func() time.Time

	mu     sync.Mutex
	moved  map[string]time.Time // the time of each transfer, by nonce
	paid   map[string]string    // the nonce that paid for a purchase, by the purchase's key
	owes   map[string]int       // how many more requests a purchase needs before it is answered, by the purchase's key
	quotes int
	sent   []string // the nonces of the payments that arrived, in order
}

func newSeller(keeps bool) *seller {
	terms := x402.USDC()
	terms.PayTo = payee
	s := &seller{keeps: keeps, plan: func() deed { return fine }, now: time.Now, moved: map[string]time.Time{}, paid: map[string]string{}, owes: map[string]int{}}
	s.offer = x402.PaymentRequired{X402Version: x402.Version, Resource: x402.Resource{URL: "https://api.example.com/mcp"}, Accepts: []x402.Requirements{terms.Requirements(price)}}
	if keeps {
		s.offer.Extensions = map[string]json.RawMessage{
			x402.ExtensionToken:      json.RawMessage(`{"info":{"token":"t"}}`),
			x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false}}`),
		}
	}
	return s
}

// errKilled is the value of a panic that stands for the kill of a process.
var errKilled = errors.New("the process is killed")

var errLost = errors.New("the connection was reset")

// Call implements buyer.Upstream.
func (s *seller) Call(ctx context.Context, q buyer.Request) (buyer.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	payment, paid := q.Meta[mcp.KeyPayment].(json.RawMessage)
	if !paid {
		s.quotes++
		return s.asks("Payment required", nil), nil
	}
	var p bill.Signed
	if err := json.Unmarshal(payment, &p); err != nil {
		return buyer.Reply{}, err
	}
	a := p.Payload.Authorization
	s.sent = append(s.sent, a.Nonce)
	d := s.plan()
	switch d {
	case unreached:
		return buyer.Reply{}, &buyer.NotSent{Cause: errors.New("connection refused")}
	case lostThere:
		return buyer.Reply{}, errLost
	case killedThen:
		panic(errKilled)
	}
	reply := s.serve(q, a, d)
	switch d {
	case lostBack:
		return buyer.Reply{}, errLost
	case killed:
		panic(errKilled)
	}
	return reply, nil
}

// serve answers a request that carries a payment. A seller that keeps records answers by
// serveKept.
func (s *seller) serve(q buyer.Request, a x402.Authorization, d deed) buyer.Reply {
	key, _ := q.Meta[mcp.KeyPurchase].(string)
	until, _ := strconv.ParseInt(a.ValidBefore, 10, 64)
	expired := s.now().Unix() > until
	_, used := s.moved[a.Nonce]
	if s.keeps {
		return s.serveKept(q, a, key, expired, d)
	}
	switch {
	case expired:
		return s.asks("invalid_exact_evm_payload_authorization_valid_before", nil)
	case used:
		return s.asks("invalid_exact_evm_nonce_already_used", nil)
	case d == refusal || d == later || d == muchLater || d == owing:
		return s.asks("insufficient_funds", nil)
	case d == broken:
		return failed("Internal Server Error")
	case d == uncertain:
		s.moved[a.Nonce] = s.now()
		return withFailure(s.asks("settlement failed", nil), len(s.moved)%2 == 0)
	}
	s.moved[a.Nonce] = s.now()
	return answer(q, a.Nonce)
}

// serveKept answers as a server that keeps records does.
func (s *seller) serveKept(q buyer.Request, a x402.Authorization, key string, expired bool, d deed) buyer.Reply {
	if s.paid[key] == "" {
		switch {
		case expired:
			return s.asks("authorization.validBefore is past", new(false))
		case d == refusal:
			return s.asks("insufficient_funds", new(false))
		case d == later:
			return failed(`{"error":{"code":"overloaded","message":"Later.","charged":false,"retryable":true,"retry_after":1}}`)
		case d == muchLater:
			return failed(`{"error":{"code":"overloaded","message":"Later.","charged":false,"retryable":true,"retry_after":3600}}`)
		case d == broken:
			return failed(`{"error":{"code":"internal_error","message":"Oh.","charged":null,"retryable":true,"retry_after":1}}`)
		}
		s.moved[a.Nonce], s.paid[key] = s.now(), a.Nonce
		if d == owing || d == uncertain {
			s.owes[key] = 2
		}
	}
	if s.owes[key] > 0 {
		s.owes[key]--
		return failed(`{"error":{"code":"dns_timeout","message":"It took too long.","charged":true,"retryable":true,"retry_after":10}}`)
	}
	return answer(q, s.paid[key])
}

func answer(q buyer.Request, nonce string) buyer.Reply {
	return buyer.Reply{
		Content: content("the answer to " + string(q.Arguments)),
		Meta:    map[string]json.RawMessage{mcp.KeyResponse: json.RawMessage(fmt.Sprintf(`{"success":true,"transaction":%q,"network":"eip155:8453"}`, nonce))},
	}
}

// withFailure adds a failed settlement to a refusal. The settlement is in _meta, as the
// specification says, or, if inside is set, a member of the offer, as in the Python package.
func withFailure(r buyer.Reply, inside bool) buyer.Reply {
	const failure = `{"success":false,"errorReason":"unexpected_settle_error","transaction":"","network":"eip155:8453"}`
	if !inside {
		r.Meta = map[string]json.RawMessage{mcp.KeyResponse: json.RawMessage(failure)}
		return r
	}
	r.Content = content(strings.Replace(r.Text(), "{", `{"`+mcp.KeyResponse+`":`+failure+`,`, 1))
	r.Structured = nil
	return r
}

func failed(text string) buyer.Reply { return buyer.Reply{IsError: true, Content: content(text)} }

// asks returns a reply that asks for a payment.
func (s *seller) asks(why string, charged *bool) buyer.Reply {
	o := s.offer
	o.Error = why
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	r := buyer.Reply{IsError: true, Content: content(string(text)), Structured: text}
	if charged != nil {
		r.Meta = map[string]json.RawMessage{"hostfacts/charged": json.RawMessage(strconv.FormatBool(*charged))}
	}
	return r
}

func content(text string) json.RawMessage {
	raw, err := json.Marshal([]map[string]string{{"type": "text", "text": text}})
	if err != nil {
		panic(err)
	}
	return raw
}

// transfers returns how many transfers have moved money.
func (s *seller) transfers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.moved)
}

// play plans how the next requests are handled. Requests after those succeed.
func (s *seller) play(next ...deed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = func() deed {
		if len(next) == 0 {
			return fine
		}
		d := next[0]
		next = next[1:]
		return d
	}
}

// chance plans at random how requests are handled. About half of them succeed.
func (s *seller) chance(r *rand.Rand) {
	s.plan = func() deed {
		if r.IntN(2) == 0 {
			return fine
		}
		return deed(r.IntN(int(deeds)))
	}
}

// Find implements x402.Evidence. It answers from the seller's chain.
func (s *seller) Find(_ context.Context, q x402.Question) x402.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.moved[fmt.Sprintf("0x%x", q.Nonce)]; used {
		return x402.Finding{Fate: x402.Paid, Transaction: "0xfeed"}
	}
	if s.now().After(q.ValidBefore) {
		return x402.Finding{Fate: x402.NeverPaid}
	}
	return x402.Finding{Fate: x402.StillOpen}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
