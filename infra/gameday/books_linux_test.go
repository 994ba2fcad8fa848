package gameday

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// node is a node of the chain that play money moves on, on which blocks are safe when
// they are this old.
func (f *facilitator) node(safe time.Duration, now func() time.Time) http.Handler {
	return testbed.PlayNode{Moved: f.books.Transfers, ChainID: 8453, Now: now, Safe: safe}
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

// audited holds make books to the outcome of the scenario: no differences, every
// transfer is there, and what is owed is what make owed lists. It is run over the
// world's table, past its door and that of the node, for every day since the world was
// opened. Its blocks are safe at once, and its clock is some seconds ahead, so that
// nothing is too young for the books.
func (c scenario) audited(w *world, out *outcome) {
	w.Helper()
	node := httptest.NewServer(w.facilitator.node(0, func() time.Time { return time.Now().Add(5 * time.Second) }))
	defer node.Close()
	received, answered, owed := 0, 0, 0
	now := time.Now().UTC()
	for day := w.opened.UTC().Truncate(24 * time.Hour); !day.After(now); day = day.AddDate(0, 0, 1) {
		var b dayBooks
		w.operate(&b, []string{"RPC_URL=" + node.URL, "PAY_TO=" + boot.LocalPayTo}, "books", day.Format(time.DateOnly))
		received, answered, owed = received+b.Received.Count, answered+b.Answered.Count, owed+b.AnswerOwed.Count+b.RefundDue.Count
		if b.Count != 0 || b.Unchecked != 0 || b.InDoubt.Count != 0 {
			w.Errorf("make books names differences, or doubts, in the end: %+v", b)
		}
	}
	// Where a busy machine was too late to record an answer, it is owed still, and make
	// owed lists it when its lease has ended.
	moved, late := len(w.facilitator.books.Transfers()), strings.Count(w.series.log(), `"unrecorded":true`)
	if received != moved || answered != moved-owed || owed < len(out.left) || owed > len(out.left)+late {
		w.Errorf("%d transfers, %d debts, %d answers unrecorded; make books says: %d received, %d answered, %d owed", moved, len(out.left), late, received, answered, owed)
	}
}
