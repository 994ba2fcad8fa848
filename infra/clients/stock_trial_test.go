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

	begun            time.Time
	due              chan<- *trial // receives the trial when its service must be killed
	mayAnswer        chan struct{} // closed when the resolver may answer
	releaseAnswers   func()        // closes mayAnswer
	limitHold        sync.Once
	mu               sync.Mutex
	buyers           map[string]*buyer // by payer, in lower case
	wasRestarted     bool              // whether the service was killed and runs again
	goodsFailAtFirst bool              // whether the goods fail at first (see makeGoodsFail)
}

// buyer is one purchase: a payer with a new key asks one question.
type buyer struct {
	trial  *trial
	column int // the client's column in the table of charged.md
	payer  string
	order  purchase
	result loopResult

	// The gateway and the facilitator record these fields. The trial's lock protects them.
	reached          bool                    // whether the buyer has reached trial.moment
	settlements      map[string]settleAnswer // the facilitator's answers that report success, by nonce
	settleCalls      int
	hadEarlyResult   bool // whether an answer with status 200 came before the service was killed
	replies          int
	owedReplies      int             // the number of replies which say that the service owes the answer (see owesAnswer)
	results          int             // the number of answers with status 200 after the service was killed
	nonces           map[string]bool // the nonces that the buyer has sent
	differentResults map[string]bool // the different bodies of all answers with status 200
	story            []string
}

func (b *buyer) note(format string, args ...any) {
	b.story = append(b.story, fmt.Sprintf("%5.1f s  ", time.Since(b.trial.begun).Seconds())+fmt.Sprintf(format, args...))
}

// history returns the recorded events of a purchase, as text for the message of a failed test.
func (b *buyer) history() string {
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
	fault(len(b.differentResults) != results, "%d different results", len(b.differentResults))
	least := mode.failures
	if least == everyTime {
		least = 1 // after one refusal the service may be killed; when it runs again, it asks the chain
	}
	if b.trial.moment == beforeVerdict && (b.hadEarlyResult || mode.failures == everyTime) {
		least = 0 // on a busy machine, the service may ask the chain, not the facilitator
	}
	fault(b.settleCalls < least, "the facilitator failed %d times, not %d", b.settleCalls, least)
	fault(len(b.nonces) < 2, "only %d signatures: the client is not tried", len(b.nonces))
	fault(b.trial.goodsFailAtFirst && b.owedReplies < minOwedReplies, "what is sold failed %d times, not %d", b.owedReplies, minOwedReplies)
	if len(faults) > 0 {
		t.Errorf("%s: %s\n%s", c.title, strings.Join(faults, "; "), b.history())
	}
}

// markReached records that a buyer has reached t.moment. When all buyers have reached it,
// markReached sends the trial to the channel t.due. The caller holds the lock.
func (t *trial) markReached(b *buyer) {
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
		name: sold.name + ", " + mode.name + ", " + string(moment), row: fmt.Sprintf("`%s`: %s", mode.name, mode.description),
		mode: mode, moment: moment, addr: testbed.FreeAddr(t), due: due,
		buyers: map[string]*buyer{}, mayAnswer: make(chan struct{}),
	}
	r.releaseAnswers = sync.OnceFunc(func() { close(r.mayAnswer) })
	r.world = newWorld(t, resolverOf(t, exampleZone(t), r.lookUp))
	r.world.goods = sold
	t.Cleanup(r.releaseAnswers)
	r.gateway = newGateway(t, "http://"+r.addr)
	r.gateway.afterPlan = r.passOn
	r.world.env["FACILITATOR_URL"] = testbed.Serve(t, testbed.Relay{To: r.world.books, Do: r.answerSettle})
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
		settlements: map[string]settleAnswer{}, nonces: map[string]bool{}, differentResults: map[string]bool{},
	}
}

// maxLookupHold limits how long the resolver holds its answers back. No lookup fails because
// of this delay: the service tries a lookup five times, which takes longer in total.
const maxLookupHold = 20 * time.Second

// lookUp is called for every query to the resolver, and reports whether it has answered the
// query.
func (t *trial) lookUp(w dns.ResponseWriter, q *dns.Msg) bool {
	if t.moment == duringLookup {
		t.limitHold.Do(func() { time.AfterFunc(maxLookupHold, t.releaseAnswers) })
		<-t.mayAnswer
	}
	return t.goodsStillFail() && refuseQuery(w, q)
}

// refuseQuery answers a query with REFUSED, and returns true.
func refuseQuery(w dns.ResponseWriter, q *dns.Msg) bool {
	_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) // fails if the client has hung up
	return true
}

// minOwedReplies is how many replies must tell each buyer that the service owes the answer,
// before the goods work again.
const minOwedReplies = 2

// makeGoodsFail makes the goods of the trial fail until every buyer has got minOwedReplies
// replies which say that the service owes the answer.
func (t *trial) makeGoodsFail(tb *testing.T) {
	t.name += ", what is sold fails"
	t.goodsFailAtFirst = true
	t.world.env["STATION"] = testbed.Serve(tb, weatherStation(t.goodsStillFail))
}

// goodsStillFail reports whether the goods still fail.
func (t *trial) goodsStillFail() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.goodsFailAtFirst {
		return false
	}
	for _, b := range t.buyers {
		if b.owedReplies < minOwedReplies {
			return true
		}
	}
	return false
}

// weatherStation returns a handler for the weather that the shop sells. While shouldFail
// returns true, the handler answers 502.
func weatherStation(shouldFail func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if shouldFail() {
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
	t.releaseAnswers()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wasRestarted = true
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
	lost, results := t.recordAnswer(r.Request.Header.Get(x402.HeaderSignature), x402test.Reply{Status: answer.Code, Header: answer.Header(), Body: body})
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

// recordAnswer records an answer to a payment, and reports whether the gateway must drop it.
// If the answer has status 200 and is not dropped, recordAnswer also returns how many such
// answers the buyer has now.
func (t *trial) recordAnswer(signature string, answer x402test.Reply) (lost bool, results int) {
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
	b.nonces[signed.Nonce] = true
	b.replies++
	if owesAnswer(answer) {
		b.owedReplies++
	}
	result := answer.Status == 200
	lost = b.replies == 1 || result && !t.wasRestarted
	if result {
		b.hadEarlyResult = b.hadEarlyResult || !t.wasRestarted
		b.differentResults[string(answer.Body)] = true
		if !lost {
			b.results++
			results = b.results
		}
	}
	b.note("signed %.10s: %d %v lost %t", signed.Nonce, answer.Status, testbed.FaultOf(answer), lost)
	// A buyer with a result has passed t.moment, so the trial must not wait for this buyer.
	if t.moment == betweenCalls || result {
		t.markReached(b)
	}
	return lost, results
}

// owesAnswer reports whether a reply is an error that has a receipt: the payment was made, and
// the service owes the answer.
func owesAnswer(answer x402test.Reply) bool {
	receipt, err := answer.Receipt()
	return answer.Status >= http.StatusInternalServerError && err == nil && receipt.Success
}
