package gameday

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// clientAnswer is an answer as a client sees it.
type clientAnswer struct {
	status        int
	testbed.Fault               // empty for a success, and for an error by the gateway itself
	wait          time.Duration // how long the client is asked to wait (Retry-After)
	request       string        // X-Request-Id; empty if the gateway itself answered
}

// String formats the answer for a line of the report.
func (s clientAnswer) String() string {
	switch {
	case s.Code != "":
		return fmt.Sprintf("%d %s, charged %s, retryable %s, Retry-After %t", s.status, s.Code, s.Charged, s.Retryable, s.wait > 0)
	case s.status >= http.StatusBadRequest:
		return fmt.Sprint(s.status, " (the gateway's own)")
	}
	return fmt.Sprint(s.status)
}

// isSuccess reports whether the client has got the answer that was paid for.
func (s clientAnswer) isSuccess() bool { return s.status == http.StatusOK }

// isFinal reports whether it is useless to send the same signature again.
func (s clientAnswer) isFinal() bool {
	return s.isSuccess() || s.Retryable == "false" || s.status == http.StatusPaymentRequired
}

// payer is a client with one signed payment for one request.
type payer struct {
	w              *world
	op             catalog.Operation
	client         *x402test.Client
	address        string // the wallet's address, in lower case
	url, signature string
	answers        []clientAnswer
	err            error // set if the payer got no answer or no final answer, or if the log has no entry of a request
}

// newPayer returns a payer who has signed a payment for a lookup of a new domain name.
func (w *world) newPayer(op catalog.Operation, n int) *payer {
	p := &payer{w: w, op: op, url: w.url + op.Path, client: testbed.NewClient(w, w.http)}
	p.address = strings.ToLower(p.client.Wallet.Address().String())
	if op.Kind != catalog.SmokeTest {
		p.url += "?" + url.Values{"domain": {fmt.Sprintf("%s%d-gameday.com", op.Slug, n)}}.Encode()
	}
	var err error
	if p.signature, err = p.client.Sign(w.Context(), p.url); err != nil {
		w.Fatalf("%s: %v", op.Slug, err)
	}
	return p
}

// send sends the payment once, records the answer, and waits until the log contains the id of
// the request.
func (p *payer) send() clientAnswer {
	leave := p.w.turnstile.enter(p.address)
	defer leave()
	reply, err := p.client.Get(p.w.Context(), p.url, p.signature)
	if err != nil {
		p.err = err
		return clientAnswer{}
	}
	s := clientAnswer{reply.Status, testbed.FaultOf(reply), reply.RetryAfter(), reply.Header.Get("X-Request-Id")}
	p.answers = append(p.answers, s)
	if !p.w.series.waitForText(p.w.Context(), s.request) {
		p.err = fmt.Errorf("the log says nothing of request %s", s.request)
	}
	return s
}

// comeBack sends the payment again until there is a final answer. A successful answer is final
// once the ledger has recorded it. For a second after a refusal or a failed lookup, the ledger
// repeats its last answer, so comeBack waits before it sends.
func (p *payer) comeBack() {
	if s := p.lastAnswer(); s.status >= http.StatusBadRequest {
		p.pause(repeatDelay)
	}
	for begun := time.Now(); time.Since(begun) < 2*patience; {
		s := p.send()
		_, redeemed := p.w.table.redeemedPayers.Load(p.address)
		if p.err != nil || s.isFinal() && (!s.isSuccess() || redeemed) {
			return
		}
		p.pause(max(s.wait, settleDelay)) // s.wait is from Retry-After
	}
	p.err = fmt.Errorf("no final answer after %s", 2*patience)
}

// pause waits for d, or until the test ends.
func (p *payer) pause(d time.Duration) {
	select {
	case <-p.w.Context().Done():
		p.err = p.w.Context().Err()
	case <-time.After(d):
	}
}

// hasAnswer reports whether the payer has got the answer that was paid for.
func (p *payer) hasAnswer() bool {
	return slices.ContainsFunc(p.answers, clientAnswer.isSuccess)
}

// lastAnswer returns the last answer that the payer has seen.
func (p *payer) lastAnswer() clientAnswer {
	if len(p.answers) == 0 {
		return clientAnswer{}
	}
	return p.answers[len(p.answers)-1]
}
