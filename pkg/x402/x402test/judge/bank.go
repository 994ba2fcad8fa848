package judge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	nodePath     = "/node"
	upstreamPath = "/upstream"
	lifePath     = "/life/"
	// maxCall limits how many bytes of a call are read.
	maxCall = 1 << 20
	// nonceUsed is the reason that facilitators give if an authorization was used before.
	nonceUsed = x402.ReasonNonceUsed
	// insufficient is the reason that facilitators give if a payer does not have enough money.
	insufficient = "invalid_exact_evm_insufficient_balance"
)

// newServer returns a server for a handler. The server closes each connection after one
// request.
func newServer(h http.Handler) *http.Server {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	server.SetKeepAlivesEnabled(false)
	return server
}

// bank is an http.Handler that serves the facilitator, a node of the chain, and the upstream, a
// service that the seller's handlers may depend on.
type bank struct {
	world World

	mu      sync.Mutex
	stage   *stage          // the state of the row that is being played
	isAlive map[string]bool // whether each life of a seller still lasts, by the name that newLife gave it
}

func newBank(w World) *bank { return &bank{world: w, isAlive: map[string]bool{}} }

// setStage sets the stage to which all calls belong from now on.
func (b *bank) setStage(s *stage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stage = s
}

// newLife implements Settings.NewLife. Each life of a seller gets a different URL of the
// facilitator. After end is called, requests to this URL get no answer.
func (b *bank) newLife(base string) (facilitator string, end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := fmt.Sprint(len(b.isAlive) + 1)
	b.isAlive[name] = true
	return base + lifePath + name, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.isAlive[name] = false
	}
}

// cutLife removes the name of a seller's life (see newLife) from the beginning of a path, and
// reports whether this life still lasts. A path without such a name stays as it is, and alive
// is true.
func (b *bank) cutLife(path string) (rest string, alive bool) {
	named, ok := strings.CutPrefix(path, lifePath)
	if !ok {
		return path, true
	}
	name, rest, _ := strings.Cut(named, "/")
	b.mu.Lock()
	defer b.mu.Unlock()
	return "/" + rest, b.isAlive[name]
}

// currentStage returns the stage of the row that is being played, or nil before the first row.
func (b *bank) currentStage() *stage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stage
}

// ServeHTTP implements http.Handler.
func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, alive := b.cutLife(r.URL.Path)
	s := b.currentStage()
	if !alive && s != nil {
		s.waitUntilOver(r.Context()) // a killed seller gets no answer
		panic(http.ErrAbortHandler)
	}
	switch r.Method + " " + path {
	case "GET /supported":
		b.serveSupported(w)
	case "POST /verify":
		b.servePayment(w, r, stepVerify)
	case "POST /settle":
		b.servePayment(w, r, stepSettle)
	case "POST " + nodePath:
		b.serveNode(w, r)
	default:
		if strings.HasPrefix(path, upstreamPath) {
			b.serveUpstream(w)
			return
		}
		answerJSON(w, http.StatusNotFound, map[string]string{"error": "no such path"})
	}
}

func (b *bank) serveSupported(w http.ResponseWriter) {
	kind := map[string]any{"x402Version": x402.Version, "scheme": x402.Scheme, "network": b.world.Network}
	answerJSON(w, http.StatusOK, map[string]any{"kinds": []any{kind}, "extensions": []string{}, "signers": map[string]any{}})
}

func (b *bank) serveNode(w http.ResponseWriter, r *http.Request) {
	if b.world.Node == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	b.world.Node.ServeHTTP(w, r)
}

// serveUpstream answers as a service that the seller's handlers may depend on. It fails while
// the row requires that.
func (b *bank) serveUpstream(w http.ResponseWriter) {
	if s := b.currentStage(); s != nil && s.upstreamMustFail() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "fair") // the seller may be gone
}

// step is what the seller asks the facilitator to do with a payment: verify it or settle it.
type step int

const (
	stepVerify step = iota
	stepSettle
)

func (s step) String() string {
	if s == stepVerify {
		return "verify"
	}
	return "settle"
}

// facilitatorCall is a request of the seller to the facilitator about one payment.
type facilitatorCall struct {
	w            http.ResponseWriter
	ctx          context.Context
	bank         *bank
	step         step
	payload      x402.Payload
	requirements x402.Requirements
}

// servePayment answers a request about a payment in the way that the row requires for the
// payment's payer.
func (b *bank) servePayment(w http.ResponseWriter, r *http.Request, s step) {
	var asked struct {
		PaymentPayload      x402.Payload      `json:"paymentPayload"`
		PaymentRequirements x402.Requirements `json:"paymentRequirements"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCall)).Decode(&asked); err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": "this is not a payment"})
		return
	}
	c := &facilitatorCall{w: w, ctx: r.Context(), bank: b, step: s, payload: asked.PaymentPayload, requirements: asked.PaymentRequirements}
	var p *purchase
	if stage := b.currentStage(); stage != nil {
		p = stage.purchaseOf(c.payload.Payload.Authorization.From)
	}
	if p == nil {
		c.answerHonestly(nil)
		return
	}
	p.answerCall(c)
}

// answerHonestly answers as a correct facilitator does.
func (c *facilitatorCall) answerHonestly(p *purchase) {
	if c.step == stepVerify {
		c.verify(p)
		return
	}
	moved := c.move(p)
	if moved.Class == x402.Moved {
		c.succeed(moved.Transaction)
		return
	}
	c.refuse(http.StatusOK, moved.Reason, "")
}

// verify answers whether a payment is valid, and moves no money.
func (c *facilitatorCall) verify(p *purchase) {
	judged := c.bank.world.Money.Verify(c.ctx, c.payload, c.requirements)
	if judged.Valid && p != nil && p.hasMoved(c.payload.Payload.Authorization.Nonce) {
		judged.Valid, judged.Reason = false, nonceUsed
	}
	said := map[string]any{"isValid": judged.Valid, "payer": c.payload.Payload.Authorization.From}
	if !judged.Valid {
		said["invalidReason"] = judged.Reason
	}
	answerJSON(c.w, http.StatusOK, said)
}

// move moves the money of the payment. If the money has already moved, it does not move a
// second time.
func (c *facilitatorCall) move(p *purchase) x402.Settlement {
	moved := c.bank.world.Money.Settle(context.WithoutCancel(c.ctx), c.payload, c.requirements)
	if moved.Class == x402.Moved && p != nil {
		p.recordTransfer(c.payload.Payload, moved.Transaction)
	}
	return moved
}

// succeed answers that the payment was settled.
func (c *facilitatorCall) succeed(transaction string) {
	answerJSON(c.w, http.StatusOK, x402.SettleResponse{
		Success: true, Transaction: transaction, Network: c.requirements.Network, Payer: c.payload.Payload.Authorization.From,
	})
}

// refuse answers a call of /verify that the payment is not valid, or a call of /settle that
// the payment was not settled.
func (c *facilitatorCall) refuse(status int, reason, transaction string) {
	if c.step == stepVerify {
		answerJSON(c.w, status, map[string]any{"isValid": false, "invalidReason": reason, "payer": c.payload.Payload.Authorization.From})
		return
	}
	answerJSON(c.w, status, x402.SettleResponse{
		ErrorReason: reason, Transaction: transaction, Network: c.requirements.Network, Payer: c.payload.Payload.Authorization.From,
	})
}

// hold gives no answer. It keeps the connection open for the duration d, or until the seller
// closes the connection.
func (c *facilitatorCall) hold(d time.Duration) {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-c.ctx.Done():
	case <-late.C:
	}
	c.abort()
}

// abort closes the connection without an answer.
func (c *facilitatorCall) abort() { panic(http.ErrAbortHandler) }

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the seller may be gone
}
