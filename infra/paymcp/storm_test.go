package main

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestStorm runs two hosts on the same folder. Their pay-mcp processes are killed again and
// again, at any moment, while the connection loses replies and the facilitator fails. In the
// end, every question must have its answer and must have been charged once.
func TestStorm(t *testing.T) {
	t.Parallel()
	const questions, kills = 4, 10
	w := newWorld(t, dropAnswer, (*testbed.Relayed).Drop, (*testbed.Relayed).Pass, dropAnswer)
	w.books.Plan("", x402test.FailAfter, x402test.Honest, x402test.DropAfter, x402test.FailBefore)
	t.Run("hosts", func(t *testing.T) {
		for host := range 2 {
			t.Run(fmt.Sprint(host), func(t *testing.T) {
				t.Parallel()
				chance := rand.New(rand.NewPCG(7, uint64(host)))
				for n := range questions {
					askUntilAnswered(t, w, chance, fmt.Sprint(n), kills)
				}
			})
		}
	})
	w.checkCharged(questions)
	different, messages := w.payments()
	if different != questions {
		t.Errorf("%d different payments for %d questions", different, questions)
	}
	t.Logf("%d messages with a payment", messages)
}

// askUntilAnswered asks a question, in one process after another, until there is an answer.
// The parameter kills is the number of these processes that are killed, beginning with the
// first.
func askUntilAnswered(t *testing.T, w *world, chance *rand.Rand, question string, kills int) {
	t.Helper()
	for n := 0; ; n++ {
		h := startHost(t, testbed.PayMCP(t), "-dir", w.dir, w.url)
		if n < kills {
			// The kill comes at a random time, from before the price is asked until after the
			// answer.
			kill := time.AfterFunc(time.Duration(chance.IntN(80))*time.Millisecond, h.kill)
			defer kill.Stop()
		}
		r, err := h.CallTool(t.Context(), &mcp.CallToolParams{Name: "payment_smoke_test", Arguments: map[string]any{"probe": question}})
		if err == nil && !r.IsError {
			return
		}
		if n > kills+5 {
			t.Fatalf("the question %s has no answer: %v %+v\n%s", question, err, r, h.log)
		}
	}
}
