package x402_test

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// explored describes a small world and all its bounds.
type explored struct {
	name            string
	node            bool // there is a node to ask about the chain
	twoFacilitators bool // there are two facilitators
	keyed           bool // the payer names the purchase with a key
	tokens          bool // the payer's clients echo the retry token
	separate        bool // each payment is a separate purchase
	window          time.Duration
	instants        []time.Duration    // the times since the beginning at which something happens
	auths           int                // number of authorizations that the payer signs for the purchase
	atOnce          int                // largest number of processes at once
	replies         []facilitatorReply // the possible replies of the facilitator
	works           []work             // the ways in which the work can end
	nodeMayFail     bool               // the node is sometimes unable to tell
	secondEndpoint  bool               // the second authorization is for another endpoint, at another price unless onePrice is set
	onePrice        bool               // the other endpoint, if secondEndpoint is set, has the same price
	checks          bool               // the seller's check refuses some requests
	mostRuns        int                // how many runs the seller allows for a payment; 0 for any number
	budget          budget

	// The following settings leave out a rule of the Gate.
	reads     func(r *ledger.Payment) // changes the records that are read
	anywhere  bool                    // requests do not say at which endpoint they are
	unasked   bool                    // the seller's check is never asked
	atTheDoor bool                    // the seller's check is asked before everything else
}

// budget holds how many more times each event may happen.
type budget struct {
	requests, reconciles, refunds, attests, crashes, storeFaults, lies, thirds, cancels, silences uint8
	freezes                                                                                       uint8 // how often the clock may move while a process runs
}

// These constants number the records of a world. There are as many payments as the constant
// payments says, and their numbers begin with 0. purchase and cursor are the numbers of the
// two other records, and allKeys is the count of all records. listDigit is the base in which a
// list of payments is encoded in one number.
const (
	payments  = 3
	purchase  = 3
	cursor    = 4
	allKeys   = 5
	third     = 2 // the authorization that the payer signs last, for the trial without faults
	listDigit = 8
)

// truth is the true state of an authorization on the chain.
type truth uint8

const (
	truthUnused truth = iota
	truthMoved
	truthCancelled
)

// onChain describes what has truly happened to an authorization.
type onChain struct {
	truth   truth
	at      int8 // the instant at which the authorization was used or cancelled
	byUs    bool // the money was moved by a facilitator to which we sent it
	lied    bool // a facilitator refused the payment, but moved the money
	pending bool // a facilitator has sent the authorization to the chain, and no block has it yet
	stale   bool // pending, and the payer has meanwhile been told that nothing is charged

	// The explorer's checks keep the following notes.
	over     uint8 // one bit for each other authorization that was already over when this one was sent
	complete bool  // a whole answer was given for the payment, and is on record
	fresh    bool  // that answer came from the request that caused the work, and not from a replay
	returned bool  // the operator has sent the amount back
}

// running is a process that runs in a state.
type running struct {
	node int32 // number of the process's node; 0 means that there is no process
	// claimed has one bit for each authorization that the process has claimed. stale has the
	// bits of those whose payer has meanwhile been told that nothing is charged.
	claimed, stale uint8

	fresh  bool  // the request's payment had no record when the process began
	kept   bool  // the stored answer of that payment could be replayed when the process began
	over   uint8 // one bit for each authorization that was over when the process began
	sent   bool  // that payment was on record as sent, without a token, when the process began
	openTo bool  // that payment was paid, and a lookup could run for it, when the process began
}

// state is a state of the world.
type state struct {
	now    int8
	serial uint8
	recs   [allKeys]int32
	chain  [payments]onChain
	procs  [2]running
	left   budget
}

func (s *state) quiet() bool { return s.procs[0].node == 0 && s.procs[1].node == 0 }

// explorer walks through the states of a world.
type explorer struct {
	t           testing.TB
	world       explored
	rules       ledger.Rules
	conclusions []x402.Conclusion
	offers      [2]*x402.Offer
	instants    []time.Time // the instants of the world, followed by the instants of a continuation without faults
	keys        [allKeys]string
	large       []byte

	records   []ledger.Record
	numbers   map[string]int32 // number of each record, by its content
	canonical map[canonicalKey]int32
	nodes     []*node
	roots     map[task]*node
	lives     []*node // the nodes that have a live process, oldest first

	states []step
	index  map[uint64]struct{} // the hashes of the known states
	seed   maphash.Seed
	kinds  map[trial]bool // whether the payment is answered in the end if a trial continues without faults

	transitions int
	found       map[string]int32 // violations by name, each with the number of the state just before it
	traces      map[string]string
	doing       step
	sequel      []string // the steps of a continuation without faults, after the last step
	stopAtFirst bool
	wholeDays   bool // every instant of the world is less than an hour, or at least 25 hours, after the beginning

	reachedEdges       []bool
	reachedConclusions []*atomic.Bool
	reachedStandings   map[ledger.Standing]bool
}

// step is a state, and the action by which it was reached from an earlier state.
type step struct {
	state state
	from  int32
	did   action
}

type canonicalKey struct {
	rec int32
	now int8
}

// explorationBegins is much later than the time in a synctest bubble, so that no deadline of a
// context is ever reached.
var explorationBegins = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// faultlessTimes returns the times of the instants in a continuation without faults, measured
// from the instant at which it begins.
func faultlessTimes() []time.Duration {
	return []time.Duration{20 * time.Second, 80 * time.Second, 12 * time.Minute, time.Hour, 19 * time.Hour, 26 * time.Hour, 50 * time.Hour}
}

// later returns the next instant of a continuation without faults. ok is false after the last
// instant.
func (x *explorer) later(now int8) (next int8, ok bool) {
	world, each := len(x.world.instants), len(faultlessTimes())
	if int(now) < world {
		return int8(world + int(now)*each), true
	}
	if (int(now)-world)%each == each-1 {
		return now, false
	}
	return now + 1, true
}

// validFor returns how long each authorization is valid. The period begins when the world
// begins or, for the third authorization, when the authorization is signed.
func validFor() [payments]time.Duration {
	return [payments]time.Duration{60 * time.Second, 20 * time.Hour, 20 * time.Hour}
}

func newExplorer(t *testing.T, w explored, rules ledger.Rules, conclusions []x402.Conclusion) *explorer {
	x := &explorer{
		t: t, world: w, conclusions: conclusions, records: []ledger.Record{nil}, numbers: map[string]int32{},
		canonical: map[canonicalKey]int32{}, nodes: []*node{nil}, roots: map[task]*node{}, index: map[uint64]struct{}{}, seed: maphash.MakeSeed(),
		kinds: map[trial]bool{}, found: map[string]int32{}, traces: map[string]string{}, reachedStandings: map[ledger.Standing]bool{},
		large: large(),
	}
	price := "4000"
	if w.onePrice {
		price = "5000"
	}
	x.offers = [2]*x402.Offer{offer(t, terms(), "5000", "Oslo"), offer(t, terms(), price, "Rome")}
	x.watch(rules)
	for range conclusions {
		x.reachedConclusions = append(x.reachedConclusions, &atomic.Bool{})
	}
	x.wholeDays = true
	for _, d := range w.instants {
		x.instants = append(x.instants, explorationBegins.Add(d))
		x.wholeDays = x.wholeDays && (d < time.Hour || d >= 25*time.Hour)
	}
	for _, at := range x.instants[:len(w.instants)] {
		for _, d := range faultlessTimes() {
			x.instants = append(x.instants, at.Add(d))
		}
	}
	for i := range payments {
		x.keys[i] = x.signed(task{auth: int8(i)}).Key()
	}
	key := ""
	if w.keyed {
		key = exploredKey
	}
	x.keys[purchase] = x402.PurchaseOf(x.offers[0], x.signed(task{}), key, exploredRequest)
	asked := terms()
	x.keys[cursor] = ledger.CursorKey(asked.Network, strings.ToLower(asked.Asset), strings.ToLower(asked.PayTo))
	return x
}

// watch makes the explorer note which edges are taken.
func (x *explorer) watch(rules ledger.Rules) {
	x.rules = rules
	x.reachedEdges = make([]bool, len(rules.Edges))
	x.rules.Edges = nil
	for i, e := range rules.Edges {
		when := e.When
		e.When = func(r ledger.Payment, now time.Time) bool {
			fits := when == nil || when(r, now)
			if fits {
				x.reachedEdges[i] = true
			}
			return fits
		}
		x.rules.Edges = append(x.rules.Edges, e)
	}
}

// signed returns the signed payment of a task.
func (x *explorer) signed(t task) x402.Signed {
	payer := x402.Address{19: 7}
	until := explorationBegins
	if t.auth == third {
		until = x.instants[t.signed]
	}
	until = until.Add(validFor()[t.auth])
	token, o := "", x.offers[0]
	if x.world.tokens {
		token = fmt.Sprintf("token-%d", t.auth)
	}
	if x.world.secondEndpoint && t.auth == 1 {
		o = x.offers[1]
	}
	return x402.SignedFor(o, payer, byte(t.auth), until, token)
}

// endOf returns when the window of an authorization ends. The window of the third
// authorization begins when the payer signs. If the authorization has no record yet, the payer
// is taken to sign now.
func (x *explorer) endOf(s *state, auth int) time.Time {
	if auth == third {
		if r := x.payment(s, auth); r != nil {
			return r.ValidBefore
		}
		return x.instants[s.now].Add(validFor()[third])
	}
	return explorationBegins.Add(validFor()[auth])
}

func transactionOf(auth int) string { return "0x" + strings.Repeat(fmt.Sprint(auth+1), 64) }

// authOf returns the number of the authorization that has a nonce. This number is the last
// digit of the nonce.
func (*explorer) authOf(nonce string) int { return int(nonce[len(nonce)-1] - '0') }

func (x *explorer) keyOf(key string) int {
	for i, k := range x.keys {
		if k == key {
			return i
		}
	}
	panic("a record that this world does not have: " + key)
}

func (x *explorer) payment(s *state, auth int) *ledger.Payment {
	p, ok := x.records[s.recs[auth]].(ledger.Payment)
	if !ok {
		return nil
	}
	return &p
}

func (x *explorer) clock(s *state) time.Time { return x.instants[s.now] }

// number returns the number of a record. Records with the same content have the same number.
func (x *explorer) number(r ledger.Record) int32 {
	doc, body, err := ledger.Marshal(r)
	if err != nil {
		panic(err)
	}
	at := string(doc) + "\x00" + string(body)
	n, ok := x.numbers[at]
	if !ok {
		n = int32(len(x.records))
		x.records, x.numbers[at] = append(x.records, r), n
	}
	return n
}

// batch returns what a Scanner finds on the chain at an instant. Each instant has ten blocks,
// and the blocks of the current instant are not safe yet. moved has one byte for each
// authorization: the instant of its transfer plus one, or 0 if there is no transfer.
func (x *explorer) batch(moved int32, from uint64, now int) reconcile.Batch {
	b := reconcile.Batch{Next: from, Safe: uint64(now) * blocksPerInstant, SafeTime: x.instants[now]}
	b.Next = max(from, b.Safe+1)
	for auth := range payments {
		if at := int(moved>>(8*auth)&0xff) - 1; at >= 0 {
			var nonce [32]byte
			nonce[31] = byte(auth)
			amount := x.offers[0].Required("").Accepts[0].Amount
			if x.world.secondEndpoint && auth == 1 {
				amount = x.offers[1].Required("").Accepts[0].Amount
			}
			b.Transfers = append(b.Transfers, reconcile.Transfer{
				Transaction: transactionOf(auth), Block: blockOf(at, auth), Time: x.instants[at], From: x402.Address{19: 7}, To: addressOf(terms().PayTo),
				Value: must(x402.ParseUint256(amount)), Authorized: true, Nonce: nonce,
			})
		}
	}
	return b
}

const blocksPerInstant = 10

func blockOf(at, auth int) uint64 { return uint64(at*blocksPerInstant + auth + 1) }
