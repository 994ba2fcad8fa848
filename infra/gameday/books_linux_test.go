package gameday

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// chainID is that of the chain that play money moves on.
const chainID = 8453

// node is a node of that chain, on which blocks are safe when they are this old.
func (f *facilitator) node(safe time.Duration, now func() time.Time) http.Handler {
	return chaintest.PlayNode{Moved: f.books.Transfers, ChainID: chainID, Now: now, Safe: safe}
}

// dayBooks are what make books prints of a day, in JSON.
type dayBooks struct {
	Received   tally `json:"received"`
	Answered   tally `json:"answered"`
	AnswerOwed tally `json:"answer_owed"`
	RefundDue  tally `json:"refund_due"`
	InDoubt    tally `json:"in_doubt"`
	Unchecked  int   `json:"unchecked"`
	Count      int   `json:"difference_count"`
}

type tally struct{ Count int }

// audit is make books over the world's table, for every day since the world was
// opened, and past the door of the node. Its blocks are safe at once, and its clock
// is some seconds ahead, so that nothing is too young for the books.
func (w *world) audit() dayBooks {
	w.Helper()
	node := httptest.NewServer(w.facilitator.node(0, func() time.Time { return time.Now().Add(5 * time.Second) }))
	defer node.Close()
	var all dayBooks
	now := time.Now().UTC()
	for day := w.opened.UTC().Truncate(24 * time.Hour); !day.After(now); day = day.AddDate(0, 0, 1) {
		var b dayBooks
		w.operate(&b, []string{"RPC_URL=" + node.URL, "PAY_TO=" + boot.LocalPayTo}, "-books", day.Format(time.DateOnly))
		all.Received.Count += b.Received.Count
		all.Answered.Count += b.Answered.Count
		all.AnswerOwed.Count += b.AnswerOwed.Count
		all.RefundDue.Count += b.RefundDue.Count
		all.InDoubt.Count += b.InDoubt.Count
		all.Unchecked, all.Count = all.Unchecked+b.Unchecked, all.Count+b.Count
	}
	return all
}

// audited holds make books to what the scenario has come to: no differences, every
// transfer is there, and what is owed is what make owed lists.
func (c scenario) audited(w *world, out *outcome) {
	w.Helper()
	b := w.audit()
	moved := len(w.facilitator.books.Transfers())
	if b.Count != 0 || b.Unchecked != 0 || b.InDoubt.Count != 0 {
		w.Errorf("make books names differences, or doubts, in the end: %+v", b)
	}
	// Where a busy machine was too late to record an answer, it is owed still, and make
	// owed lists it when its lease has ended.
	owed, late := b.AnswerOwed.Count+b.RefundDue.Count, strings.Count(w.series.log(), `"unrecorded":true`)
	if b.Received.Count != moved || b.Answered.Count != moved-owed || owed < len(out.left) || owed > len(out.left)+late {
		w.Errorf("%d transfers, %d debts, %d answers unrecorded, and make books says: %+v", moved, len(out.left), late, b)
	}
}
