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
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// stockClient is a client of the x402 project in a loop that calls until it has a 200.
type stockClient struct {
	title   string
	command string
	tools   func(*testing.T) workshop
	keyed   bool // the loop sends one Idempotency-Key
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
	// mostCalls and loopPause are the loop's. It ends long before, unless the
	// service never answers; callsInVain are those of a loop that it must not answer.
	mostCalls   = 300
	callsInVain = 45
	loopPause   = time.Second
	// wideWindow is DUPLICATE_WINDOW_SECONDS, as testbed.Shop has it: on a machine that is busy with
	// something else a loop may need longer than the default of 45 seconds to come
	// back for the answer that was lost.
	wideWindow = "600"
)

// TestStockClients: whatever the facilitator does, and whatever is lost on the
// way, a loop around an unmodified client that signs anew on every call ends
// with one settlement and one answer, on either ledger, with the service killed
// in between. So it is at the shop of infra/shop, of whose trials each has one mode and
// one client, and all together have all. charged.md has a table of that.
//
// It takes the half minute that a lease lasts, and the time-out of a settlement.
func TestStockClients(t *testing.T) {
	t.Parallel()
	clients := stockClients()
	programs := make([]*loopProgram, len(clients))
	for i, c := range clients {
		programs[i] = startLoops(t, c)
	}
	due := make(chan *trial, 100)
	var trials []*trial
	add := func(sold goods, mode failureMode, moment killMoment, columns ...int) *trial {
		r := newTrial(t, sold, mode, moment, due)
		for _, i := range columns {
			r.buy(t, i, clients[i].keyed)
		}
		trials = append(trials, r)
		return r
	}
	everyClient := []int{0, 1, 2, 3, 4}
	db := testbed.StartDynamo(t)
	for i, mode := range failureModes() {
		for _, moment := range []killMoment{beforeVerdict, duringLookup, betweenCalls} {
			add(ours(t), mode, moment, everyClient...)
			if mode.plays == everyTime {
				continue
			}
			r := add(ours(t), mode, moment, everyClient...)
			r.name += ", DynamoDB"
			maps.Copy(r.world.env, db.Settings(db.Table(t)))
			r.world.env["LEDGER_FILE"] = ""
		}
		if mode.node == nil { // the shop asks none
			add(shop(), mode, []killMoment{beforeVerdict, betweenCalls}[i%2], everyClient[i%len(everyClient)])
		}
	}
	// Without the window a new signature is a new purchase: the same loops must
	// be seen to pay for each result that was lost.
	control := add(ours(t), failureModes()[len(failureModes())-1], betweenCalls, everyClient...)
	control.world.env["DUPLICATE_WINDOW_SECONDS"] = "0"

	playTrials(t, programs, trials, due)
	rows := map[string]bool{}
	for _, r := range trials[:len(trials)-1] {
		for _, b := range r.buyers {
			b.check(t, clients[b.column])
		}
		rows[r.row()] = true
	}
	for _, b := range control.buyers {
		if n := b.transfers(); !clients[b.column].keyed && n < 2 {
			t.Errorf("without the window: %d settlements are counted where the loop bought %d times\n%s", n, len(b.served), b.account())
		}
	}
	for row := range rows {
		isWritten(t, row)
	}
}

// playTrials lets every program buy in a loop, restarts each service when it is due, and gives
// the buyers their results.
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
	var loops sync.WaitGroup
	for _, p := range programs {
		loops.Go(func() { p.results, p.err = p.loop() })
	}
	go func() {
		loops.Wait()
		close(due)
	}()
	for r := range due {
		r.restart(t)
	}
	for _, p := range programs {
		if p.err != nil {
			t.Error(p.err)
		}
		for _, result := range p.results {
			buyers[result.ID].result = result
		}
	}
}

// isWritten wants charged.md to have a row with one settlement for each client.
func isWritten(t *testing.T, row string) {
	row = "\n| " + row + " |" + strings.Repeat(" 1 |", len(stockClients())) + "\n"
	if !strings.Contains(string(testbed.Must(os.ReadFile("charged.md"))), row) {
		t.Errorf("charged.md does not have%s", row)
	}
}

// loopProgram is a client's program at work.
type loopProgram struct {
	*dialogue
	name    string
	orders  []purchase
	results []loopResult
	err     error
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
	Answer, Again struct{ Body string }
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

// loop gives the program its purchases and returns when it has ended.
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

// orderOf is a purchase of what is at a URL, by a payer with a new key.
func orderOf(tb testing.TB, url string, keyed bool) (order purchase, payer string) {
	key := newPayer()
	w := testbed.Must(x402test.WalletFromHex(strings.TrimPrefix(key, "0x"), rand.Reader))
	order = purchase{ID: rand.Text(), URL: url, Network: testbed.BaseNetwork, Key: key, Headers: map[string]string{}, Calls: mostCalls}
	if keyed {
		order.Headers[x402.HeaderKey] = rand.Text()
	}
	return order, strings.ToLower(w.Address().String())
}

// check holds what a loop printed to the answer.
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

// row is what charged.md calls the trial.
func (t *trial) row() string {
	if t.world.goods.stranger {
		return "any of these, at the shop in [`infra/shop`](../shop)"
	}
	return fmt.Sprintf("`%s`: %s", t.mode.name, t.mode.means)
}
