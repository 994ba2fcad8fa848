package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestBuys checks that a host can list the tools and buy an answer with a valid receipt, and
// that the same call costs nothing the second time.
func TestBuys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.start()
	h.checkTools(t)
	first := h.call(t, "dns_lookup", example)
	structured := testbed.Must(json.Marshal(first.StructuredContent))
	if !isPlainAnswer(first) || !strings.Contains(textOf(first), `"192.0.2.77"`) || !strings.Contains(string(structured), `"192.0.2.77"`) || first.Meta["x402/payment-response"] == nil {
		t.Errorf("the first answer: %s %v\n%s", textOf(first), first.Meta, h.log)
	}
	again := h.call(t, "dns_lookup", map[string]any{"domain": "example.com"})
	if again.IsError || !strings.HasPrefix(textOf(again), textOf(first)) || !strings.Contains(textOf(again), "This answer is ") {
		t.Errorf("the second answer: %s", textOf(again))
	}
	w.checkCharged(1)
	if other := h.call(t, "dns_lookup", map[string]any{"domain": "example.com", "type": "MX"}); !isPlainAnswer(other) {
		t.Errorf("another question: %s", textOf(other))
	}
	w.checkCharged(2)
	wrong := h.call(t, "dns_lookup", map[string]any{"domain": "10.0.0.1"})
	if !wrong.IsError || !strings.Contains(textOf(wrong), "invalid_domain") {
		t.Errorf("a bad question: %s", textOf(wrong))
	}
	w.checkCharged(2)
}

// checkTools checks that the host sees the tools of the service, with their prices and with the
// annotations of tools that spend money.
func (h hostSession) checkTools(t *testing.T) {
	t.Helper()
	tools := map[string]*mcp.Tool{}
	for _, tool := range testbed.Must(h.ListTools(t.Context(), nil)).Tools {
		tools[tool.Name] = tool
		a := tool.Annotations
		if a == nil || a.ReadOnlyHint || a.IdempotentHint || a.DestructiveHint == nil || !*a.DestructiveHint {
			t.Errorf("%s: annotations %+v: hosts call what is read-only without asking", tool.Name, a)
		}
	}
	if len(tools) != len(catalog.All()) {
		t.Errorf("%d tools", len(tools))
	}
	for _, op := range catalog.All() {
		tool := tools[op.Tool]
		if tool == nil || tool.Title != op.Title || tool.InputSchema == nil || tool.OutputSchema == nil {
			t.Errorf("%s: %+v", op.Tool, tool)
			continue
		}
		for _, part := range []string{"Each call pays " + op.PriceUSD() + " USDC on Base, in play money (limits: 1 USDC a call, 100 USDC in any 24 hours)."} {
			if !strings.Contains(tool.Description, part) {
				t.Errorf("%s is described as\n%s\nwant %s", op.Tool, tool.Description, part)
			}
		}
	}
}

// TestFaults checks that a call is charged once, by a single payment, whatever happens to the
// payment. If a call gets no answer, its result must say that the same arguments must be used
// again. One of the first five calls with these arguments must get the answer.
func TestFaults(t *testing.T) {
	t.Parallel()
	drop := func(r *testbed.Relayed) { r.Drop() }
	half := func(r *testbed.Relayed) { answer := r.Answer(); r.Send(answer, answer.Body.Len()/2) }
	busy := func(status int) func(*testbed.Relayed) {
		return func(r *testbed.Relayed) { r.WriteHeader(status) }
	}
	for name, c := range map[string]struct {
		relay       []func(*testbed.Relayed)
		facilitator []x402test.Behaviour
	}{
		"the reply is lost":            {relay: []func(*testbed.Relayed){dropAnswer, dropAnswer}},
		"the request is lost":          {relay: []func(*testbed.Relayed){drop}},
		"the reply is cut":             {relay: []func(*testbed.Relayed){half}},
		"the gateway fails":            {relay: []func(*testbed.Relayed){busy(502), busy(503), busy(429)}},
		"the facilitator drops":        {facilitator: []x402test.Behaviour{x402test.DropAfter}},
		"the facilitator fails before": {facilitator: []x402test.Behaviour{x402test.FailBefore}},
		"the facilitator fails after":  {facilitator: []x402test.Behaviour{x402test.FailAfter}},
		"both":                         {relay: []func(*testbed.Relayed){dropAnswer}, facilitator: []x402test.Behaviour{x402test.TooMany}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.relay...)
			w.books.Plan("", c.facilitator...)
			h := w.start()
			for call := 1; ; call++ {
				r := h.call(t, "dns_lookup", example)
				if !r.IsError {
					break
				}
				if !strings.Contains(textOf(r), "with exactly the same arguments") || call == 5 {
					t.Fatalf("call %d: %s\n%s", call, textOf(r), h.log)
				}
			}
			w.checkCharged(1)
			if different, _ := w.payments(); different != 1 {
				t.Errorf("%d different payments were sent", different)
			}
		})
	}
}

// TestKilled checks a process that is killed before its request with the payment reaches the
// service, or before it gets the service's answer. The next process must finish the purchase
// with the same payment.
func TestKilled(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"before the request is served": false, "before the reply arrives": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reached, dead := make(chan struct{}), make(chan struct{})
			w := newWorld(t, func(r *testbed.Relayed) {
				if answers {
					r.Answer()
				}
				close(reached)
				<-dead
				r.Drop()
			})
			h := w.start()
			ended := make(chan error, 1)
			go func() {
				_, err := h.CallTool(t.Context(), &mcp.CallToolParams{Name: "dns_lookup", Arguments: example})
				ended <- err
			}()
			<-reached
			h.kill()
			if err := <-ended; err == nil {
				t.Error("a killed process answered")
			}
			close(dead)
			if r := w.start().call(t, "dns_lookup", example); !isPlainAnswer(r) {
				t.Errorf("after the kill: %s", textOf(r))
			}
			w.checkCharged(1)
			if different, all := w.payments(); different != 1 || all != 2 {
				t.Errorf("%d payments in %d messages", different, all)
			}
		})
	}
}

// TestTwoHosts checks two hosts that start pay-mcp on the same folder. At the same time, each
// host asks two questions: one that both hosts ask, and one that only this host asks. Each
// question must be charged once.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dropAnswer)
	var all sync.WaitGroup
	for n := range 2 {
		h := w.start()
		all.Go(func() {
			if r := h.call(t, "dns_lookup", example); r.IsError {
				t.Errorf("host %d: %s", n, textOf(r))
			}
		})
		all.Go(func() {
			if r := h.call(t, "payment_smoke_test", map[string]any{"probe": fmt.Sprint(n)}); !isPlainAnswer(r) {
				t.Errorf("host %d: %s", n, textOf(r))
			}
		})
	}
	all.Wait()
	w.checkCharged(3)
}

// TestUnconfirmed checks a settlement that stays unconfirmed. The result must say so. The
// command "pay-mcp status" must list the purchase. No other payment may be made.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.books.Plan("", slices.Repeat([]x402test.Behaviour{x402test.Unconfirmed}, 40)...)
	h := w.start("-dir", w.dir, "-wait", "15s", w.url)
	r := h.call(t, "payment_smoke_test", map[string]any{})
	for _, want := range []string{"There is no answer yet. A payment of 0.001 USDC on Base was signed.", "settlement_uncertain", "Call payment_smoke_test again", "nothing more is charged"} {
		if !r.IsError || !strings.Contains(textOf(r), want) {
			t.Errorf("it says %s\nwant %s", textOf(r), want)
		}
	}
	w.checkCharged(1)
	out := string(programs.Run(t, testbed.Command(t, testbed.PayMCP(t), "-dir", w.dir, "status", w.url)))
	for _, want := range []string{"Signed in the last 24 hours: 0.001 USDC on Base", "No answer: payment_smoke_test {}", "forget " + w.url} {
		if !strings.Contains(out, want) {
			t.Errorf("status says %s\nwant %s", out, want)
		}
	}
	if different, all := w.payments(); different != 1 || all < 2 {
		t.Errorf("%d payments in %d messages", different, all)
	}
}
