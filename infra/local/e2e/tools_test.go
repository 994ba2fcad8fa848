package e2e

import (
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// toolCases are payments that are sent over one transport and answered over the other
// too, with one settlement and one lookup: in built functions these are two processes
// on one table. Who repeats what, and under which key, is in the tests of pkg/service.
func toolCases() []scenario {
	return []scenario{
		{name: "by the path, and again by the tool", lookups: 1, steps: []step{
			pay(lookup("{healthy}", "A"), healthy()), happens(answeredByTool),
		}},
		{name: "in doubt by the tool", settle: behaviours{x402test.DropAfter}, calls: 2, transfers: 1, lookups: 1, steps: []step{
			happens(doubtByTool), again(healthy().withoutHash()), happens(answeredByTool),
		}},
	}
}

// tools is the run's client of the tools, the URL of them, and the arguments of a call.
func (r *run) tools() (c *x402test.Client, url string, args map[string]any) {
	c = &x402test.Client{HTTP: r.client, Wallet: r.wallet, Now: time.Now}
	return c, r.d.base + catalog.PathMCP, map[string]any{"domain": r.name}
}

// callTool sends the payment with a call of the tool.
func (r *run) callTool() x402test.ToolResult {
	r.Helper()
	c, url, args := r.tools()
	answer, err := c.Call(r.Context(), url, catalog.DNS().Tool, args, r.header, "")
	if err != nil {
		r.Fatal(err)
	}
	return answer
}

// doubtByTool signs the offer of the tool, and calls it: nobody can say whether the
// money has moved.
func doubtByTool(r *run) {
	r.path = r.fill(lookup("{healthy}", "A"))
	c, url, args := r.tools()
	var err error
	if r.header, err = c.SignCall(r.Context(), url, catalog.DNS().Tool, args); err != nil {
		r.Fatal(err)
	}
	r.lab.secret(r.header)
	if a := r.callTool(); !a.IsError || a.Structured != nil || !strings.Contains(a.Text(), string(fault.SettlementUncertain)) {
		r.Errorf("%s", a.Raw)
	}
}

// answeredByTool: the tool has the last answer of the path, and its receipt.
func answeredByTool(r *run) {
	receipt, err := x402test.Reply{Status: r.last.status, Header: r.last.header, Body: r.last.body}.Receipt()
	a := r.callTool()
	if err != nil || a.IsError || a.Text() != string(r.last.body) || string(a.Structured) != a.Text() {
		r.Errorf("%s, and %s: %v", r.last, a.Raw, err)
	}
	if !a.Meta.Replayed || a.Meta.Receipt == nil || *a.Meta.Receipt != receipt {
		r.Errorf("receipts %+v and %+v", receipt, a.Meta.Receipt)
	}
}
