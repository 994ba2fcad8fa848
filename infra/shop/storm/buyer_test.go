package storm_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const days = 3 // the number of days in every report

// purchase is one thing that one wallet buys, even if its clients sign several payments for it.
type purchase struct {
	number    int
	city      string
	post      bool
	key       string // Idempotency-Key; empty means none
	signsAll  bool   // whether the clients sign a new payment for each try
	clients   int    // how many clients try to buy this thing at once
	comesBack bool   // whether the clients buy the same thing again after the answer
	wallet    *x402test.Wallet

	mu              sync.Mutex
	repeatedPayment string          // the payment that the clients repeat
	signedKeys      map[string]bool // the keys of all payments that the clients have signed
	answers         []receivedAnswer
	trail           []string // what happened, one line per event, to explain a failure
}

// receivedAnswer is an answer that a client has received.
type receivedAnswer struct {
	via  string // such as GET over MCP
	body string
}

// newPurchase returns a random purchase.
func newPurchase(seed uint64, number int) (*purchase, error) {
	rng := mathrand.New(mathrand.NewPCG(seed, uint64(number)))
	wallet, err := x402test.NewWallet(rand.Reader)
	kinds := []string{steadyCity, steadyCity, flakyCity, slowCity}
	p := &purchase{
		number: number, city: fmt.Sprint(kinds[number%len(kinds)], "-", number), post: rng.IntN(2) == 0, signsAll: rng.IntN(2) == 0,
		clients: 1, comesBack: rng.IntN(3) == 0, wallet: wallet, signedKeys: map[string]bool{},
	}
	if rng.IntN(3) == 0 {
		p.key = fmt.Sprint("purchase-of-the-storm-", number)
	}
	if rng.IntN(5) == 0 {
		p.clients = 3
	}
	return p, err
}

func (p *purchase) String() string {
	return fmt.Sprintf("purchase %d (%s %s, key %q, signs again %t, %d clients)", p.number, p.method(), p.city, p.key, p.signsAll, p.clients)
}

func (p *purchase) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trail = append(p.trail, fmt.Sprintf(format, args...))
}

func (p *purchase) hasAnswer() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.answers) > 0
}

// tryLimits is how often a client tries to buy, and how long it waits.
type tryLimits struct {
	tries        int
	timeout      time.Duration // the limit for each try
	pause        time.Duration // the longest pause between two tries
	losesReplies bool          // whether one in eight replies is lost
}

// buy lets all clients of a purchase try at once. If the purchase says that its clients come
// back, each client that got an answer then buys the same thing again.
func (p *purchase) buy(ctx context.Context, seed uint64, shops []string, limits tryLimits) {
	var all sync.WaitGroup
	for i := range p.clients {
		c := p.client(mathrand.New(mathrand.NewPCG(seed, uint64(1_000_000+10*p.number+i))), shops, limits)
		all.Go(func() {
			if c.try(ctx) && p.comesBack {
				p.note("comes back")
				c.try(ctx)
			}
		})
	}
	all.Wait()
}

// client is one of the clients of a purchase.
type client struct {
	*purchase
	rng         *mathrand.Rand
	shops       []string
	limits      tryLimits
	plainClient *x402test.Client // sends no Idempotency-Key
	keyClient   *x402test.Client // sends the Idempotency-Key of the purchase, if there is one
}

func (p *purchase) client(rng *mathrand.Rand, shops []string, limits tryLimits) *client {
	plain := &http.Transport{DisableKeepAlives: true}
	speaks := func(t http.RoundTripper) *x402test.Client {
		return &x402test.Client{HTTP: &http.Client{Timeout: limits.timeout, Transport: t}, Wallet: p.wallet, Now: time.Now}
	}
	return &client{purchase: p, rng: rng, shops: shops, limits: limits, plainClient: speaks(plain), keyClient: speaks(keyTransport{plain, p.key})}
}

// keyTransport adds an Idempotency-Key to requests.
type keyTransport struct {
	http.RoundTripper
	key string
}

// RoundTrip implements http.RoundTripper.
func (k keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if k.key != "" {
		r = r.Clone(r.Context())
		r.Header.Set(x402.HeaderKey, k.key)
	}
	return k.RoundTripper.RoundTrip(r)
}

// try tries to buy until the client gets an answer, or has used up its tries. It reports
// whether the client got an answer.
func (c *client) try(ctx context.Context) bool {
	for range c.limits.tries {
		shop := c.shops[c.rng.IntN(len(c.shops))]
		header, err := c.payment(ctx, shop)
		if err != nil {
			c.note("no offer: %.60v", err)
			c.wait(ctx)
			continue
		}
		transport, send := "HTTP", c.request
		if c.rng.IntN(2) == 0 {
			transport, send = "MCP", c.call
		}
		status, body, err := send(ctx, shop, header)
		lost := c.limits.losesReplies && c.rng.IntN(8) == 0
		switch {
		case err != nil:
			c.note("%s: %.60v", transport, err)
		case status == http.StatusOK && !lost:
			c.recordAnswer(transport, body)
			return true
		default:
			c.note("%s %d (lost: %t) %.160s", transport, status, lost, body)
		}
		if status == http.StatusPaymentRequired {
			c.dropPayment(header)
		}
		c.wait(ctx)
	}
	return false
}

func (p *purchase) method() string {
	if p.post {
		return http.MethodPost
	}
	return http.MethodGet
}

func (c *client) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(c.limits.pause/4 + time.Duration(c.rng.Int64N(int64(c.limits.pause*3/4)))):
	}
}

func (c *client) recordAnswer(transport, body string) {
	c.note("%s 200", transport)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, receivedAnswer{c.method() + " over " + transport, body})
}

// payment returns the payment for the next try: the payment that the clients repeat, or a new
// one.
func (c *client) payment(ctx context.Context, shop string) (string, error) {
	c.mu.Lock()
	header := c.repeatedPayment
	c.mu.Unlock()
	if header != "" && !c.signsAll {
		return header, nil
	}
	offer, err := c.offer(ctx, shop)
	if err != nil {
		return "", err
	}
	draft, err := c.wallet.Draft(offer, time.Now())
	if err != nil {
		return "", err
	}
	if header, err = c.wallet.Seal(draft); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signedKeys[keyOf(draft.Payload.Payload.Authorization)] = true
	c.repeatedPayment = header
	return header, nil
}

// dropPayment drops a refused payment, so that the clients sign a new one.
func (c *client) dropPayment(header string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.repeatedPayment == header {
		c.repeatedPayment = ""
	}
}

func (c *client) offer(ctx context.Context, shop string) (x402.PaymentRequired, error) {
	reply, err := c.send(ctx, shop, "")
	if err != nil {
		return x402.PaymentRequired{}, err
	}
	return reply.Required()
}

// send sends the request for the purchase over HTTP.
func (c *client) send(ctx context.Context, shop, header string) (x402test.Reply, error) {
	if !c.post {
		return c.keyClient.Get(ctx, shop+"/forecast/"+c.city, header)
	}
	body := fmt.Sprintf(`{"city":%q,"days":%d}`, c.city, days) // the same body as for a call of the tool
	return c.keyClient.Post(ctx, shop+"/report", "application/json", []byte(body), header)
}

func (c *client) request(ctx context.Context, shop, header string) (status int, body string, err error) {
	reply, err := c.send(ctx, shop, header)
	if err == nil && reply.Status == http.StatusPaymentRequired {
		return reply.Status, reason(reply), nil
	}
	return reply.Status, string(reply.Body), err
}

// reason returns the reason why a payment was refused.
func reason(reply x402test.Reply) string {
	offer, err := reply.Required()
	if err != nil {
		return err.Error()
	}
	return offer.Error
}

// call sends the request for the purchase as a tool call over MCP.
func (c *client) call(ctx context.Context, shop, header string) (status int, body string, err error) {
	tool, args := forecastTool, map[string]any{"city": c.city}
	if c.post {
		tool, args = reportTool, map[string]any{"city": c.city, "days": days}
	}
	result, err := mcptest.Call(ctx, c.plainClient, shop+"/mcp", tool, args, header, c.key)
	switch {
	case err != nil:
		return 0, "", err
	case !result.IsError:
		return http.StatusOK, result.Text(), nil
	}
	if offer, err := result.Required(); err == nil {
		return http.StatusPaymentRequired, offer.Error, nil
	}
	return http.StatusInternalServerError, result.Text(), nil
}

// content decodes an answer.
func (d receivedAnswer) content() (answer, error) {
	var a answer
	err := json.Unmarshal([]byte(d.body), &a)
	return a, err
}
