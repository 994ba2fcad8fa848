package clients

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// killMoment is when the service is killed: when it has come for every buyer.
type killMoment string

const (
	// beforeVerdict: the facilitator has moved the money, and the service has not
	// heard of it. The mode is played to the process that follows.
	beforeVerdict killMoment = "before the verdict"
	// duringLookup: the facilitator has answered so that the money is known to
	// have moved, and the resolver holds its answer back.
	duringLookup killMoment = "during the lookup"
	// betweenCalls: the service has answered a first call.
	betweenCalls killMoment = "between calls"
)

// trial is one service with a facilitator that plays one mode, and its buyers. The service is
// killed once and starts again on the same port and ledger.
type trial struct {
	name    string
	row     string // what charged.md calls it
	mode    failureMode
	moment  killMoment
	gateway *gateway // what the clients call
	world   world
	addr    string // of the service
	service service

	begun   time.Time
	due     chan<- *trial // is told when the service is to be killed
	answers chan struct{} // closed when the resolver answers
	free    func()        // closes it
	held    sync.Once
	mu      sync.Mutex
	buyers  map[string]*buyer // by payer, lower case
	revived bool
	failing bool // what is sold fails until every buyer was told that twice
}

// buyer is one purchase: a payer with a new key asks one question.
type buyer struct {
	trial  *trial
	column int // of the table: the client
	payer  string
	order  purchase
	result loopResult

	// What was seen of it; the trial's lock protects it.
	reached     bool
	settlements map[string]settleAnswer // by nonce
	plays       int
	early       bool // a result came before the service was killed, which was too late for it
	replies     int
	owed        int // of them, those that say that it is paid and owe the answer
	results     int
	signed      map[string]bool // nonces that were sent
	served      map[string]bool // different results
	story       []string
}

func (b *buyer) note(format string, args ...any) {
	b.story = append(b.story, fmt.Sprintf("%5.1f s  ", time.Since(b.trial.begun).Seconds())+fmt.Sprintf(format, args...))
}

// account is what was seen of a purchase, to find out why it went wrong.
func (b *buyer) account() string {
	b.trial.mu.Lock()
	defer b.trial.mu.Unlock()
	return fmt.Sprintf("%s: the client was told %v\n%s", b.trial.name, b.result.Told, strings.Join(b.story, "\n"))
}

// transfers is how often the buyer has paid.
func (b *buyer) transfers() int { return len(b.trial.world.books.Moved(b.payer)) }

// check holds one purchase to its answer, and to its one settlement.
func (b *buyer) check(t *testing.T, c stockClient) {
	var faults []string
	mode, sold := b.trial.mode, b.trial.world.goods
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	fault(b.transfers() != 1, "paid %d times", b.transfers())
	for _, moved := range b.trial.world.books.Moved(b.payer) {
		fault(moved.Value != sold.amount, "paid %s", moved.Value)
	}
	results := 0
	if !mode.unanswered {
		results = 1
		faults = append(faults, b.result.check(sold.answer)...)
	}
	fault(len(b.served) != results, "%d different results", len(b.served))
	least := mode.plays
	if least == everyTime {
		least = 1 // a killed service may hear the first refusal only, and has the chain asked
	}
	if b.trial.moment == beforeVerdict && (b.early || mode.plays == everyTime) {
		least = 0 // on a busy machine the settlement times out, or the service is back late: the chain is asked
	}
	fault(b.plays < least, "the facilitator failed %d times, not %d", b.plays, least)
	fault(len(b.signed) < 2, "only %d signatures: the client is not tried", len(b.signed))
	fault(b.trial.failing && b.owed < leastOwed, "what is sold failed %d times, not %d", b.owed, leastOwed)
	if len(faults) > 0 {
		t.Errorf("%s: %s\n%s", c.title, strings.Join(faults, "; "), b.account())
	}
}

// reach notes that the moment has come for a buyer. The lock is held.
func (t *trial) reach(b *buyer) {
	if b.reached {
		return
	}
	b.reached = true
	for _, other := range t.buyers {
		if !other.reached {
			return
		}
	}
	t.due <- t
}

// newTrial prepares a trial of a program that sells.
func newTrial(t *testing.T, sold goods, mode failureMode, moment killMoment, due chan<- *trial) *trial {
	r := &trial{
		name: sold.name + ", " + mode.name + ", " + string(moment), row: fmt.Sprintf("`%s`: %s", mode.name, mode.means),
		mode: mode, moment: moment, addr: testbed.FreeAddr(t), due: due,
		buyers: map[string]*buyer{}, answers: make(chan struct{}),
	}
	r.free = sync.OnceFunc(func() { close(r.answers) })
	r.world = newWorld(t, resolverOf(t, exampleZone(t), r.lookUp))
	r.world.goods = sold
	t.Cleanup(r.free)
	r.gateway = newGateway(t, "http://"+r.addr)
	r.gateway.every = r.passOn
	r.world.env["FACILITATOR_URL"] = testbed.Serve(t, testbed.Relay{To: r.world.books, Do: r.settle})
	r.world.env["DUPLICATE_WINDOW_SECONDS"] = wideWindow
	if mode.node != nil {
		r.world.env["RPC_URL"] = testbed.Serve(t, mode.node(r.world.books))
	}
	return r
}

// buy adds a buyer.
func (t *trial) buy(tb *testing.T, column int, keyed bool) {
	order, payer := orderOf(tb, t.gateway.url, t.world.goods, keyed)
	if t.mode.unanswered {
		order.Calls = callsInVain
	}
	t.buyers[payer] = &buyer{
		trial: t, column: column, payer: payer, order: order,
		settlements: map[string]settleAnswer{}, signed: map[string]bool{}, served: map[string]bool{},
	}
}

// lookupsHeld is how long the resolver holds answers back at most: five lookups take longer.
const lookupsHeld = 20 * time.Second

// lookUp is called for every question to the resolver, and says whether it was answered.
func (t *trial) lookUp(w dns.ResponseWriter, q *dns.Msg) bool {
	if t.moment == duringLookup {
		t.held.Do(func() { time.AfterFunc(lookupsHeld, t.free) })
		<-t.answers
	}
	return t.failsNow() && fail(w, q)
}

// fail is the answer of a resolver that refuses to find out.
func fail(w dns.ResponseWriter, q *dns.Msg) bool {
	_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) // who asks may be gone
	return true
}

// leastOwed is how often every buyer is told that the answer is owed, before what is sold
// works again.
const leastOwed = 2

// fails has what is sold fail for a while.
func (t *trial) fails(tb *testing.T) {
	t.name += ", what is sold fails"
	t.failing = true
	t.world.env["STATION"] = testbed.Serve(tb, station(t.failsNow))
}

// failsNow says that what is sold fails still.
func (t *trial) failsNow() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.failing {
		return false
	}
	for _, b := range t.buyers {
		if b.owed < leastOwed {
			return true
		}
	}
	return false
}

// station knows the weather of the shop, unless it fails.
func station(fails func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fails() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, "fair") // who asks may be gone
	})
}

// restart is kill -9, and another process on the same port and ledger.
func (t *trial) restart(tb *testing.T) {
	t.service.kill()
	t.service = t.world.startAt(tb, t.addr)
	t.free()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revived = true
	for _, b := range t.buyers {
		b.note("the service was killed and is back")
	}
}

// longDelay is longer than the five seconds that httpx waits. The others wait without an end.
const longDelay = 6 * time.Second

// passOn loses the first answer of each buyer, and every result before the service was killed.
// The next result is cut off, the one after it comes late, and then they arrive.
func (t *trial) passOn(r *testbed.Relayed) {
	answer := r.Answer()
	body := answer.Body.Bytes()
	lost, results := t.seen(r.Request.Header.Get(x402.HeaderSignature), x402test.Reply{Status: answer.Code, Header: answer.Header(), Body: body})
	if results == 2 {
		select {
		case <-time.After(longDelay):
		case <-r.Context().Done():
		}
	}
	switch {
	case lost:
		r.Drop()
	case results == 1:
		r.Send(answer, len(body)/2)
	default:
		r.Send(answer, len(body))
	}
}

// seen notes an answer to a payment: is it lost, and how many results of its buyer's are not.
func (t *trial) seen(signature string, answer x402test.Reply) (lost bool, results int) {
	var p x402.Payload
	raw, _ := base64.StdEncoding.DecodeString(signature)
	_ = json.Unmarshal(raw, &p) // the service judges it
	signed := p.Payload.Authorization
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buyers[strings.ToLower(signed.From)]
	if b == nil {
		return false, 0
	}
	b.signed[signed.Nonce] = true
	b.replies++
	if owes(answer) {
		b.owed++
	}
	result := answer.Status == 200
	lost = b.replies == 1 || result && !t.revived
	if result {
		b.early = b.early || !t.revived
		b.served[string(answer.Body)] = true
		if !lost {
			b.results++
			results = b.results
		}
	}
	b.note("signed %.10s: %d %v lost %t", signed.Nonce, answer.Status, testbed.FaultOf(answer), lost)
	// A client that has a result before the service was killed has had the lookup, too.
	if t.moment == betweenCalls || result {
		t.reach(b)
	}
	return lost, results
}

// owes says that an answer is that of a payment which was made, and whose answer is owed.
func owes(answer x402test.Reply) bool {
	receipt, err := answer.Receipt()
	return answer.Status >= http.StatusInternalServerError && err == nil && receipt.Success
}
