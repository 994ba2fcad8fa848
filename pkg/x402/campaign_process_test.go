package x402_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fallback"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// process is one execution environment. It serves one request, or runs one task of the
// reconciler or of an operator. It may freeze or die whenever it calls await. A process also
// implements what its Gate calls: the store, the facilitators, the evidence, the slots and the
// lookup. Therefore all of these fail differently for each process.
type process struct {
	w   *world
	mu  sync.Mutex // guards rng
	rng *mathrand.Rand

	dead         atomic.Bool
	clockOffset  atomic.Int64 // how far the process's clock is ahead of the synctest bubble's clock, as a time.Duration
	clockStopped atomic.Bool  // the process's clock stood still during a freeze, and has been behind since then

	// clientRequest is the request and its sender. If the request has a payment-identifier and
	// no Idempotency-Key, its key is that identifier.
	clientRequest
	number           uint64
	header           paymentHeader
	begun            time.Time // when the process began, by the clock of the bubble
	begunUnderFaults bool      // the process began while there were faults
	overMCP          bool      // the request comes over the Model Context Protocol, and not over HTTP
	arrived          time.Time // when the request began, by the clock of the process
	// recordedBefore says that the payment of the request was on record when the request
	// began. paidBefore says that it was then recorded as paid.
	recordedBefore, paidBefore bool
	// paymentIsPublic says that a stranger may have sent the request, because all its data may
	// be on the chain. claimedFirst says that the request created the record of its payment.
	paymentIsPublic, claimedFirst bool

	// The following fields note the actions and faults of the process so far. The world's lock
	// guards all of them except the atomic ones.
	froze, storeFailed atomic.Bool // whether the process has frozen; whether one of its calls of the store has failed
	attempts           map[*authorization]*attempt
	lastPayment        *authorization // the payment that the process claimed or sent last
	refusedAt          time.Time      // when the process wrote a refusal of the request's payment
	readAt             time.Time      // when the process last read the record of the request's payment
	readState          ledger.State   // the state in that record; empty if there was no record
	otherPayment       *authorization // the last payment that the process read, other than that of the request
	otherVersion       int64          // the version in the record of otherPayment
	askedToVerify      bool           // whether the facilitator was asked to verify the request's signature
	writes             int            // number of writes that took effect
	sends, lookups     int            // number of payments sent to a facilitator; number of lookups begun
	lookupEndedAt      time.Time      // when the last lookup ended
	slotsHeld          int            // the number of slots that the process holds
}

// attempt notes what one process has done with one authorization.
type attempt struct {
	claimedAt      time.Time             // when the process took the lease
	sentBefore     bool                  // the authorization may have been sent before this process claimed it
	openedPurchase bool                  // the process has written the purchase of the authorization
	sends          int                   // number of requests to all facilitators
	requests       map[string]int        // number of requests to each facilitator, by its name
	classes        map[string]x402.Class // class of the last answer from each facilitator, by its name
	refusedBy      string                // the facilitator that last refused the payment for a reason about the payer
	refusal        *x402.Settlement      // the last refusal that decides about the payment
	verdict        *x402.Fate            // the last answer of the chain; nil if the chain was not asked
	wroteAt        time.Time             // when this process last wrote the record
	wroteDoubt     bool                  // whether that last write recorded that the payment is in doubt
}

func (p *process) attemptOn(a *authorization) *attempt {
	if p.attempts[a] == nil {
		p.attempts[a] = &attempt{requests: map[string]int{}, classes: map[string]x402.Class{}}
	}
	return p.attempts[a]
}

// actorKind says who sends a request to a process, or which other task the process runs.
type actorKind int

const (
	actorClient     actorKind = iota
	actorStranger             // somebody other than the payer, with a copy of public data
	actorReconciler           // runs the reconciler, without a request or a deadline
	actorOperator             // acts as an operator, without a request or a deadline
)

func (p *process) now() time.Time { return time.Now().Add(time.Duration(p.clockOffset.Load())) }

func (p *process) chance(percent float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.Float64()*100 < percent
}

func (p *process) drawDuration(d time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.rng.Int64N(int64(d))) + 1
}

// drawFault draws whether a fault occurs, with a probability in percent. Once the faults are
// over, it draws nothing and returns false.
func (p *process) drawFault(percent float64) bool {
	return !p.w.faultsOver.Load() && p.chance(percent)
}

func (p *process) disturbed() bool { return p.froze.Load() || p.storeFailed.Load() }

// await is a point at which other processes run, and at which this process may freeze or die.
// The goroutine of a dead process ends here.
func (p *process) await() { p.pause(0.6) }

func (p *process) pause(freezePercent float64) {
	if !p.dead.Load() {
		time.Sleep(p.drawDuration(20 * time.Millisecond))
		if p.drawFault(freezePercent) {
			p.freeze(p.drawFreeze())
		}
		if p.drawFault(1) {
			p.die()
		}
	}
	if p.dead.Load() {
		runtime.Goexit()
	}
	if p.begunUnderFaults {
		p.w.noteActivity()
	}
}

func (p *process) die() {
	p.dead.Store(true)
	p.w.trace("  p%d dies", p.number)
}

// drawFreeze draws how long a process freezes, and whether its clock stands still meanwhile. A
// freeze takes about a minute, and sometimes outlasts the lease. If the schedule has long
// freezes, most freezes take up to 70 minutes, and the clock stands still in half of all
// freezes.
func (p *process) drawFreeze() (duration time.Duration, clockStops bool) {
	clockStops = p.w.hasLongFreezes && p.chance(50)
	if p.w.hasLongFreezes && p.chance(70) {
		return p.drawDuration(70 * time.Minute), clockStops
	}
	return 25*time.Second + p.drawDuration(time.Minute), clockStops
}

// stall freezes a process now and then at a critical point, if the schedule has stalls. A
// process is at a critical point before it reads or writes a purchase. A reconciler is also at
// a critical point after it has read a payment that is settling.
func (p *process) stall(atCriticalPoint bool) {
	if !p.w.hasStalls || !atCriticalPoint || !p.drawFault(30) {
		return
	}
	most := 5 * time.Minute
	switch {
	case p.kind == actorReconciler:
		most = 20 * time.Minute
	case p.w.hasLongFreezes:
		most = 70 * time.Minute
	}
	p.freeze(p.drawDuration(most), p.kind != actorReconciler)
}

func (p *process) freeze(duration time.Duration, clockStops bool) {
	p.froze.Store(true)
	p.w.trace("  p%d freezes for %s, its clock stops: %v", p.number, duration, clockStops)
	p.w.expectEffectsFor(duration)
	time.Sleep(duration)
	if clockStops {
		p.w.noteEvent("thawed with a clock that had stood still")
		p.clockOffset.Add(-int64(duration))
		p.clockStopped.Store(true)
	}
}

// dropDeadlineIfStopped returns ctx without its deadline if the clock of the process has stood
// still. The process must then continue even after the deadline, because by its own clock the
// deadline has not passed yet.
func (p *process) dropDeadlineIfStopped(ctx context.Context) context.Context {
	if p.clockStopped.Load() {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (c *actors) newProcess() *process {
	n := c.processes.Add(1)
	p := &process{
		w: c.w, number: n, rng: mathrand.New(mathrand.NewPCG(c.seed, 1000+n)), begun: time.Now(), begunUnderFaults: !c.w.faultsOver.Load(),
		attempts: map[*authorization]*attempt{},
	}
	p.overMCP = p.chance(40)
	p.clockOffset.Store(int64(c.w.clockSkew / 2))
	if c.w.clockSkew > 0 && p.drawFault(80) {
		p.clockOffset.Store(int64(p.drawDuration(c.w.clockSkew)))
	}
	p.arrived = p.now()
	return p
}

func (c *actors) idGenerator() func() string {
	var ids atomic.Int64
	n := c.processes.Add(1)
	return func() string { return fmt.Sprintf("w%d.%d", n, ids.Add(1)) }
}

func (c *actors) newGate(p *process) *x402.Gate {
	gate := &x402.Gate{
		Ledger: ledger.New(p, p.now, c.idGenerator()), Settler: x402.One(p), Now: p.now, Log: slog.New(slog.DiscardHandler),
	}
	if c.w.slotCap > 0 {
		gate.Slots = p
	}
	if c.w.chainVisible {
		gate.Evidence = p
	}
	if c.w.hasFallback {
		gate.Settler = &fallback.Pair{
			Primary: fallback.Member{Facilitator: p, Name: primaryName},
			Second:  fallback.Member{Facilitator: fallbackFacilitator{p}, Name: fallbackName},
			Now:     p.now,
		}
	}
	return gate
}

func (c *actors) currentOffer(endpoint string) *x402.Offer {
	w := c.w
	switch {
	case w.endpoints == twoPrices && endpoint == endpointTwo:
		return c.f.offerDearer
	case w.naming == namedByExtension:
		return c.f.offerWithID
	case !w.deployAt.IsZero() && time.Now().After(w.deployAt):
		return c.f.offerAfterDeploy
	}
	return c.f.offer
}

type clientRequest struct {
	payment    *authorization
	attachment attachment
	path       string
	key        string // Idempotency-Key
	endpoint   string
	kind       actorKind
}

// These are the two endpoints that sell the same thing. The second can have a higher price.
const (
	endpointOne = "GET /"
	endpointTwo = "tool"
)

// These are the payer's Idempotency-Keys.
const (
	keyOne = "order-7d5d747be160e280504c099d984bcfe0"
	keyTwo = "2"
)

// payerRequest returns a request by a client of the payer. All these requests name the
// purchase in the way that is set for the schedule.
func (c *actors) payerRequest(a *authorization, path string) clientRequest {
	q := clientRequest{payment: a, path: path, attachment: withToken, endpoint: endpointOne}
	switch c.w.naming {
	case namedByKey:
		q.key = keyOne
	case namedByExtension:
		q.attachment = withExtensionID
	case namedByRequest:
	}
	if c.w.omitsToken {
		q.attachment = withNothing
	}
	return q
}

// ask sends a request to a new process. The outcome is nil if the process died, or if it had
// not answered by the gateway's timeout. After the timeout the process continues.
func (c *actors) ask(q clientRequest) (*process, *x402.Outcome) {
	p := c.newProcess()
	p.clientRequest, p.header = q, q.payment.forms[form{c.w.signsWithKey, q.attachment}]
	var keys []string
	if p.key != "" {
		keys = []string{p.key}
	} else if q.attachment == withExtensionID {
		p.key = payerPaymentID
	}
	c.w.mu.Lock()
	if r := c.w.record(p.payment); r != nil {
		p.recordedBefore, p.paidBefore = true, r.Paid()
		p.paymentIsPublic = isPublic(*r)
	}
	c.w.trace("p%d kind %d asks %s with %d path %s key %q at %s", p.number, p.kind, c.w.shortName(p.payment.key), q.attachment, p.path, p.key, p.endpoint)
	c.w.mu.Unlock()
	offer := c.currentOffer(p.endpoint)
	if offer == c.f.offerAfterDeploy {
		c.w.noteEvent("deployed in between")
	}
	heard := make(chan *x402.Outcome, 1)
	go func() {
		defer close(heard) // also runs if the process dies, because Goexit runs deferred calls
		signature, payload := p.header.encoded, untrusted.Object(nil)
		if p.overMCP { // MCP carries a payment as an object
			signature, payload = "", must(untrusted.Parse(must(base64.StdEncoding.DecodeString(signature)), 32))
		}
		out := c.newGate(p).Serve(context.Background(), x402.Request{
			Signature: signature, Payload: payload, Offer: offer, Keys: keys, Window: p.answerWindow(), Arrived: p.arrived, Deadline: p.now().Add(invocationTimeout),
			Prepare: func() (x402.Job, error) {
				return x402.Job{
					Fingerprint: p.path, Endpoint: p.endpoint, Budget: 8 * time.Second, Timeout: lookup.Info(lookup.DNSTimeout),
					MostRuns: p.w.maxLookups, Run: p.runLookup,
				}, nil
			},
			Error: p.renderError,
		})
		if p.dead.Load() {
			return // the process died after Serve returned; the client does not get the answer
		}
		defer c.w.lock()()
		c.w.trace("p%d answers %d %s %v receipt %+v replayed %v", p.number, out.Status, out.Body, out.Fault, out.Receipt, out.Replayed)
		c.w.checkEnded(p, &out)
		if time.Since(p.begun) < gatewayTimeout {
			c.w.checkAnswer(p, &out)
			heard <- &out
		}
	}()
	select {
	case out := <-heard:
		return p, out
	case <-time.After(gatewayTimeout):
		return p, nil
	}
}

// isPublic reports whether a stranger may be able to send a request with this payment, because
// all data that the request needs may be on the chain.
func isPublic(r ledger.Payment) bool {
	return r.Token == "" && r.Purchase != "" && (r.Sent || r.Doubt || r.State == ledger.Settling)
}

func (p *process) renderError(f *fault.Error, s x402.PaymentStatus) []byte {
	b, _ := json.Marshal(map[string]any{"code": f.Code, "charged": s.Charged, "to": p.path})
	return b
}

// gatewayTimeout is the timeout of the gateway in front of the processes.
const gatewayTimeout = 30 * time.Second

// reconcile runs a reconciler, with chain evidence if chainVisible is true.
func (c *actors) reconcile(chainVisible bool) {
	p := c.newProcess()
	p.kind = actorReconciler
	reconciler := reconcile.Reconciler{
		Ledger: ledger.New(p, p.now, c.idGenerator()), Index: p, Now: p.now, Log: slog.New(slog.DiscardHandler),
		Terms:    terms(),
		Cheapest: big.NewInt(5000), Error: p.renderError,
	}
	if chainVisible {
		reconciler.Evidence, reconciler.Scanner = p, p
	}
	var done sync.WaitGroup
	done.Go(func() {
		s, _ := reconciler.Run(context.Background())
		defer c.w.lock()()
		if s.Failed > 0 && !p.disturbed() {
			c.w.noteViolation("the reconciler failed on a record, and nothing failed it")
		}
	})
	done.Wait()
}

// answerWindow returns how long the answer to this process's request is replayed to later
// payments, for a purchase without a key. It is twice as long over the Model Context Protocol
// as over HTTP.
func (p *process) answerWindow() time.Duration {
	if p.overMCP {
		return 2 * p.w.answerWindow
	}
	return p.w.answerWindow
}

func (q clientRequest) purchaseKey(w *world) string { return w.purchaseOf(q.key, q.path) }
