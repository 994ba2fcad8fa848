package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
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
	// wideWindow is DUPLICATE_WINDOW_SECONDS, as testbed.Shop has it: on a machine that is busy with
	// something else a loop may need longer than the default of 45 seconds to come
	// back for the answer that was lost.
	wideWindow = "600"
)

// TestStockClients: whatever the facilitator does, and whatever is lost on the
// way, a loop around an unmodified client that signs anew on every call ends
// with one settlement and one answer, on either ledger, with the service killed
// in between. So it is at the shop of infra/shop, of whose trials each has one mode and
// one client, and all together have all. charged.md has the table that it prints.
//
// It takes the half minute that a lease lasts, and the time-out of a settlement.
func TestStockClients(t *testing.T) {
	t.Parallel()
	clients := stockClients()
	tools := make([]workshop, len(clients))
	for i, c := range clients {
		tools[i] = c.tools(t)
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
			add(shop(t), mode, []killMoment{beforeVerdict, betweenCalls}[i%2], everyClient[i%len(everyClient)])
		}
	}
	// Without the window a new signature is a new purchase: the same loops must
	// be seen to pay for each result that was lost.
	control := add(ours(t), failureModes()[len(failureModes())-1], betweenCalls, everyClient...)
	control.world.env["DUPLICATE_WINDOW_SECONDS"] = "0"
	for _, r := range trials {
		r.launch(t)
	}
	runLoops(t, clients, tools, trials, due)
	table := judge(t, clients, trials[:len(trials)-1])
	for _, b := range control.buyers {
		if n := b.transfers(); !clients[b.column].keyed && n < 2 {
			t.Errorf("without the window: %d settlements are counted where the loop bought %d times\n%s", n, len(b.served), b.account())
		}
	}
	t.Logf("settlements of one purchase\n\n%s", table)
	isWritten(t, table)
}

// isWritten wants charged.md to have a part of a table.
func isWritten(t *testing.T, part string) {
	t.Helper()
	written, err := os.ReadFile("charged.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(written), part) {
		t.Errorf("charged.md does not have\n%s", part)
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
		case err := <-ended:
			running--
			if err != nil {
				t.Error(err)
			}
		}
	}
	for range len(results) {
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
	const atTheShop = "any of these, at the shop of 40 lines in [`infra/shop`](../shop)"
	var rows []string
	most := map[string][]int{}
	for _, m := range failureModes() {
		rows = append(rows, m.row())
	}
	rows = append(rows, atTheShop)
	for _, r := range trials {
		row := r.mode.row()
		if r.world.goods.stranger {
			row = atTheShop
		}
		if most[row] == nil {
			most[row] = make([]int, len(clients))
		}
		for _, b := range r.buyers {
			n := b.transfers()
			b.check(t, clients[b.column], n)
			most[row][b.column] = max(most[row][b.column], n)
		}
		if !r.mode.unanswered {
			r.checkLedger(t)
		}
	}
	var out strings.Builder
	line := func(first string, cells []string) {
		fmt.Fprintf(&out, "| %s | %s |\n", first, strings.Join(cells, " | "))
	}
	var titles []string
	for _, c := range clients {
		titles = append(titles, c.title)
	}
	line("Facilitator", titles)
	fmt.Fprint(&out, "|---|"+strings.Repeat("---|", len(clients))+"\n")
	for _, row := range rows {
		line(row, strings.Fields(strings.Trim(fmt.Sprint(most[row]), "[]")))
	}
	return out.String()
}

// row is what the table calls the mode.
func (m failureMode) row() string { return fmt.Sprintf("`%s`: %s", m.name, m.means) }

// check holds one purchase to its answer, and to its one settlement.
func (b *buyer) check(t *testing.T, c stockClient, settlements int) {
	t.Helper()
	var faults []string
	mode, sold := b.trial.mode, b.trial.world.goods
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	fault(settlements != 1, "paid %d times", settlements)
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
	if b.early && b.trial.moment == beforeVerdict {
		least = 0 // a busy machine took so long that the settlement timed out, and the chain was asked
	}
	fault(b.plays < least, "the facilitator failed %d times, not %d", b.plays, least)
	fault(len(b.signed) < 2, "only %d signatures: the client is not tried", len(b.signed))
	if len(faults) > 0 {
		t.Errorf("%s: %s\n%s", c.title, strings.Join(faults, "; "), b.account())
	}
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
