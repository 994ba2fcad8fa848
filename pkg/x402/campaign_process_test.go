package x402_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// process is one execution environment, which may freeze or die at any await
// point. It implements the Gate's store, facilitators, evidence, slots and lookup,
// so that each of them has faults of its own for each process.
type process struct {
	w   *world
	mu  sync.Mutex // of rng and dead
	rng *rand.Rand

	dead   bool
	offset time.Duration // of its clock

	// The request, and who sent it.
	number  uint64
	kind    actorKind
	pay     *authorization // in the header
	signed  paymentHeader
	path    string
	key     string // its purchase key, or empty
	begun   time.Time
	arrived time.Time // begun, by its own clock
	// Whether pay was on record, and recorded as paid, when the request began.
	recordedBefore, paidBefore bool

	// What it has done, and which faults it had. The world's lock guards the rest.
	froze, faulty   bool
	claims          map[*authorization]claim
	openedPurchase  map[*authorization]bool // whether it wrote the purchase of the payment
	sends           map[*authorization]int
	lastClass       map[*authorization]map[string]x402.Class // of the answers, by facilitator
	requestsTo      map[*authorization]map[string]int        // count, by facilitator
	refusedBy       map[*authorization]string                // the facilitator whose refusal, about the payer, it received
	consulted       map[*authorization]bool                  // whether the chain was asked
	primaryDeadline map[*authorization]time.Time             // the end of all requests to the primary
	lastWrites      map[*authorization]writtenRecord
	current         *authorization // the payment that it claimed or sent last
	refusedAt       time.Time      // when it wrote a refusal of pay
	readAt          time.Time      // when it last read the record of pay
	readState       ledger.State
	otherRead       *authorization // the last other payment that it read
	otherVersion    int64          // of that record
	chainSeenAt     time.Time      // the block time of what it last learned about pay
	verified        bool           // whether the facilitator verified its signature
	writes          int
	sent, lookups   int
	lookEnded       time.Time
	slot            slotUse
}

// claim is a lease that a process has taken.
type claim struct {
	at      time.Time
	writeID string
}

// writtenRecord is the last write of a record by a process.
type writtenRecord struct {
	at    time.Time
	doubt bool
}

// actorKind is who sends a process its request, or what else it runs.
type actorKind int

const (
	asClient       actorKind = iota
	asStranger               // somebody else, with a copy of what is public
	asReconciler             // no request and no deadline
	asFirstVersion           // a process of the first version of this code
)

// purchaseKey is the ledger key of the purchase that the request is for.
func (p *process) purchaseKey() string { return p.w.purchaseOf(p.key, p.path) }

func (p *process) now() time.Time { return time.Now().Add(p.offset) }

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

// drawFault draws whether a fault occurs. It draws nothing once the faults are over.
func (p *process) drawFault(percent float64) bool {
	p.w.mu.Lock()
	over := p.w.faultsOver
	p.w.mu.Unlock()
	return !over && p.chance(percent)
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// await is a point where other processes run, and where this one may freeze or
// die. The goroutine of a dead process ends here.
func (p *process) await() { p.pause(0.6) }

func (p *process) pause(freezes float64) {
	if !p.isDead() {
		time.Sleep(p.drawDuration(20 * time.Millisecond))
		if p.drawFault(freezes) {
			p.w.mu.Lock()
			p.froze = true
			p.w.trace("  p%d freezes", p.number)
			p.w.mu.Unlock()
			time.Sleep(25*time.Second + p.drawDuration(time.Minute)) // in some cases beyond its lease
		}
		if p.drawFault(1) {
			p.mu.Lock()
			p.dead = true
			p.mu.Unlock()
			p.w.trace("  p%d dies", p.number)
		}
	}
	if p.isDead() {
		runtime.Goexit()
	}
}
