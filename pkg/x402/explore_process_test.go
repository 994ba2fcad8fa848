package x402_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fallback"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// callKind is a kind of call that a process makes to something outside it. Each call is a step
// of the explorer: the process stops until the explorer gives it a reply.
type callKind uint8

const (
	callPut callKind = iota
	callFetch
	callSettle
	callFind
	callRun
	callPause
	callList
	callTransfers
)

// call is a call that waits for its reply. The comment of a field begins with the kinds of calls
// that use the field.
type call struct {
	kind       callKind
	key        int           // put, fetch: the number of the record's key; pause: the number of the key of seenRecord
	rec        int32         // put: the number of the record; 0 as long as the record has no number
	auth       int           // settle, find, run: the authorization
	claimedAt  time.Time     // find: when the payment was first claimed
	toSecond   bool          // settle: the call goes to the second facilitator
	list       string        // list: the name of the list
	fromBlock  uint64        // transfers: the first block
	pause      time.Duration // pause: how long the process wants to pause
	seenRecord int32         // pause: the number of the payment record that the process read last
	record     ledger.Record // put: the record that is written
}

// reply is the explorer's reply to a call. result says how the call ended. A reply about a
// record has the record's number in rec. Any other reply has its content in n: an x402.Fate, a
// facilitatorReply, a workEnd, or an encoded list.
type reply struct {
	result uint8
	rec    int32
	n      int32
}

// These are the values of reply.result. Only a put can end with replyLost or replyConflict.
const (
	replyDone     uint8 = iota // the call succeeds; put: the record is written; fetch: rec is the stored record
	replyFailed                // the call fails; put: nothing was written
	replyLost                  // put: the call returns an error, although the record was written
	replyConflict              // put: nothing was written, because the record with the number rec is in the way
)

var errReply = errors.New("no reply")

// liveProcess is a running process. Its goroutines run the production code.
type liveProcess struct {
	x           *explorer
	now         atomic.Int32 // the number of the current instant
	mu          sync.Mutex
	parkedCalls []parkedCall
	dead        bool
	idCount     int   // how many write ids newID has made
	serial      uint8 // task.serial
	seenRecord  int32 // the number of the payment record that was read last; seenKey is the number of its key
	seenKey     int
	ending      ending
	ended       bool
}

type parkedCall struct {
	call  *call
	reply chan reply
}

// await makes a call to something outside the process, and waits for the explorer's reply. If
// the explorer no longer needs the process (kill), await ends the calling goroutine.
func (p *liveProcess) await(c *call) reply {
	w := parkedCall{c, make(chan reply)}
	p.mu.Lock()
	dead := p.dead
	if !dead {
		p.parkedCalls = append(p.parkedCalls, w)
	}
	p.mu.Unlock()
	if dead {
		runtime.Goexit()
	}
	r, ok := <-w.reply
	if !ok {
		runtime.Goexit()
	}
	return r
}

// deliver gives one thread of a process its reply. It returns when each thread of the process
// has made its next call or has ended.
func (p *liveProcess) deliver(e edge) {
	p.now.Store(int32(e.instant))
	p.mu.Lock()
	i := slices.IndexFunc(p.parkedCalls, func(w parkedCall) bool { return (w.call.kind == callRun) == e.isJob })
	w := p.parkedCalls[i]
	p.parkedCalls = slices.Delete(p.parkedCalls, i, i+1)
	p.mu.Unlock()
	w.reply <- e.reply
	synctest.Wait()
}

// kill ends the goroutines of a process.
func (p *liveProcess) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for _, w := range p.parkedCalls {
		close(w.reply)
	}
	p.parkedCalls = nil
}

func (p *liveProcess) clock() time.Time { return p.x.instants[p.now.Load()] }

// Put implements ledger.Store.
func (p *liveProcess) Put(_ context.Context, r ledger.Record) (ledger.Record, error) {
	key := p.x.keyOf(r.Head().Key)
	if pay, ok := r.(ledger.Payment); ok && pay.LeaseUntil.After(p.clock()) {
		p.mu.Lock() // while this goroutine records the settlement, another may begin the work (run)
		p.ending.leasedAuth = key
		p.mu.Unlock()
	}
	got := p.await(&call{kind: callPut, key: key, record: r})
	switch got.result {
	case replyDone:
		return r, nil
	case replyConflict:
		return p.read(key, got.rec), nil
	default:
		return nil, errReply
	}
}

// MostKept implements ledger.Store.
func (p *liveProcess) MostKept() int { return ledger.LeastKept }

// Fetch implements ledger.Store. A world has no record of the payees (ledger.Sold), so reading
// that record is not a step.
func (p *liveProcess) Fetch(_ context.Context, key string) (ledger.Record, error) {
	if key == ledger.SoldKey(terms().Network, strings.ToLower(terms().Asset)) {
		return nil, nil
	}
	k := p.x.keyOf(key)
	got := p.await(&call{kind: callFetch, key: k})
	if got.result != replyDone {
		return nil, errReply
	}
	return p.read(k, got.rec), nil
}

func (p *liveProcess) read(key int, rec int32) ledger.Record {
	if key < paymentCount {
		p.ending.lastReadAuth, p.seenRecord, p.seenKey = key, rec, key
	}
	r := p.x.records[rec]
	if pay, ok := r.(ledger.Payment); ok && p.x.world.changeRead != nil {
		p.x.world.changeRead(&pay)
		return pay
	}
	return r
}

// List implements ledger.Index.
func (p *liveProcess) List(_ context.Context, list string, _ time.Time, after ledger.Place, limit int) ([]ledger.Place, error) {
	got := p.await(&call{kind: callList, list: list})
	if got.result != replyDone {
		return nil, errReply
	}
	var all []ledger.Place
	for n := got.n; n > 0; n /= listBase {
		all = append(all, ledger.Place{At: p.clock().Add(time.Duration(-n)), Key: p.x.keys[n%listBase-1]})
	}
	return ledger.FirstPlaces(all, after, limit), nil
}

// Settle implements x402.Facilitator.
func (p *liveProcess) Settle(_ context.Context, pay x402.Payload, _ x402.Requirements) x402.Settlement {
	return p.settle(pay, false)
}

func (p *liveProcess) settle(pay x402.Payload, toSecond bool) x402.Settlement {
	auth := p.x.authOf(pay.Payload.Authorization.Nonce)
	got := p.await(&call{kind: callSettle, auth: auth, toSecond: toSecond})
	return facilitatorReply(got.n).settlement(auth)
}

// secondFacilitator is the second facilitator of a process; liveProcess is the first.
type secondFacilitator struct{ *liveProcess }

// Settle implements x402.Facilitator.
func (s secondFacilitator) Settle(_ context.Context, pay x402.Payload, _ x402.Requirements) x402.Settlement {
	return s.settle(pay, true)
}

// Verify implements x402.Facilitator.
func (*liveProcess) Verify(context.Context, x402.Payload, x402.Requirements) x402.Verification {
	return x402.Verification{}
}

// Find implements x402.Evidence.
func (p *liveProcess) Find(_ context.Context, q x402.Question) x402.Finding {
	auth := int(q.Nonce[31])
	got := p.await(&call{kind: callFind, auth: auth, claimedAt: q.Since})
	f := x402.Finding{Fate: x402.Fate(got.n)}
	switch f.Fate {
	case x402.Paid:
		f.Transaction = transactionOf(auth)
	case x402.CannotTell:
		f.Cause = errReply
	default:
		f.Reason = "the chain says so"
	}
	return f
}

// Transfers implements reconcile.Scanner.
func (p *liveProcess) Transfers(_ context.Context, _ x402.Address, from uint64) (reconcile.Batch, error) {
	got := p.await(&call{kind: callTransfers, fromBlock: from})
	if got.result != replyDone {
		return reconcile.Batch{Next: from}, errReply
	}
	return p.x.batch(got.n, from, int(p.now.Load())), nil
}

// BlockAt implements reconcile.Scanner. Nothing calls it, because every world begins with a
// cursor.
func (p *liveProcess) BlockAt(context.Context, time.Time) (uint64, error) { return 0, errReply }

// pause replaces the Gate's pause between two reads of a record. The explorer decides when the
// pause ends, and whether the time for waiting is then over. If it is over, pause returns
// false.
func (p *liveProcess) pause(_ context.Context, d time.Duration) bool {
	return p.await(&call{kind: callPause, pause: d, seenRecord: p.seenRecord, key: p.seenKey}).result == replyDone
}

// run plays the work of a request, as Job.Run. The explorer decides how the work ends.
func (p *liveProcess) run(context.Context) (x402.Reply, error) {
	p.mu.Lock()
	p.ending.workedAuth = p.ending.leasedAuth
	p.mu.Unlock()
	got := p.await(&call{kind: callRun, auth: p.ending.workedAuth})
	return workEnd(got.n).result(p.x)
}

// start starts a process for a task, and returns when the process has made a call or has ended.
func (x *explorer) start(t task) *liveProcess {
	p := &liveProcess{x: x, serial: t.serial, seenKey: paymentCount, ending: ending{workedAuth: -1, leasedAuth: -1, lastReadAuth: -1}}
	p.now.Store(int32(t.begunAt))
	go func() {
		defer func() {
			if e := recover(); e != nil { // a test that changes the rules may cause a panic
				p.ending.panicked, p.ended = true, true
			}
		}()
		p.runTask(t)
		p.ended = true
	}()
	synctest.Wait()
	return p
}

func (p *liveProcess) newID() string {
	p.idCount++
	return strconv.Itoa(int(p.serial)) + "-" + strconv.Itoa(p.idCount)
}

func (p *liveProcess) runTask(t task) {
	x := p.x
	ctx := context.Background()
	l := ledger.New(p, p.clock, p.newID).Under(x.rules)
	switch t.kind {
	case taskRequest:
		out := p.gate(l).ServeSigned(ctx, p.request(t), x.signedPayment(t))
		p.ending.out = &out
	case taskReconcile:
		r := reconcile.Reconciler{
			Ledger: l, Index: p, Terms: terms(), Now: p.clock, Log: slog.New(slog.DiscardHandler), Error: bodyOf,
		}
		if x.world.hasNode {
			r.Evidence, r.Scanner = p, p
		}
		_, p.ending.err = r.Run(ctx)
	case taskSendBack, taskRefund, taskAttest, taskWithdraw:
		p.ending.err = p.operate(ctx, l, t)
	}
}

// operate does what an operator's command does: it applies an event to the record of the task's
// payment.
func (p *liveProcess) operate(ctx context.Context, l *ledger.Ledger, t task) error {
	r, err := l.Fetch(ctx, p.x.keys[t.auth])
	if err != nil || r == nil {
		return err
	}
	event, change := ledger.EventSendBack, ledger.Change{Operator: "operator"}
	switch t.kind { //nolint:exhaustive // only taskSendBack is left, and it is the default
	case taskRefund:
		event, change = ledger.EventRefund, ledger.Change{Transaction: "0xrefund"}
	case taskWithdraw:
		event, change = ledger.EventWithdraw, ledger.Change{}
	case taskAttest:
		event, change = ledger.EventAttest, ledger.Change{Reason: "an operator says so"}
	}
	_, err = l.Apply(ctx, *r, event, change)
	return err
}

func (p *liveProcess) gate(l *ledger.Ledger) *x402.Gate {
	g := &x402.Gate{Ledger: l, Settler: x402.One(p), Now: p.clock, Log: slog.New(slog.DiscardHandler)}
	if p.x.world.twoFacilitators {
		g.Settler = &fallback.Pair{
			Primary: fallback.Member{Facilitator: p, Name: primaryName}, Second: fallback.Member{Facilitator: secondFacilitator{p}, Name: fallbackName}, Now: p.clock,
		}
	}
	if p.x.world.hasNode {
		g.Evidence = p
	}
	g.Pausing(p.pause)
	g.Concluding(p.x.conclusions, func(row int) { p.x.reachedConclusions[row].Store(true) })
	return g
}

func bodyOf(f *fault.Error, _ x402.PaymentStatus) []byte { return []byte(f.Code) }

// The deadline of a request is exploredInvocation after its arrival. Its lease ends
// exploredLease after its arrival.
const (
	exploredInvocation = 27 * time.Second
	exploredLease      = exploredInvocation + 3*time.Second
)

func (p *liveProcess) request(t task) x402.Request {
	x := p.x
	r := x402.Request{
		Offer: x.offers[t.endpoint], Window: x.world.window, Arrived: x.instants[t.begunAt], Deadline: x.instants[t.begunAt].Add(exploredInvocation),
		Error: bodyOf,
		Prepare: func() (x402.Job, error) {
			job := x402.Job{
				Fingerprint: exploredRequest, Endpoint: endpointName(t.endpoint),
				Budget: 3 * time.Second, Timeout: fault.Info{Code: fault.InternalError, Status: 500, Class: fault.Owed},
				NoImplicitRetry: x.world.separatePurchases, MostRuns: x.world.mostRuns, Run: p.run,
			}
			if x.world.checksFirst {
				return job, refusalOf(t)
			}
			if x.world.claimsFirstEndpoint {
				job.Endpoint = endpointName(0)
			}
			if x.world.hasCheck && !x.world.skipsCheck {
				job.Check = func(context.Context) error { return refusalOf(t) }
			}
			return job, nil
		},
	}
	if x.world.hasKey {
		r.Keys = []string{exploredKey}
	}
	return r
}

// refusalOf returns the error with which the seller's check refuses the request of a task, or nil.
func refusalOf(t task) error {
	if !t.checkRefuses {
		return nil
	}
	return fault.Info{Code: codeGone, Status: http.StatusGone, Class: fault.NoCharge}.New(nil)
}

// endpointName returns the name that jobs use for an endpoint.
func endpointName(endpoint int8) string { return "endpoint " + strconv.Itoa(int(endpoint)) }

const (
	exploredRequest = "GET /explored"
	exploredKey     = "a-key-of-the-payer"
)
