package gameday

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

type sight struct {
	status int
	code   string // empty for an answer, and for one of the gateway's own
	// charged and retryable are as the body says: true, false, null, or empty.
	charged, retryable string
	wait               time.Duration // Retry-After
	request            string        // X-Request-Id, empty for one of the gateway's own
}

// String is one line of the report.
func (s sight) String() string {
	text := strconv.Itoa(s.status)
	switch {
	case s.code != "":
		text += " " + s.code
	case s.status >= http.StatusBadRequest:
		text += " (the gateway's own)"
	}
	if s.charged != "" {
		text += fmt.Sprintf(", charged %s, retryable %s", s.charged, s.retryable)
	}
	if s.wait > 0 {
		text += ", Retry-After"
	}
	return text
}

// answered says that the client has what was paid for.
func (s sight) answered() bool { return s.status == http.StatusOK }

// final says that sending the same signature again is of no use.
func (s sight) final() bool {
	return s.answered() || s.retryable == "false" || s.status == http.StatusPaymentRequired
}

func sightOf(r x402test.Reply) sight {
	s := sight{status: r.Status, wait: r.RetryAfter(), request: r.Header.Get("X-Request-Id")}
	var body struct {
		Code  string
		Error json.RawMessage // a text in a 402
	}
	var inner struct {
		Code               string
		Charged, Retryable json.RawMessage
	}
	if r.Status < http.StatusBadRequest || json.Unmarshal(r.Body, &body) != nil {
		return s
	}
	s.code = body.Code
	if json.Unmarshal(body.Error, &inner) == nil && inner.Code != "" {
		s.code, s.charged, s.retryable = inner.Code, string(inner.Charged), string(inner.Retryable)
	}
	return s
}

// payer has one signed payment for one request.
type payer struct {
	w              *world
	op             catalog.Operation
	client         *x402test.Client
	address        string // in lower case
	url, signature string
	seen           []sight
	broken         error // why nothing was seen
}

// newPayer makes a payer with a new wallet and a new name to ask about, and
// has the payment signed. The price is asked for without paying.
func (w *world) newPayer(op catalog.Operation, n int) *payer {
	w.Helper()
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

// send sends the payment once and takes down what comes. When it returns, the
// log has what the functions say of it.
func (p *payer) send() sight {
	leave := p.w.turnstile.enter(p.address)
	defer leave()
	reply, err := p.client.Get(p.w.Context(), p.url, p.signature)
	if err != nil {
		p.broken = err
		return sight{}
	}
	s := sightOf(reply)
	p.seen = append(p.seen, s)
	if !p.w.series.says(p.w.Context(), s.request) {
		p.broken = fmt.Errorf("the log says nothing of request %s", s.request)
	}
	return s
}

// comeBack sends the payment again, as often as it is told to, until there is a
// final answer. One that the ledger did not take in time is owed still. For a second
// after a refusal, or a lookup that failed, the ledger would repeat what it said.
func (p *payer) comeBack() {
	if s := p.last(); s.status >= http.StatusBadRequest {
		p.pause(ledgerRepeats)
	}
	final := func(s sight) bool {
		_, redeemed := p.w.table.redeemed.Load(p.address)
		return s.final() && (!s.answered() || redeemed)
	}
	if !p.again(final) && p.broken == nil {
		p.broken = fmt.Errorf("no final answer after %s", 2*patience)
	}
}

// again sends the payment again until the payer sees what is enough, and says
// whether that came.
func (p *payer) again(enough func(sight) bool) bool {
	for begun := time.Now(); time.Since(begun) < 2*patience && p.broken == nil; {
		s := p.send()
		if p.broken != nil || enough(s) {
			return p.broken == nil
		}
		p.pause(max(s.wait, settleDown)) // as Retry-After says
	}
	return false
}

// pause waits, or until the test ends.
func (p *payer) pause(d time.Duration) {
	select {
	case <-p.w.Context().Done():
		p.broken = p.w.Context().Err()
	case <-time.After(d):
	}
}

func (p *payer) answered() bool {
	return slices.ContainsFunc(p.seen, sight.answered)
}

func (p *payer) last() sight {
	if len(p.seen) == 0 {
		return sight{}
	}
	return p.seen[len(p.seen)-1]
}
