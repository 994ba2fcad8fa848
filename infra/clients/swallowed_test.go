package clients

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Seconds after which a client gives a call up: one without a key comes back before
// its answer's 45 seconds are over, one with a key may come later.
const (
	givesUp      = 30
	givesUpKeyed = 60
)

// window is how long an answer over HTTP stands without a key, by default.
const window = 45 * time.Second

// TestSwallowedReply: the service has the payment and answers, and its reply is lost on
// a connection that stays open. A stock client waits until its own time-out, calls
// again and signs anew: that is the same purchase, within the window of a service as it
// is by default. charged.md has the row that it prints.
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
				var s service
				var g *gateway
				var payer string
				stands := window
				if c.keyed {
					stands = ledger.KeptFor
				}
				got := inTime(t, stands, func() (loopResult, *gateway) {
					s = start(t)
					g = newGateway(t, s.url, swallowed)
					var order purchase
					order, payer = orderOf(t, g.url+s.goods.path, c.keyed)
					if order.Timeout = givesUp; c.keyed {
						order.Timeout = givesUpKeyed
					}
					p := startLoops(t, c, c.tools(t))
					p.orders = []purchase{order}
					results := make(chan loopResult, 1)
					if err := p.loop(results); err != nil {
						t.Fatal(err)
					}
					return <-results, g
				})
				for _, fault := range got.check(s.goods.answer) {
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
				var g *gateway
				got := inTime(t, 2*window, func() (called, *gateway) {
					g = newGateway(t, s.url, swallowed)
					cmd := mcpClients()[name](t, service{url: g.url, goods: s.goods})
					cmd.Args = append(cmd.Args, "host")
					return printed[called](t, cmd), g
				})
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
	isWritten(t, row+"\n")
}

// called is what a host of the Model Context Protocol prints.
type called struct {
	Told []string
	Paid mcptest.ToolResult
}

// inTime repeats a trial until its client has called again within the window. On a busy
// machine it can take longer than its time-out, which is another purchase.
func inTime[R any](t *testing.T, window time.Duration, trial func() (R, *gateway)) R {
	t.Helper()
	for tries := 1; ; tries++ {
		result, g := trial()
		if !g.late(window) || t.Failed() {
			return result
		}
		if tries == 5 {
			t.Fatal("in five trials the client never called again within the window: is the machine overloaded?")
		}
		t.Log("the client called again after the window: once more")
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
