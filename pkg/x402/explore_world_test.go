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

// exploredWorld describes a small world and all its bounds.
type exploredWorld struct {
	name              string
	hasNode           bool               // there is a node to ask about the chain
	twoFacilitators   bool               // there are two facilitators
	hasKey            bool               // the payer names the purchase with a key
	echoesTokens      bool               // the payer's clients echo the retry token
	separatePurchases bool               // each payment is a separate purchase
	window            time.Duration      // Request.Window of every request
	instants          []time.Duration    // the times since the beginning at which something can happen
	authCount         int                // number of authorizations for the purchase, without the extra one (extraAuth)
	maxProcesses      int                // largest number of processes at once
	replies           []facilitatorReply // the possible replies of the facilitator
	workEnds          []workEnd          // the ways in which the work can end
	nodeMayFail       bool               // the node may fail, at most budget.nodeFailures times
	hasSecondEndpoint bool               // the second authorization is for another endpoint; the prices differ unless onePrice is set
	onePrice          bool               // if hasSecondEndpoint is set, both endpoints have the same price
	hasCheck          bool               // each request comes in two forms; the seller's check refuses one of them
	mostRuns          int                // the largest number of runs of the work for a payment; 0 means no limit
	budget            budget

	// Each of the following settings makes the Gate omit a rule.
	changeRead          func(r *ledger.Payment) // changes each payment that a process reads; nil changes nothing
	claimsFirstEndpoint bool                    // every request says that it is at the first endpoint
	skipsCheck          bool                    // the seller's check is never asked
	checksFirst         bool                    // the seller's check is asked before everything else
}

// budget holds how many more times each event may happen.
type budget struct {
	requests, reconcilerRuns, refunds, attestations, crashes, storeFaults uint8

	falseReplies        uint8 // false replies of facilitators
	strangerSubmissions uint8 // authorizations that somebody else submits to the chain
	cancellations       uint8 // authorizations that the payer cancels
	nodeFailures        uint8 // failures of the node
	freezes             uint8 // how often the clock may move while a process runs
}

// The records of a world are numbered. The record of a payment has the number of its
// authorization: 0, 1 or 2.
const (
	paymentCount   = 3 // the count of payments, including the one with the extra authorization
	purchaseRecord = 3 // the number of the record of the purchase
	cursorRecord   = 4 // the number of the record of the cursor
	recordCount    = 5 // the count of all records
	extraAuth      = 2 // the number of the extra authorization; the payer signs it only in a continuation without faults
	listBase       = 8 // the base in which a list of payments is encoded in one number
)

// truth is the true state of an authorization on the chain.
type truth uint8

const (
	truthUnused truth = iota
	truthMoved
	truthCancelled
)

// chainState describes what has truly happened to an authorization.
type chainState struct {
	truth         truth
	spentAt       int8 // the instant at which the authorization was used or cancelled
	movedByUs     bool // the money was moved by a facilitator to which we sent it
	liedAbout     bool // a facilitator gave a false reply about the payment
	pending       bool // a facilitator has sent the authorization to the chain, and no block has it yet
	toldUncharged bool // pending is true, and the payer has meanwhile been told that nothing is charged

	// The explorer's checks keep the following notes.
	overOwners        uint8 // one bit for each earlier owner of the purchase that was over when it was replaced
	hasFullAnswer     bool  // a whole answer was given for the payment, and is on record
	answeredFirsthand bool  // a whole answer on record was given by the request that did the work, and not as a replay
	refunded          bool  // the record of the payment says that the refund was made
}

// processState is a process that runs in a state of the world.
type processState struct {
	node int32 // number of the process's node; 0 means that there is no process
	// claimedAuths has one bit for each authorization that the process has claimed in order to
	// settle it. toldUncharged has the bits of those authorizations about which the payer has
	// been told, after the claim, that nothing is charged.
	claimedAuths, toldUncharged uint8

	// The following fields are set only for a request, and say what was true when the request
	// arrived. Here, "the payment" is the one that the request brings.
	hadNoRecord      bool  // the payment had no record
	answerReplayable bool  // the payment's answer was on record, and could be replayed
	overAuths        uint8 // one bit for each authorization whose payment was over (isOver)
	sentWithoutToken bool  // the payment was on record as sent, and its record had no retry token
	couldRunLookup   bool  // the payment was paid and not answered, and a lookup could run for it
}

// state is a state of the world.
type state struct {
	now        int8               // the number of the current instant
	nextSerial uint8              // task.serial of the next process
	recs       [recordCount]int32 // the stored record for each key, as its number; 0 means that there is none
	chain      [paymentCount]chainState
	procs      [2]processState
	budgetLeft budget
}

func (s *state) quiet() bool { return s.procs[0].node == 0 && s.procs[1].node == 0 }

// explorer walks through the states of a world.
type explorer struct {
	t           testing.TB
	world       exploredWorld
	rules       ledger.Rules
	conclusions []x402.Conclusion
	offers      [2]*x402.Offer
	instants    []time.Time // the world's instants, then the instants of a faultless continuation from each of them
	keys        [recordCount]string
	largeAnswer []byte

	records   []ledger.Record
	numbers   map[string]int32 // the index of each record in records, by the record's content
	canonical map[canonicalKey]int32
	nodes     []*node
	roots     map[task]*node
	liveNodes []*node // the nodes that keep a running process, oldest first

	states        []step
	knownStates   map[uint64]struct{} // the hashes of the known states
	seed          maphash.Seed
	trialAnswered map[trial]bool // whether the payment of a trial is answered in the end

	transitions      int
	violationStates  map[string]int32  // the number of the state just before each violation; the key is the violation's name
	violationStories map[string]string // the story of each violation; the key is the violation's name
	currentStep      step              // the step that is being taken
	sequel           []string          // the story of the faultless continuation after that step
	stopAtFirst      bool
	wholeDays        bool // every instant of the world is less than an hour, or at least 25 hours, after the beginning

	reachedEdges       []bool
	reachedConclusions []*atomic.Bool
	reachedStandings   map[ledger.Standing]bool
}

// step is a state, and the action by which that state was first reached. fromState is the
// number of the state before the action.
type step struct {
	state     state
	fromState int32
	action    action
}

type canonicalKey struct {
	rec int32
	now int8
}

// explorationStart is when every exploration begins. The clock of a synctest bubble is much
// earlier, so that no deadline of a context is ever reached.
var explorationStart = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// faultlessTimes returns the times of the instants in a continuation without faults, measured
// from the instant at which it begins.
func faultlessTimes() []time.Duration {
	return []time.Duration{20 * time.Second, 80 * time.Second, 12 * time.Minute, time.Hour, 19 * time.Hour, 26 * time.Hour, 50 * time.Hour}
}

// nextInstant returns the instant that follows now in a continuation without faults. If now is
// an instant of the world, nextInstant returns the first instant of the continuation that
// begins there. After the last instant, ok is false.
func (x *explorer) nextInstant(now int8) (next int8, ok bool) {
	worldCount, perInstant := len(x.world.instants), len(faultlessTimes())
	if int(now) < worldCount {
		return int8(worldCount + int(now)*perInstant), true
	}
	if (int(now)-worldCount)%perInstant == perInstant-1 {
		return now, false
	}
	return now + 1, true
}

// validityPeriods returns how long each authorization is valid. The period begins when the
// world begins or, for the extra authorization, when the payer signs it.
func validityPeriods() [paymentCount]time.Duration {
	return [paymentCount]time.Duration{60 * time.Second, 20 * time.Hour, 20 * time.Hour}
}

func newExplorer(t *testing.T, w exploredWorld, rules ledger.Rules, conclusions []x402.Conclusion) *explorer {
	x := &explorer{
		t: t, world: w, conclusions: conclusions, records: []ledger.Record{nil}, numbers: map[string]int32{},
		canonical: map[canonicalKey]int32{}, nodes: []*node{nil}, roots: map[task]*node{}, knownStates: map[uint64]struct{}{}, seed: maphash.MakeSeed(),
		trialAnswered: map[trial]bool{}, violationStates: map[string]int32{}, violationStories: map[string]string{}, reachedStandings: map[ledger.Standing]bool{},
		largeAnswer: newLargeAnswer(),
	}
	price := "4000"
	if w.onePrice {
		price = "5000"
	}
	x.offers = [2]*x402.Offer{offer(t, terms(), "5000", "Oslo"), offer(t, terms(), price, "Rome")}
	x.watchEdges(rules)
	for range conclusions {
		x.reachedConclusions = append(x.reachedConclusions, &atomic.Bool{})
	}
	x.wholeDays = true
	for _, d := range w.instants {
		x.instants = append(x.instants, explorationStart.Add(d))
		x.wholeDays = x.wholeDays && (d < time.Hour || d >= 25*time.Hour)
	}
	for _, at := range x.instants[:len(w.instants)] {
		for _, d := range faultlessTimes() {
			x.instants = append(x.instants, at.Add(d))
		}
	}
	for i := range paymentCount {
		x.keys[i] = x.signedPayment(task{auth: int8(i)}).Key()
	}
	key := ""
	if w.hasKey {
		key = exploredKey
	}
	x.keys[purchaseRecord] = x402.PurchaseOf(x.offers[0], x.signedPayment(task{}), key, exploredRequest)
	asked := terms()
	x.keys[cursorRecord] = ledger.CursorKey(asked.Network, strings.ToLower(asked.Asset), strings.ToLower(asked.PayTo))
	return x
}

// watchEdges makes the explorer note which edges of the rules are taken.
func (x *explorer) watchEdges(rules ledger.Rules) {
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

// signedPayment returns the signed payment of a task.
func (x *explorer) signedPayment(t task) x402.Signed {
	payer := x402.Address{19: 7}
	until := explorationStart
	if t.auth == extraAuth {
		until = x.instants[t.signedAt]
	}
	until = until.Add(validityPeriods()[t.auth])
	token, o := "", x.offers[0]
	if x.world.echoesTokens {
		token = fmt.Sprintf("token-%d", t.auth)
	}
	if x.world.hasSecondEndpoint && t.auth == 1 {
		o = x.offers[1]
	}
	return x402.SignedFor(o, payer, byte(t.auth), until, token)
}

// windowEnd returns the time at which the window of an authorization ends. The window of the
// extra authorization begins when the payer signs it. If that authorization has no record yet,
// windowEnd assumes that the payer signs now.
func (x *explorer) windowEnd(s *state, auth int) time.Time {
	if auth == extraAuth {
		if r := x.payment(s, auth); r != nil {
			return r.ValidBefore
		}
		return x.instants[s.now].Add(validityPeriods()[extraAuth])
	}
	return explorationStart.Add(validityPeriods()[auth])
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

// recordNumber returns the number of a record. Records with the same content have the same
// number.
func (x *explorer) recordNumber(r ledger.Record) int32 {
	doc, body, err := ledger.Marshal(r)
	if err != nil {
		panic(err)
	}
	content := string(doc) + "\x00" + string(body)
	n, ok := x.numbers[content]
	if !ok {
		n = int32(len(x.records))
		x.records, x.numbers[content] = append(x.records, r), n
	}
	return n
}

// batch returns what a Scanner finds on the chain at an instant, from a given block on. Each
// instant has ten blocks, and the blocks of the current instant are not safe yet. The argument
// moved encodes the transfers. It has one byte for each authorization: the number of the
// transfer's instant plus one, or 0 if there is no transfer.
func (x *explorer) batch(moved int32, from uint64, now int) reconcile.Batch {
	b := reconcile.Batch{Next: from, Safe: uint64(now) * blocksPerInstant, SafeTime: x.instants[now]}
	b.Next = max(from, b.Safe+1)
	for auth := range paymentCount {
		if at := int(moved>>(8*auth)&0xff) - 1; at >= 0 {
			var nonce [32]byte
			nonce[31] = byte(auth)
			amount := x.offers[0].Required("").Accepts[0].Amount
			if x.world.hasSecondEndpoint && auth == 1 {
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
