package clients

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// stockClient is a client of the x402 project in a loop. The loop calls until it has a 200.
type stockClient struct {
	title   string
	command string
	tools   func(*testing.T) workshop
	keyed   bool // whether the loop sends the same Idempotency-Key with each call; otherwise it sends none
}

func stockClients() []stockClient {
	return []stockClient{
		{"`@x402/fetch`", "node fetch.mjs", nodeWorkshop, false},
		{"`@x402/axios`", "node axios.mjs", nodeWorkshop, false},
		{"Python `httpx`", "python use_httpx.py", pythonWorkshop, false},
		{"Python `requests`", "python use_requests.py", pythonWorkshop, false},
		{"fetch, with a key", "node fetch.mjs", nodeWorkshop, true},
	}
}

const (
	// mostCalls limits the calls of a loop. A loop that gets an answer needs far fewer calls.
	// callsInVain is the limit for a mode in which the service must not answer.
	// loopPause is the pause between two calls.
	mostCalls   = 300
	callsInVain = 45
	loopPause   = time.Second
	// wideWindow is a value for the setting DUPLICATE_WINDOW_SECONDS, or WINDOW at the shop.
	// On a busy machine a loop may need more than the default of 45 seconds to come back for
	// an answer that was lost.
	wideWindow = "600"
)

// TestStockClients runs loops around unmodified clients, which sign a new payment on every
// call. Each loop must end with one settlement and one answer. The trials cover every failure
// mode of the facilitator, lost answers, a service that is killed, and both kinds of ledger. In
// other trials the goods fail for a while, or the seller is the shop of infra/shop: with a
// node, without one, and by POST. charged.md has a table of the results.
//
// The test is slow, because it waits until a lease ends, which takes half a minute, and until a
// settlement times out.
func TestStockClients(t *testing.T) {
	t.Parallel()
	clients := stockClients()
	programs := startAll(t)
	p := &playbill{t: t, due: make(chan *trial, 100)}
	p.addService()
	p.addShop()
	p.addFailing()
	// Without the window, a new signature is a new purchase. In this trial, a loop without a
	// key must therefore pay more than once. This shows that the other trials could fail.
	control := p.add(serviceGoods(t), failureModes()[len(failureModes())-1], betweenCalls, everyClient()...)
	control.world.env["DUPLICATE_WINDOW_SECONDS"] = "0"

	playTrials(t, programs, p.trials, p.due)
	rows := map[string]bool{}
	for _, r := range p.trials {
		if r == control {
			continue
		}
		for _, b := range r.buyers {
			b.check(t, clients[b.column])
		}
		rows[r.row] = true
	}
	for _, b := range control.buyers {
		if n := b.transfers(); !clients[b.column].keyed && n < 2 {
			t.Errorf("without the window: %d settlements are counted where the loop bought %d times\n%s", n, len(b.differentResults), b.history())
		}
	}
	for row := range rows {
		checkRow(t, row, len(clients))
	}
}

// everyClient returns the columns of all clients in charged.md.
func everyClient() []int { return []int{0, 1, 2, 3, 4} }

// playbill has the trials of TestStockClients.
type playbill struct {
	t      *testing.T
	due    chan *trial
	trials []*trial
}

// add adds a trial with a buyer for each column.
func (p *playbill) add(sold goods, mode failureMode, moment killMoment, columns ...int) *trial {
	r := newTrial(p.t, sold, mode, moment, p.due)
	for _, i := range columns {
		r.buy(p.t, i, stockClients()[i].keyed)
	}
	p.trials = append(p.trials, r)
	return r
}

// addService adds trials of the service, on either ledger, with every failure mode of the
// facilitator and every moment at which the service is killed. For a mode in which every
// settlement fails, it adds only the trials with the ledger file.
func (p *playbill) addService() {
	db := cloud.StartDynamo(p.t)
	for _, mode := range failureModes() {
		for _, moment := range []killMoment{beforeVerdict, duringLookup, betweenCalls} {
			p.add(serviceGoods(p.t), mode, moment, everyClient()...)
			if mode.failures == everyTime {
				continue
			}
			r := p.add(serviceGoods(p.t), mode, moment, everyClient()...)
			r.name += ", DynamoDB"
			maps.Copy(r.world.env, db.Settings(db.Table(p.t)))
			r.world.env["LEDGER_FILE"] = ""
		}
	}
}

const (
	rowShop       = "any of the above, with the shop in [`infra/shop`](../shop) and a node"
	rowShopNoNode = "any of the above that needs no node, with the shop and no node (`NODE=none`)"
	rowShopByPost = "the first three, with the shop, by `POST` of JSON, of a form, or of a multipart form whose boundary is new in each call"
)

// addShop adds trials of the shop in every mode. Each of these trials has one client, and
// together they cover all clients. For the goods that are sold by POST, addShop adds one trial
// for each format of the body. Each of those trials has all clients and a different mode.
func (p *playbill) addShop() {
	moments := []killMoment{beforeVerdict, betweenCalls} // the shop uses no resolver
	for i, mode := range failureModes() {
		moment, column := moments[i%len(moments)], i%len(stockClients())
		if mode.node == nil {
			p.add(shopGoods(), mode, moment, column).row = rowShopNoNode
		}
		if mode.unanswered { // with a node, this mode is the same as the previous one
			continue
		}
		r := p.add(shopGoods(), mode, moment, column)
		r.row = rowShop
		if mode.node == nil {
			r.world.env["RPC_URL"] = testbed.Serve(p.t, liveNode(r.world.books))
		}
	}
	for i, kind := range reportKinds() {
		r := p.add(reportGoods(kind, "sunny"), failureModes()[i], moments[i%len(moments)], everyClient()...)
		r.row = rowShopByPost
	}
}

// addFailing adds trials in which the goods fail after the money has moved, and the facilitator
// does not fail.
func (p *playbill) addFailing() {
	clean := failureModes()[len(failureModes())-1]
	for _, sold := range []goods{serviceGoods(p.t), shopGoods()} {
		r := p.add(sold, clean, betweenCalls, everyClient()...)
		r.makeGoodsFail(p.t)
		r.row = "the resolvers of the service, or the handler of the shop, fail for a while; then the answer comes"
	}
}

// playTrials lets every program buy in a loop, and restarts the service of each trial that
// arrives on the channel due. It stores the results in the buyers.
func playTrials(t *testing.T, programs []*loopProgram, trials []*trial, due chan *trial) {
	t.Helper()
	buyers := map[string]*buyer{}
	for _, r := range trials {
		r.service = r.world.startAt(t, r.addr)
	}
	for _, r := range trials {
		r.begun = time.Now()
		for _, b := range r.buyers {
			buyers[b.order.ID] = b
			programs[b.column].orders = append(programs[b.column].orders, b.order)
		}
	}
	var results map[string]loopResult
	go func() {
		defer close(due)
		results = playLoops(t, programs)
	}()
	for r := range due {
		r.restart(t)
	}
	for id, result := range results {
		buyers[id].result = result
	}
}

// playLoops lets every program buy, and returns the results by the ID of the purchase.
func playLoops(t *testing.T, programs []*loopProgram) map[string]loopResult {
	t.Helper()
	var loops sync.WaitGroup
	for _, p := range programs {
		loops.Go(func() { p.results, p.err = p.loop() })
	}
	loops.Wait()
	results := map[string]loopResult{}
	for _, p := range programs {
		if p.err != nil {
			t.Error(p.err)
		}
		for _, r := range p.results {
			results[r.ID] = r
		}
	}
	return results
}

// checkRow checks that charged.md has the given row, and that the row shows one settlement
// for each of the clients.
func checkRow(t *testing.T, row string, clients int) {
	row = "\n| " + row + " |" + strings.Repeat(" 1 |", clients) + "\n"
	if !strings.Contains(string(testbed.Must(os.ReadFile("charged.md"))), row) {
		t.Errorf("charged.md does not have%s", row)
	}
}

// loopProgram is a running program of a client.
type loopProgram struct {
	*dialogue
	name    string
	orders  []purchase
	results []loopResult
	err     error
}

// purchase is the input of a client program, and loopResult is its output.
type purchase struct {
	ID      string            `json:"id"`
	URL     string            `json:"url"`
	Network string            `json:"network"`
	Key     string            `json:"key"`
	Headers map[string]string `json:"headers"`
	Report  *report           `json:"report"` // the body that is posted; nil for a GET
	// Calls is the maximum number of calls. Timeout is the client's timeout for a call, in
	// seconds; 0 means the client's default. If Once is set, the loop makes no further call
	// after it has the answer.
	Calls   int  `json:"calls"`
	Timeout int  `json:"timeout"`
	Once    bool `json:"once"`
}

type loopResult struct {
	ID            string
	Told          []int // the status of each call; 0 means that no complete answer came
	Answer, Again struct{ Body string }
}

// startAll starts the program of every client.
func startAll(t *testing.T) []*loopProgram {
	var programs []*loopProgram
	for _, c := range stockClients() {
		programs = append(programs, startLoops(t, c))
	}
	return programs
}

// startLoops starts a program and returns when it is ready.
func startLoops(t *testing.T, c stockClient) *loopProgram {
	w := c.tools(t)
	w.fill(t, "stock")
	p := &loopProgram{dialogue: begin(t, w.shell(t, "exec "+c.command)), name: c.title}
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		_ = p.wait()
		t.Fatalf("%s says %q: %v\n%s", c.title, line, err, p.notes)
	}
	return p
}

// loop gives the program its purchases. It returns the results when the program has ended.
func (p *loopProgram) loop() (results []loopResult, err error) {
	err = json.NewEncoder(p.in).Encode(map[string]any{"pause": loopPause.Milliseconds(), "purchases": p.orders})
	err = errors.Join(err, p.in.Close())
	for lines := json.NewDecoder(p.out); err == nil; {
		var r loopResult
		if err = lines.Decode(&r); err == nil {
			results = append(results, r)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, p.wait()); err != nil {
		err = fmt.Errorf("%s: %w\n%s", p.name, err, p.notes)
	}
	return results, err
}

// orderOf returns an order for goods at an origin. It also returns the payer, whose private
// key is new.
func orderOf(tb testing.TB, origin string, sold goods, keyed bool) (order purchase, payer string) {
	key := newPayer()
	w := testbed.Must(x402test.WalletFromHex(strings.TrimPrefix(key, "0x"), rand.Reader))
	order = purchase{
		ID: rand.Text(), URL: origin + sold.path, Network: testbed.BaseNetwork, Key: key, Headers: map[string]string{},
		Report: sold.report, Calls: mostCalls,
	}
	if keyed {
		order.Headers[x402.HeaderKey] = rand.Text()
	}
	return order, strings.ToLower(w.Address().String())
}

// check compares the answers that a loop printed with the right answer.
func (r loopResult) check(answer map[string]any) (faults []string) {
	for what, body := range map[string]string{"answer": r.Answer.Body, "answer to the last call": r.Again.Body} {
		var got map[string]any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			faults = append(faults, fmt.Sprintf("the %s is not JSON: %.200q", what, body))
		} else if diff := cmp.Diff(answer, got); diff != "" {
			faults = append(faults, "the "+what+": "+diff)
		}
	}
	return faults
}
