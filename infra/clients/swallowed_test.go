package clients

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Seconds after which a client gives a call up: one without a key comes back before
// its answer's 45 seconds are over, one with a key may come later.
const (
	givesUp      = 30
	givesUpKeyed = 60
)

// TestSwallowedReply: the service has the payment and answers, and its reply is lost on
// a connection that stays open. A stock client waits until its own time-out, calls
// again and signs anew: that is the same purchase, within the window of a service as it
// is by default. README.md has the row that it prints.
//
// It takes the minute that the client with a key and the SDK of the Model Context
// Protocol wait.
func TestSwallowedReply(t *testing.T) {
	t.Parallel()
	clients := stockClients()
	settled := make([]int, len(clients))
	t.Run("gives up", func(t *testing.T) {
		for i, c := range clients {
			t.Run(c.title, func(t *testing.T) {
				t.Parallel()
				s := start(t)
				g := newGateway(t, s.url, swallowed)
				order, payer := orderOf(t, g.url, c.keyed)
				if order.Timeout = givesUp; c.keyed {
					order.Timeout = givesUpKeyed
				}
				p := startLoops(t, c, c.tools(t))
				p.orders = []purchase{order}
				results := make(chan loopResult, 1)
				if err := p.loop(results); err != nil {
					t.Fatal(err)
				}
				got := <-results
				for _, fault := range got.check(t) {
					t.Error(fault)
				}
				if len(got.Told) != 3 || got.Told[0] != 0 { // given up, answered, answered once more
					t.Errorf("the loop was told %v", got.Told)
				}
				settled[i] = s.settledOnce(t, payer, g)
			})
		}
		for _, name := range []string{"TypeScript 1.x", "TypeScript 2.x, 2026-07-28"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := localTools(t)
				g := newGateway(t, s.url, swallowed)
				cmd := mcpClients()[name](t, service{url: g.url})
				cmd.Args = append(cmd.Args, "host")
				got := printed[struct {
					Told []string
					Paid x402test.ToolResult
				}](t, cmd)
				if len(got.Told) != 1 || !strings.Contains(got.Told[0], "timed out") || !got.Paid.Meta.Replayed || !strings.Contains(got.Paid.Text(), `"192.0.2.77"`) {
					t.Fatalf("%+v", got)
				}
				s.settledOnce(t, got.Paid.Meta.Receipt.Payer, g)
			})
		}
	})
	row := fmt.Sprintf("| the reply is swallowed; the client gives up after %d s, with a key or over MCP after %d s |", givesUp, givesUpKeyed)
	for _, n := range settled {
		row += fmt.Sprintf(" %d |", n)
	}
	readme, err := os.ReadFile(filepath.Join(testbed.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), row+"\n") {
		t.Errorf("README.md does not have the row\n%s", row)
	}
}

// settledOnce holds a payer to one settlement of purchases that he signed more than once,
// and returns how many there are.
func (s service) settledOnce(t *testing.T, payer string, g *gateway) int {
	t.Helper()
	moved := s.books.Moved(payer)
	if len(moved) != 1 || moved[0].Value != catalog.DNS().Amount || len(g.paid()) < 2 || g.paid()[0].signature == g.paid()[1].signature {
		t.Errorf("moved %+v for %d payments", moved, len(g.paid()))
	}
	return len(moved)
}
