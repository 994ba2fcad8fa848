package judge

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// purchase is one thing that one payer wants to buy in one row. All payments that the payer
// signs for this thing belong to the same purchase.
type purchase struct {
	stage    *stage
	way      Way
	outsider *Outsider // the external program that buys; nil if the payer belongs to this package
	payer    Payer
	key      string // the payer's private key
	name     string // the purchase's Idempotency-Key, and its id for payment-identifier
	line     *line
	buyer    *client // sends the payer's requests, through the line
	server   *http.Server

	mu              sync.Mutex
	paymentNumbers  map[string]int // by nonce: the number that a payment has in the report
	first           *payment
	transfers       map[string]string  // by nonce: the transaction of a payment
	publishedAuth   *x402.ExactPayload // the authorization of the first transfer, as the chain shows it
	calls           map[step]int       // by step: how many calls about this purchase the facilitator has had
	paidRequests    int                // how many paid requests the line has seen
	paidReplies     int                // how many replies to paid requests the line has seen
	answerReplies   int                // how many answers isFirstAnswer has counted
	onSend          func()             // runs when the line sees the next paid request
	errands         int                // how many errands want the answer: one, or two at once
	answeredErrands int                // how many of these errands have the answer
	otherAnswers    int                // how many answers to another question the payer got for the same payment
	strangerAnswers int                // how many answers a stranger got
	statements      []string           // the seller's statements, except those that ask the payer to wait
	waitStatement   string             // the last statement, if it asks the payer to wait
	falseStatement  string             // the seller's first false statement about the money
	steps           []string

	// If two requests are sent at the same time, holdFirstCall holds back the first call to
	// the facilitator until there is a second call.
	firstCallHeld     chan struct{} // closed as soon as the first call is held back
	releaseOnce       sync.Once
	firstCallReleased chan struct{} // closed to let the first call continue
}

// newPurchase returns a purchase with a new payer and a line to the seller.
func newPurchase(s *stage, way Way) (*purchase, error) {
	random := randomOf(s.court.config.Seed, s.row.name, string(way))
	var drawn [48]byte
	if _, err := io.ReadFull(random, drawn[:]); err != nil {
		return nil, err
	}
	key, name := hex.EncodeToString(drawn[:32]), hex.EncodeToString(drawn[32:])
	payer, err := s.court.config.World.NewPayer(key, random)
	if err != nil {
		return nil, err
	}
	p := &purchase{
		stage: s, way: way, outsider: s.court.config.outsider(way), payer: payer, key: key, name: "pay_" + name,
		paymentNumbers: map[string]int{}, transfers: map[string]string{}, calls: map[step]int{}, errands: 1, firstCallHeld: make(chan struct{}), firstCallReleased: make(chan struct{}),
	}
	p.line = &line{p: p, seller: newClient(s.court.config.Patience)}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.server = newServer(p.line)
	go func() { _ = p.server.Serve(listener) }() // Serve returns after Close
	p.buyer = &client{
		http: newClient(s.court.config.Patience), goods: s.court.config.Goods, way: way, origin: "http://" + listener.Addr().String(),
	}
	return p, nil
}

// randomOf returns a source of random bytes. It gives the same bytes for the same seed and
// names.
func randomOf(seed uint64, names ...string) *mathrand.ChaCha8 {
	var key [32]byte
	copy(key[:], fmt.Sprintf("%d", seed))
	source := mathrand.NewChaCha8(key)
	for _, b := range []byte(strings.Join(names, " ")) {
		copy(key[:], fmt.Sprintf("%x %x", source.Uint64(), b))
		source.Seed(key)
	}
	return source
}

// note adds a step to the report, unless it is the same as the last step.
func (p *purchase) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.mu.Lock()
	again := len(p.steps) > 0 && p.steps[len(p.steps)-1] == text
	if !again {
		p.steps = append(p.steps, text)
	}
	p.mu.Unlock()
	if !again {
		p.tell("%s", text)
	}
}

// tell reports an event to Config.Watch.
func (p *purchase) tell(format string, args ...any) {
	p.stage.court.config.Watch(Event{Row: p.stage.row.name, Way: p.way, Text: fmt.Sprintf(format, args...)})
}

// answerCall answers a call that the seller makes to the facilitator about this purchase.
func (p *purchase) answerCall(c *facilitatorCall) {
	p.mu.Lock()
	p.calls[c.step]++
	n := p.calls[c.step]
	p.mu.Unlock()
	if p.stage.row.facilitator != nil {
		p.stage.row.facilitator(p, c, n)
		return
	}
	p.answerHonestly(c)
}

// answerHonestly answers as a correct facilitator does, and notes the step.
func (p *purchase) answerHonestly(c *facilitatorCall) {
	p.note("the facilitator is asked to %s %s, and does what it should", c.step, p.paymentName(c.payload.Payload.Authorization.Nonce))
	c.answerHonestly(p)
}

// paymentName returns the name that the payment with a nonce has in the report, such as
// "payment 1".
func (p *purchase) paymentName(nonce string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.paymentNumbers[strings.ToLower(nonce)]
	if !ok {
		n = len(p.paymentNumbers) + 1
		p.paymentNumbers[strings.ToLower(nonce)] = n
	}
	return fmt.Sprint("payment ", n)
}

// recordTransfer records a transfer.
func (p *purchase) recordTransfer(signed x402.ExactPayload, transaction string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.transfers[strings.ToLower(signed.Authorization.Nonce)] = transaction
	if p.publishedAuth == nil {
		p.publishedAuth = &signed
	}
}

// transaction returns the transaction in which a payment has moved money.
func (p *purchase) transaction(nonce string) (transaction string, moved bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	transaction, moved = p.transfers[strings.ToLower(nonce)]
	return transaction, moved
}

// hasMoved reports whether a payment has moved money.
func (p *purchase) hasMoved(nonce string) bool {
	_, moved := p.transaction(nonce)
	return moved
}

// countPaidRequest counts a paid request that the line has seen, and runs the function onSend
// if there is one. The line passes the request on to the seller afterwards.
func (p *purchase) countPaidRequest() {
	p.mu.Lock()
	p.paidRequests++
	run := p.onSend
	p.onSend = nil
	p.mu.Unlock()
	if run != nil {
		run()
	}
}

// paidRequestCount returns how many paid requests the line has seen.
func (p *purchase) paidRequestCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paidRequests
}

// isTool reports whether the payer calls a tool.
func (p *purchase) isTool() bool {
	return p.way.isTool() || p.outsider != nil && p.outsider.Tool
}

// countPaidReply counts a reply to a paid request, and returns how many bytes of the reply
// reach the payer. A negative number means that the connection breaks before the first byte.
func (p *purchase) countPaidReply(r reply) (arrivingBytes int) {
	p.mu.Lock()
	p.paidReplies++
	n := p.paidReplies
	p.mu.Unlock()
	if p.stage.row.reply == nil {
		return len(r.body)
	}
	return p.stage.row.reply(p, n, r)
}

// recordStatement records the seller's statement in a reply to a payment, and checks whether
// the statement about the money is true.
func (p *purchase) recordStatement(r reply, nonce string) {
	said := r.statement()
	moved := p.hasMoved(nonce)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitStatement = ""
	if r.kind() == kindWait {
		p.waitStatement = said.text
	} else {
		p.statements = append(p.statements, said.text)
	}
	if said.charged == nil || p.falseStatement != "" {
		return
	}
	switch {
	case *said.charged && len(p.transfers) == 0:
		p.falseStatement = "it said that money had moved, and none had"
	case !*said.charged && moved:
		p.falseStatement = "it said that no money had moved, and it had"
	}
}

// lastStatement returns the seller's last statement.
func (p *purchase) lastStatement() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.waitStatement != "":
		return p.waitStatement
	case len(p.statements) > 0:
		return p.statements[len(p.statements)-1]
	}
	return "nothing"
}

// close stops the line.
func (p *purchase) close() { p.server.Close() }
