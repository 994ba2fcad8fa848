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

// outcome is what happens to a request that carries a payment.
type outcome int

const (
	success                  outcome = iota
	notConnected                     // the buyer cannot connect
	requestLost                      // the request is lost on its way
	replyLost                        // the request is handled, but the reply is lost
	retryLater                       // an error before any charge; the payment may be sent again
	retryInAnHour                    // like retryLater, but the payment may be sent again only after an hour
	answerOwed                       // an error after the charge; the answer is owed, and the payment may be sent again
	paymentRefused                   // the facilitator refuses the payment, and nothing is charged
	settledButReportedFailed         // the money moves, but the settlement is reported as failed
	toolFailure                      // the tool fails before any charge, and the error does not mention the payment
	killedAfterServing               // like replyLost, and the buyer's process is killed
	killedBeforeServing              // like requestLost, and the buyer's process is killed
	outcomeCount
)

// seller is a paid server with its own chain, which executes an authorization only once.
type seller struct {
	// keepsRecords means that the server keeps records as this product does: it charges a
	// purchase once, even if several payments for the purchase arrive, and every error says
	// whether the payment was charged. Without keepsRecords, the server behaves like the
	// reference servers.
	keepsRecords bool
	offer        x402.PaymentRequired
	plan         func() outcome
	now          func() time.Time

	mu            sync.Mutex
	transferTimes map[string]time.Time // the time of each transfer, by nonce
	payingNonce   map[string]string    // the nonce that paid for a purchase, by the purchase's key
	owedRequests  map[string]int       // how many more requests a purchase needs before it is answered, by the purchase's key
	quotes        int
	sent          []string // the nonces of the payments that arrived, in order
}

func newSeller(keepsRecords bool) *seller {
	terms := x402.USDC()
	terms.PayTo = payee
	s := &seller{keepsRecords: keepsRecords, plan: func() outcome { return success }, now: time.Now, transferTimes: map[string]time.Time{}, payingNonce: map[string]string{}, owedRequests: map[string]int{}}
	s.offer = x402.PaymentRequired{X402Version: x402.Version, Resource: x402.Resource{URL: "https://api.example.com/mcp"}, Accepts: []x402.Requirements{terms.Requirements(price)}}
	if keepsRecords {
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
		return s.paymentRequired("Payment required", nil), nil
	}
	var p bill.Signed
	if err := json.Unmarshal(payment, &p); err != nil {
		return buyer.Reply{}, err
	}
	a := p.Payload.Authorization
	s.sent = append(s.sent, a.Nonce)
	d := s.plan()
	switch d {
	case notConnected:
		return buyer.Reply{}, &buyer.NotSent{Cause: errors.New("connection refused")}
	case requestLost:
		return buyer.Reply{}, errLost
	case killedBeforeServing:
		panic(errKilled)
	}
	reply := s.serve(q, a, d)
	switch d {
	case replyLost:
		return buyer.Reply{}, errLost
	case killedAfterServing:
		panic(errKilled)
	}
	return reply, nil
}

// serve answers a request that carries a payment. If the seller keeps records, serveKept
// answers instead.
func (s *seller) serve(q buyer.Request, a x402.Authorization, d outcome) buyer.Reply {
	key, _ := q.Meta[mcp.KeyPurchase].(string)
	until, _ := strconv.ParseInt(a.ValidBefore, 10, 64)
	expired := s.now().Unix() > until
	_, used := s.transferTimes[a.Nonce]
	if s.keepsRecords {
		return s.serveKept(q, a, key, expired, d)
	}
	switch {
	case expired:
		return s.paymentRequired("invalid_exact_evm_payload_authorization_valid_before", nil)
	case used:
		return s.paymentRequired("invalid_exact_evm_nonce_already_used", nil)
	case d == paymentRefused || d == retryLater || d == retryInAnHour || d == answerOwed:
		return s.paymentRequired("insufficient_funds", nil)
	case d == toolFailure:
		return errorReply("Internal Server Error")
	case d == settledButReportedFailed:
		s.transferTimes[a.Nonce] = s.now()
		return withFailure(s.paymentRequired("settlement failed", nil), len(s.transferTimes)%2 == 0)
	}
	s.transferTimes[a.Nonce] = s.now()
	return answer(q, a.Nonce)
}

// serveKept answers as a server that keeps records does.
func (s *seller) serveKept(q buyer.Request, a x402.Authorization, key string, expired bool, d outcome) buyer.Reply {
	if s.payingNonce[key] == "" {
		switch {
		case expired:
			return s.paymentRequired("authorization.validBefore is past", new(false))
		case d == paymentRefused:
			return s.paymentRequired("insufficient_funds", new(false))
		case d == retryLater:
			return errorReply(`{"error":{"code":"overloaded","message":"Later.","charged":false,"retryable":true,"retry_after":1}}`)
		case d == retryInAnHour:
			return errorReply(`{"error":{"code":"overloaded","message":"Later.","charged":false,"retryable":true,"retry_after":3600}}`)
		case d == toolFailure:
			return errorReply(`{"error":{"code":"internal_error","message":"Oh.","charged":null,"retryable":true,"retry_after":1}}`)
		}
		s.transferTimes[a.Nonce], s.payingNonce[key] = s.now(), a.Nonce
		if d == answerOwed || d == settledButReportedFailed {
			s.owedRequests[key] = 2
		}
	}
	if s.owedRequests[key] > 0 {
		s.owedRequests[key]--
		return errorReply(`{"error":{"code":"dns_timeout","message":"It took too long.","charged":true,"retryable":true,"retry_after":10}}`)
	}
	return answer(q, s.payingNonce[key])
}

func answer(q buyer.Request, nonce string) buyer.Reply {
	return buyer.Reply{
		Content: textContent("the answer to " + string(q.Arguments)),
		Meta:    map[string]json.RawMessage{mcp.KeyResponse: json.RawMessage(fmt.Sprintf(`{"success":true,"transaction":%q,"network":"eip155:8453"}`, nonce))},
	}
}

// withFailure adds a failed settlement to a refusal. If inside is false, the settlement is in
// _meta, as the specification says. Otherwise it is a member of the offer, as in the Python
// package.
func withFailure(r buyer.Reply, inside bool) buyer.Reply {
	const failure = `{"success":false,"errorReason":"unexpected_settle_error","transaction":"","network":"eip155:8453"}`
	if !inside {
		r.Meta = map[string]json.RawMessage{mcp.KeyResponse: json.RawMessage(failure)}
		return r
	}
	r.Content = textContent(strings.Replace(r.Text(), "{", `{"`+mcp.KeyResponse+`":`+failure+`,`, 1))
	r.Structured = nil
	return r
}

func errorReply(text string) buyer.Reply {
	return buyer.Reply{IsError: true, Content: textContent(text)}
}

// paymentRequired returns a reply that asks for a payment.
func (s *seller) paymentRequired(why string, charged *bool) buyer.Reply {
	o := s.offer
	o.Error = why
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	r := buyer.Reply{IsError: true, Content: textContent(string(text)), Structured: text}
	if charged != nil {
		r.Meta = map[string]json.RawMessage{"hostfacts/charged": json.RawMessage(strconv.FormatBool(*charged))}
	}
	return r
}

func textContent(text string) json.RawMessage {
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
	return len(s.transferTimes)
}

// planNext plans the outcomes of the next requests. All later requests succeed.
func (s *seller) planNext(next ...outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = func() outcome {
		if len(next) == 0 {
			return success
		}
		d := next[0]
		next = next[1:]
		return d
	}
}

// planAtRandom plans a random outcome for each request. About half of the requests succeed.
func (s *seller) planAtRandom(r *rand.Rand) {
	s.plan = func() outcome {
		if r.IntN(2) == 0 {
			return success
		}
		return outcome(r.IntN(int(outcomeCount)))
	}
}

// Find implements x402.Evidence. It answers from the seller's chain.
func (s *seller) Find(_ context.Context, q x402.Question) x402.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, used := s.transferTimes[fmt.Sprintf("0x%x", q.Nonce)]; used {
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
