package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// stockClient is a column of the table: a client of the x402 project as the
// registry gives it, in a loop that calls until it has a 200.
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
	// wideWindow is DUPLICATE_WINDOW_SECONDS: on a machine that is busy with
	// something else a loop may need longer than the default of 45 seconds to come
	// back for the answer that was lost.
	wideWindow = "600"
)

// TestStockClients: whatever the facilitator does, and whatever is lost on the
// way, a loop around an unmodified client that signs anew on every call ends
// with one settlement and one answer, on either ledger, with the service killed
// in between. charged.md has the table that it prints.
//
// It takes the half minute that a lease lasts, and the time-out of a settlement.
func TestStockClients(t *testing.T) {
	t.Parallel()
	clients := stockClients()
	tools := make([]workshop, len(clients))
	for i, c := range clients {
		tools[i] = c.tools(t)
	}
	db := testbed.StartDynamo(t)
	due := make(chan *trial, 100)
	var trials []*trial
	for _, mode := range failureModes() {
		stores := []*testbed.Dynamo{nil, &db}
		if mode.plays == everyTime {
			stores = stores[:1]
		}
		for _, store := range stores {
			for _, moment := range []killMoment{beforeVerdict, duringLookup, betweenCalls} {
				trials = append(trials, newTrial(t, mode, moment, store, due, wideWindow))
			}
		}
	}
	// Without the window a new signature is a new purchase: the same loops must
	// be seen to pay for each result that was lost.
	control := newTrial(t, failureModes()[len(failureModes())-1], betweenCalls, nil, due, "0")
	control.name += ", no window"
	all := append(slices.Clone(trials), control)
	for _, r := range all {
		r.launch(t)
		for i, c := range clients {
			r.buy(t, i, c.keyed)
		}
	}
	runLoops(t, clients, tools, all, due)
	table := judge(t, clients, trials)
	for _, b := range control.buyers {
		if n := b.transfers(); !clients[b.column].keyed && n < 2 {
			t.Errorf("without the window: %d settlements are counted where the loop bought %d times\n%s", n, len(b.served), b.account())
		}
	}
	t.Logf("settlements of one purchase\n\n%s", table)
	readme, err := os.ReadFile("charged.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), table) {
		t.Error("charged.md has another table than the one above")
	}
}

// runLoops runs every client's program over all of its purchases, side by side,
// and kills each service when its moment has come.
func runLoops(t *testing.T, clients []stockClient, tools []workshop, trials []*trial, due <-chan *trial) {
	t.Helper()
	programs := make([]*loopProgram, len(clients))
	for i, c := range clients {
		programs[i] = startLoops(t, c, tools[i])
	}
	buyers := map[string]*buyer{}
	for _, r := range trials {
		r.begun = time.Now()
		for _, b := range r.buyers {
			buyers[b.order.ID] = b
			programs[b.column].orders = append(programs[b.column].orders, b.order)
		}
	}
	results := make(chan loopResult, len(buyers))
	ended := make(chan error, len(programs))
	for _, p := range programs {
		go func() { ended <- p.loop(results) }()
	}
	for running := len(programs); running > 0; {
		select {
		case r := <-due:
			r.restart(t)
		case got := <-results:
			buyers[got.ID].result = got
		case err := <-ended:
			running--
			if err != nil {
				t.Error(err)
			}
		}
	}
	for len(results) > 0 {
		got := <-results
		buyers[got.ID].result = got
	}
}

// loopProgram is a client's program at work.
type loopProgram struct {
	*dialogue
	name   string
	orders []purchase
}

// startLoops starts a program and returns when it is ready.
func startLoops(t *testing.T, c stockClient, w workshop) *loopProgram {
	t.Helper()
	w.fill(t, "stock")
	p := &loopProgram{dialogue: begin(t, w.shell(t, "exec "+c.command)), name: c.title}
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		_ = p.wait()
		t.Fatalf("%s says %q: %v\n%s", c.title, line, err, p.notes)
	}
	return p
}

// loop gives the program its purchases and returns when it has ended.
func (p *loopProgram) loop(results chan<- loopResult) error {
	err := json.NewEncoder(p.in).Encode(map[string]any{"pause": loopPause.Milliseconds(), "purchases": p.orders})
	if err := errors.Join(err, p.in.Close()); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	for {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			break
		}
		var r loopResult
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("%s prints %q: %w", p.name, line, err)
		}
		results <- r
	}
	if err := p.wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, err, p.notes)
	}
	return nil
}

// judge holds every purchase to its one settlement and its one answer, and
// returns the table, with the most settlements of a purchase.
func judge(t *testing.T, clients []stockClient, trials []*trial) string {
	t.Helper()
	var out strings.Builder
	fmt.Fprint(&out, "| Facilitator |")
	for _, c := range clients {
		fmt.Fprintf(&out, " %s |", c.title)
	}
	fmt.Fprint(&out, "\n|---|"+strings.Repeat("---|", len(clients))+"\n")
	for _, mode := range failureModes() {
		most := make([]int, len(clients))
		for _, r := range trials {
			if r.mode.name != mode.name {
				continue
			}
			for _, b := range r.buyers {
				n := b.transfers()
				b.check(t, clients[b.column], n)
				most[b.column] = max(most[b.column], n)
			}
			if !mode.unanswered {
				r.checkLedger(t)
			}
		}
		fmt.Fprintf(&out, "| `%s`: %s |", mode.name, mode.means)
		for _, n := range most {
			fmt.Fprintf(&out, " %d |", n)
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

// check holds one purchase to its answer, and to its one settlement.
func (b *buyer) check(t *testing.T, c stockClient, settlements int) {
	t.Helper()
	var faults []string
	if settlements != 1 {
		faults = append(faults, fmt.Sprintf("paid %d times", settlements))
	}
	for _, moved := range b.trial.books.Moved(b.payer) {
		if moved.Value != catalog.DNS().Amount {
			faults = append(faults, "paid "+moved.Value)
		}
	}
	results := 1
	if b.trial.mode.unanswered {
		results = 0
	} else {
		faults = append(faults, b.result.check(t)...)
	}
	if len(b.served) != results {
		faults = append(faults, fmt.Sprintf("%d different results", len(b.served)))
	}
	least := b.trial.mode.plays
	if least == everyTime {
		least = 1 // a killed service may hear the first refusal only, and has the chain asked
	}
	if b.plays < least {
		faults = append(faults, fmt.Sprintf("the facilitator failed %d times, not %d", b.plays, least))
	}
	if len(b.signed) < 2 {
		faults = append(faults, fmt.Sprintf("only %d signatures: the client is not tried", len(b.signed)))
	}
	if len(faults) > 0 {
		t.Errorf("%s: %s\n%s", c.title, strings.Join(faults, "; "), b.account())
	}
}

// check holds what a loop printed to the answer.
func (r loopResult) check(t *testing.T) (faults []string) {
	t.Helper()
	for what, body := range map[string]string{"answer": r.Answer.Body, "answer to the last call": r.Again.Body} {
		var got map[string]any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			faults = append(faults, fmt.Sprintf("the %s is not JSON: %.200q", what, body))
		} else if diff := cmp.Diff(answer(t), got); diff != "" {
			faults = append(faults, "the "+what+": "+diff)
		}
	}
	return faults
}
