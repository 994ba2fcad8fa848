package clients

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os/exec"
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

// trial is one service with a facilitator that plays one mode, and its buyers,
// who reach it through a gateway. The service is killed once and starts again on
// the same port and ledger.
type trial struct {
	name    string
	mode    failureMode
	moment  killMoment
	gateway *gateway // what the clients call
	world   world
	addr    string // of the service
	service service
	logs    []func() string // of the service's processes

	begun   time.Time
	due     chan<- *trial // is told when the service is to be killed
	answers chan struct{} // closed when the resolver answers
	free    func()        // closes it
	held    sync.Once
	mu      sync.Mutex
	buyers  map[string]*buyer // by payer, lower case
	revived bool
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
	sent        map[string]bool         // nonces that reached the facilitator
	plays       int
	early       bool // a result came before the service was killed, which was too late for it
	replies     int
	results     int
	signed      map[string]bool // nonces that were sent
	served      map[string]bool // different results
	story       []string
}

// purchase is what a client program is told, and loopResult what it prints.
type purchase struct {
	ID      string            `json:"id"`
	URL     string            `json:"url"`
	Network string            `json:"network"`
	Key     string            `json:"key"`
	Headers map[string]string `json:"headers"`
	// Calls is how many the loop makes at most, and Timeout in how many seconds the
	// client gives one up; 0 leaves that to the client.
	Calls   int `json:"calls"`
	Timeout int `json:"timeout"`
}

type loopResult struct {
	ID            string
	Told          []int // the status of each call; 0: no whole answer
	Answer, Again struct {
		Status int
		Body   string
	}
}

func (b *buyer) note(format string, args ...any) {
	b.story = append(b.story, fmt.Sprintf("%5.1f s  ", time.Since(b.trial.begun).Seconds())+fmt.Sprintf(format, args...))
}

// reached notes that the moment has come for a buyer. The lock is held.
func (t *trial) reached(b *buyer) {
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

// newTrial prepares a trial of a program that sells; launch starts it.
func newTrial(t *testing.T, sold goods, mode failureMode, moment killMoment, due chan<- *trial) *trial {
	t.Helper()
	r := &trial{
		name: sold.name + ", " + mode.name + ", " + string(moment), mode: mode, moment: moment, addr: fixedAddress(t), due: due,
		buyers: map[string]*buyer{}, begun: time.Now(), answers: make(chan struct{}),
	}
	r.free = sync.OnceFunc(func() { close(r.answers) })
	r.world = newWorld(t, resolverOf(t, exampleZone(t), r.holdLookup))
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

// lookupsHeld is how long the resolver holds its answers back at most. The five
// lookups of a payment are not used up by then, on a machine that is so busy that
// the moment has not come for everybody.
const lookupsHeld = 20 * time.Second

// holdLookup is called for every question to the resolver.
func (t *trial) holdLookup(dns.ResponseWriter, *dns.Msg) bool {
	if t.moment == duringLookup {
		t.held.Do(func() { time.AfterFunc(lookupsHeld, t.free) })
		<-t.answers
	}
	return false
}

// given are the ports that fixedAddress has returned. Dozens are chosen before the
// first is listened on, and of so many two would often be the same.
var given sync.Map

// fixedAddress is a free address that the service can have twice: its port is
// below those that the kernel gives to connections.
func fixedAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		n, err := rand.Int(rand.Reader, big.NewInt(12000))
		if err != nil {
			t.Fatal(err)
		}
		if _, before := given.LoadOrStore(n.Int64(), true); before {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+n.Int64()))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port from 20000 to 31999")
	return ""
}

// launch starts the service, or starts it again.
func (t *trial) launch(tb *testing.T) {
	tb.Helper()
	t.service = t.world.startAt(tb, t.addr)
	t.logs = append(t.logs, t.service.log)
}

// restart is kill -9, and another process on the same port and ledger.
func (t *trial) restart(tb *testing.T) {
	tb.Helper()
	t.service.kill()
	t.launch(tb)
	t.free()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revived = true
	for _, b := range t.buyers {
		b.note("the service was killed and is back")
	}
}

// buy adds a buyer.
func (t *trial) buy(tb *testing.T, column int, keyed bool) {
	tb.Helper()
	order, payer := orderOf(tb, t.gateway.url+t.world.goods.path, keyed)
	if t.mode.unanswered {
		order.Calls = callsInVain
	}
	t.buyers[payer] = &buyer{
		trial: t, column: column, payer: payer, order: order,
		settlements: map[string]settleAnswer{}, sent: map[string]bool{}, signed: map[string]bool{}, served: map[string]bool{},
	}
}

// orderOf is a purchase of what is at a URL, by a payer with a new key.
func orderOf(tb testing.TB, url string, keyed bool) (order purchase, payer string) {
	tb.Helper()
	key := newPayer()
	w, err := x402test.WalletFromHex(strings.TrimPrefix(key, "0x"), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	order = purchase{ID: rand.Text(), URL: url, Network: testbed.BaseNetwork, Key: key, Headers: map[string]string{}, Calls: mostCalls}
	if keyed {
		order.Headers[x402.HeaderKey] = rand.Text()
	}
	return order, strings.ToLower(w.Address().String())
}

// transfers is how often the buyer has paid.
func (b *buyer) transfers() int { return len(b.trial.world.books.Moved(b.payer)) }

// account is all that is known of a purchase, to find out why it went wrong.
func (b *buyer) account() string {
	b.trial.mu.Lock()
	lines := append([]string{fmt.Sprintf("%s: the client was told %v", b.trial.name, b.result.Told)}, b.story...)
	b.trial.mu.Unlock()
	for _, log := range b.trial.logs {
		for line := range strings.Lines(log()) {
			if strings.Contains(strings.ToLower(line), b.payer) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// checkLedger holds what make owed finds when all have their answer: nothing is
// owed, and nothing is in doubt but claims that were killed while they waited for
// another payment of their purchase. Those were never sent.
func (t *trial) checkLedger(tb *testing.T) {
	tb.Helper()
	program := testbed.Program(tb, "./infra/local/operate")
	var list []struct{ Key, Standing, Payer string }
	testbed.Until(tb, t.name+": make owed", func() error {
		cmd := exec.CommandContext(tb.Context(), program, "owed", "-json")
		cmd.Dir, cmd.Env = t.world.dir, testbed.Local("", t.world.dir, t.world.env).Env
		out, err := cmd.Output()
		return errors.Join(err, json.Unmarshal(out, &list))
	})
	for _, row := range list {
		nonce := row.Key[strings.LastIndex(row.Key, "|")+1:]
		b := t.buyers[strings.ToLower(row.Payer)]
		switch {
		case b == nil:
			tb.Errorf("%s: left in the ledger by a stranger: %+v", t.name, row)
		case row.Standing != "in_doubt" || b.sent[nonce]:
			tb.Errorf("%s: left in the ledger: %+v\n%s", t.name, row, b.account())
		}
	}
}

// longDelay is longer than the five seconds that httpx waits for an answer when
// nothing else is said. The other clients wait without an end.
const longDelay = 6 * time.Second

// passOn is what the gateway between clients and service does with every payment. Of
// each buyer's answers the first is lost, whatever it says, and so is every result before
// the service was killed. The next result is cut off, the one after it comes late, and
// then they arrive.
func (t *trial) passOn(r *testbed.Relayed) {
	answer := r.Answer()
	body := answer.Body.Bytes()
	switch lost, results := t.seen(r.Request.Header.Get(x402.HeaderSignature), answer.Code, body); {
	case lost:
		r.Drop()
	case results == 1:
		r.Send(answer, len(body)/2)
	case results == 2:
		select {
		case <-time.After(longDelay):
		case <-r.Context().Done():
		}
		fallthrough
	default:
		r.Send(answer, len(body))
	}
}

// seen notes an answer to a payment. It says whether it is lost, and how many results of
// its buyer's are not; 0 for any other answer.
func (t *trial) seen(signature string, status int, body []byte) (lost bool, results int) {
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
	result := status == http.StatusOK
	lost = b.replies == 1 || result && !t.revived
	if result {
		b.early = b.early || !t.revived
		b.served[string(body)] = true
		if !lost {
			b.results++
			results = b.results
		}
	}
	b.note("signed %.10s: %d %s lost %t", signed.Nonce, status, codeIn(status, body), lost)
	// Who has a result before the service was killed has had the lookup, too.
	if t.moment == betweenCalls || result {
		t.reached(b)
	}
	return lost, results
}

// codeIn is the code of an error, or the reason of an offer.
func codeIn(status int, body []byte) string {
	var fault struct {
		Error struct{ Code string }
	}
	var offer struct{ Error string }
	switch {
	case status == http.StatusOK:
	case json.Unmarshal(body, &fault) == nil:
		return fault.Error.Code
	case json.Unmarshal(body, &offer) == nil:
		return offer.Error
	}
	return ""
}
