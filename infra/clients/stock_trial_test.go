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

// killMoment is a moment in a purchase. The service of a trial is killed as soon as every
// buyer of the trial has reached that moment.
type killMoment string

const (
	// beforeVerdict means that the facilitator has moved the money, and the service does not
	// know it yet. The facilitator does not fail before the service runs again.
	beforeVerdict killMoment = "before the verdict"
	// duringLookup means that the service has heard from the facilitator that the money has
	// moved, and waits for the answer of the resolver.
	duringLookup killMoment = "during the lookup"
	// betweenCalls means that the service has answered the first call.
	betweenCalls killMoment = "between calls"
)

// trial is a service and its buyers, with a facilitator that fails in one mode. The service is
// killed once, and starts again on the same port and ledger.
type trial struct {
	name    string
	row     string // the trial's row in charged.md
	mode    failureMode
	moment  killMoment
	gateway *gateway // the gateway through which the clients call the service
	world   world
	addr    string // the service's address
	service service

	begun   time.Time
	due     chan<- *trial // receives the trial when its service must be killed
	answers chan struct{} // closed when the resolver may answer
	free    func()        // closes answers
	held    sync.Once
	mu      sync.Mutex
	buyers  map[string]*buyer // by payer, in lower case
	revived bool              // whether the service was killed and runs again
	failing bool              // whether the goods fail at first (see fails)
}

// buyer is one purchase: a payer with a new key asks one question.
type buyer struct {
	trial  *trial
	column int // the client's column in the table of charged.md
	payer  string
	order  purchase
	result loopResult

	// The gateway and the facilitator record these fields. The trial's lock protects them.
	reached     bool                    // whether the buyer has reached the moment of the trial
	settlements map[string]settleAnswer // the facilitator's answers that report success, by nonce
	plays       int
	early       bool // whether a result came before the service was killed
	replies     int
	owed        int             // the number of replies which say that the service owes the answer (see owes)
	results     int             // the number of results after the service was killed
	signed      map[string]bool // the nonces that the buyer has sent
	served      map[string]bool // the different results that the buyer got
	story       []string
}

func (b *buyer) note(format string, args ...any) {
	b.story = append(b.story, fmt.Sprintf("%5.1f s  ", time.Since(b.trial.begun).Seconds())+fmt.Sprintf(format, args...))
}

// account returns the recorded events of a purchase, as text for the message of a failed test.
func (b *buyer) account() string {
	b.trial.mu.Lock()
	defer b.trial.mu.Unlock()
	return fmt.Sprintf("%s: the client was told %v\n%s", b.trial.name, b.result.Told, strings.Join(b.story, "\n"))
}

// transfers returns how many times the buyer has paid.
func (b *buyer) transfers() int { return len(b.trial.world.books.Moved(b.payer)) }

// check checks that the buyer has paid exactly once and has got exactly one answer. If
// mode.unanswered is set, the buyer must have got no answer.
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
		least = 1 // after one refusal the service may be killed; when it runs again, it asks the chain
	}
	if b.trial.moment == beforeVerdict && (b.early || mode.plays == everyTime) {
		least = 0 // on a busy machine, the service may ask the chain, not the facilitator
	}
	fault(b.plays < least, "the facilitator failed %d times, not %d", b.plays, least)
	fault(len(b.signed) < 2, "only %d signatures: the client is not tried", len(b.signed))
	fault(b.trial.failing && b.owed < leastOwed, "what is sold failed %d times, not %d", b.owed, leastOwed)
	if len(faults) > 0 {
		t.Errorf("%s: %s\n%s", c.title, strings.Join(faults, "; "), b.account())
	}
}

// reach records that a buyer has reached the moment of the trial. The caller holds the lock.
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

// newTrial returns a trial that has no buyers yet, and whose service is not started yet.
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
	r.gateway.afterPlan = r.passOn
	r.world.env["FACILITATOR_URL"] = testbed.Serve(t, testbed.Relay{To: r.world.books, Do: r.settle})
	r.world.env["DUPLICATE_WINDOW_SECONDS"] = wideWindow
	if mode.node != nil {
		r.world.env["RPC_URL"] = testbed.Serve(t, mode.node(r.world.books))
	}
	return r
}

// buy adds a buyer who uses the client of the given column.
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

// lookupsHeld is the longest time for which the resolver holds its answers back. A lookup
// survives this time, because the lookup is tried five times, which takes longer in total.
const lookupsHeld = 20 * time.Second

// lookUp is called for every query to the resolver, and reports whether it has answered the
// query.
func (t *trial) lookUp(w dns.ResponseWriter, q *dns.Msg) bool {
	if t.moment == duringLookup {
		t.held.Do(func() { time.AfterFunc(lookupsHeld, t.free) })
		<-t.answers
	}
	return t.failsNow() && fail(w, q)
}

// fail answers a query with REFUSED, and returns true.
func fail(w dns.ResponseWriter, q *dns.Msg) bool {
	_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) // fails if the client has hung up
	return true
}

// leastOwed is how many replies must tell each buyer that the service owes the answer, before
// the goods work again.
const leastOwed = 2

// fails makes the goods of the trial fail until every buyer has got leastOwed replies which say
// that the service owes the answer.
func (t *trial) fails(tb *testing.T) {
	t.name += ", what is sold fails"
	t.failing = true
	t.world.env["STATION"] = testbed.Serve(tb, station(t.failsNow))
}

// failsNow reports whether the goods still fail.
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

// station returns a handler for the weather that the shop sells. While fails returns true, the
// handler answers 502.
func station(fails func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fails() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, "fair") // fails if the client has hung up
	})
}

// restart kills the service with SIGKILL, and starts it again on the same port and ledger.
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

// longDelay is longer than the five seconds that httpx waits. The other clients have no timeout.
const longDelay = 6 * time.Second

// passOn is the gateway's step for a request with a payment. A result is an answer with status
// 200. The step drops the first answer to each buyer, and every result until the service is
// killed. Of the later results to a buyer, it cuts the first in half, delays the second, and
// lets the others arrive.
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

// seen records an answer to a payment, and reports whether the gateway must drop it. If the
// answer is a result that is not dropped, seen also returns how many such results the buyer
// has now.
func (t *trial) seen(signature string, answer x402test.Reply) (lost bool, results int) {
	var p x402.Payload
	raw, _ := base64.StdEncoding.DecodeString(signature)
	_ = json.Unmarshal(raw, &p) // if the payment is invalid, the service says so
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
	// If a result comes before the service is killed, the buyer has already passed the moment
	// of the trial, so the trial must not wait for this buyer.
	if t.moment == betweenCalls || result {
		t.reach(b)
	}
	return lost, results
}

// owes reports whether a reply is an error that has a receipt: the payment was made, and the
// service owes the answer.
func owes(answer x402test.Reply) bool {
	receipt, err := answer.Receipt()
	return answer.Status >= http.StatusInternalServerError && err == nil && receipt.Success
}
