package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// caller is a payer that buys one lookup by path and by tool.
type caller struct {
	testing.TB
	*x402test.Client
	lab    *lab
	d      *deployment
	payer  string
	domain string
	args   map[string]any
	path   string              // the URL of the same question
	tools  string              // the URL of the tools
	reply  x402test.Reply      // the last answer over the path
	tool   x402test.ToolResult // and of the tool
}

// caller makes one whose settlements go as the script says. Its question is its
// own.
func (l *lab) caller(tb testing.TB, d *deployment, script ...x402test.Behaviour) *caller {
	tb.Helper()
	wallet, payer := l.wallet(tb, script...)
	transport := &http.Transport{}
	tb.Cleanup(transport.CloseIdleConnections)
	domain := fmt.Sprintf("tool%d.%s%s", caseIDs.Add(1), modeHealthy, strings.TrimSuffix(labDomain, "."))
	return &caller{
		TB: tb, Client: &x402test.Client{HTTP: &http.Client{Transport: transport}, Wallet: wallet, Now: time.Now},
		lab: l, d: d, payer: payer, domain: domain, args: map[string]any{"domain": domain},
		path: d.base + catalog.DNS().Path + "?type=A&domain=" + domain, tools: d.base + catalog.PathMCP,
	}
}

func (c *caller) call(header, key string) x402test.ToolResult {
	c.Helper()
	r, err := c.Call(c.Context(), c.tools, catalog.DNS().Tool, c.args, header, key)
	if err != nil {
		c.Fatal(err)
	}
	return r
}

func (c *caller) get(header string) x402test.Reply {
	c.Helper()
	r, err := c.Get(c.Context(), c.path, header)
	if err != nil {
		c.Fatal(err)
	}
	return r
}

// signTool and signPath sign the offer of the one and of the other.
func (c *caller) signTool() string {
	c.Helper()
	return c.signed(c.SignCall(c.Context(), c.tools, catalog.DNS().Tool, c.args))
}

func (c *caller) signPath() string {
	c.Helper()
	return c.signed(c.Sign(c.Context(), c.path))
}

func (c *caller) signed(header string, err error) string {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
	c.lab.secret(header)
	return header
}

// byTool and byPath ask until the payment is not in progress any more, and keep the
// answer.
func (c *caller) byTool(header string) {
	c.Helper()
	poll(c, "the payment not to be in progress", func() bool {
		c.tool = c.call(header, "")
		busy := strings.Contains(c.tool.Text(), "payment_in_progress")
		if busy && strings.Contains(string(c.tool.Raw), "accepts") {
			c.Fatalf("in progress, and asked to pay: %s", c.tool.Raw)
		}
		return !busy
	})
}

func (c *caller) byPath(header string) {
	c.Helper()
	poll(c, "the payment not to be in progress", func() bool {
		c.reply = c.get(header)
		return c.reply.Status != http.StatusConflict
	})
}

// bought holds the two answers to be the one that was bought, once.
func (c *caller) bought(settles int) {
	c.Helper()
	path, tool := c.reply, c.tool
	receipt, err := path.Receipt()
	if err != nil || path.Status != http.StatusOK || tool.IsError || tool.Text() != string(path.Body) || string(tool.Structured) != tool.Text() {
		c.Errorf("%d %s, and %s: %v", path.Status, path.Body, tool.Raw, err)
	}
	if tool.Meta.Receipt == nil || *tool.Meta.Receipt != receipt {
		c.Errorf("receipts %+v and %+v", receipt, tool.Meta.Receipt)
	}
	checkSigned(c, exchange{path: catalog.DNS().Path, body: []byte(tool.Text())}, result(""), receipt)
	if !strings.Contains(tool.Text(), c.domain) {
		c.Errorf("an answer about something else: %s", tool.Text())
	}
	if err := c.lab.books(c.payer, catalog.DNS().Amount, settles, 1); err != nil {
		c.Error(err)
	}
	is(c, "lookups of "+c.domain, c.lab.dns.lookups(c.domain), 1)
}

// abandon sends a payment, and goes away when it has got to the facilitator.
func (c *caller) abandon(send func(ctx context.Context)) {
	c.Helper()
	g := c.lab.hold(c.payer)
	ctx, leave := context.WithCancel(c.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		send(ctx)
	}()
	g.await(c, "the facilitator")
	leave()
	<-gone
	g.open()
}

// purchases are the ways of a payment that is sent over one transport and gets its
// answer over the other too, with one settlement and one lookup, however the first
// answer was lost.
var purchases = []struct {
	name    string
	script  []x402test.Behaviour
	settles int
	play    func(*caller)
}{
	{"the tool's client goes away", nil, 1, func(c *caller) {
		header := c.signTool()
		c.abandon(func(ctx context.Context) {
			_, _ = c.Call(ctx, c.tools, catalog.DNS().Tool, c.args, header, "") // nobody listens any more
		})
		c.byPath(header)
		c.byTool(header)
	}},
	{"the path's client goes away", nil, 1, func(c *caller) {
		header := c.signPath()
		c.abandon(func(ctx context.Context) { _, _ = c.Get(ctx, c.path, header) })
		c.byTool(header)
		c.byPath(header)
	}},
	{"the tool is in doubt", []x402test.Behaviour{x402test.DropAfter}, 2, func(c *caller) {
		header := c.signTool()
		if r := c.call(header, ""); !r.IsError || r.Structured != nil || !strings.Contains(r.Text(), "settlement_uncertain") {
			c.Errorf("%s", r.Raw)
		}
		c.byPath(header)
		c.byTool(header)
	}},
	{"the path is in doubt", []x402test.Behaviour{x402test.DropAfter}, 2, func(c *caller) {
		header := c.signPath()
		is(c, "status", c.get(header).Status, http.StatusServiceUnavailable)
		c.byTool(header)
		c.byPath(header)
	}},
	{"the offers are one", nil, 1, func(c *caller) {
		header := c.signTool()
		c.byPath(header)
		c.byTool(header)
	}},
	{"signed anew over the other", nil, 1, func(c *caller) {
		c.byTool(c.signTool())
		c.byPath(c.signPath())
	}},
	{"one purchase key", nil, 1, func(c *caller) {
		const key = "3e8f43c2-7f0e-4a3b-8a51-6c3b7f8f2a11"
		c.tool = c.call(c.signTool(), key)
		h := http.Header{x402.HeaderSignature: {c.signPath()}, x402.HeaderKey: {key}}
		e, err := c.d.send(c.Context(), c.HTTP, http.MethodGet, strings.TrimPrefix(c.path, c.d.base), h)
		if err != nil {
			c.Fatal(err)
		}
		c.reply = x402test.Reply{Status: e.status, Header: e.header, Body: e.body}
	}},
}

// everywhere plays something in each world, in a deployment of its own.
func everywhere(t *testing.T, l *lab, play func(*testing.T, *deployment)) {
	for _, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			play(t, w.start(t, l)(t, l.setup()))
		})
	}
}

func TestToolsAndPathsShareAPurchase(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	everywhere(t, l, func(t *testing.T, d *deployment) {
		for _, p := range purchases {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				c := l.caller(t, d, p.script...)
				p.play(c)
				c.bought(p.settles)
			})
		}
	})
}

// TestToolsHostileBodies: whatever is sent to the tools, the answer is one JSON
// message or nothing, nobody is charged, and the service lives.
func TestToolsHostileBodies(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	bodies := []struct {
		name, body string
		status     int
	}{
		{"nothing", "", 400},
		{"zeros", strings.Repeat("\x00", 1000), 400},
		{"not UTF-8", call("{\"name\":\"\xc3\x28\"}"), 400},
		{"half a message", call(`{"name":"dns_lookup"`)[:40], 400},
		{"lists in lists", strings.Repeat("[", 60_000), 400},
		{"objects in objects", call(strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)), 400},
		{"the longest message, and more", call(`{"name":"` + strings.Repeat("a", mcp.MaxBody) + `"}`), 413},
		{"a megabyte", strings.Repeat(" ", 1<<20), 413},
		{"a number without end", call(`{"name":"dns_lookup","arguments":{"domain":` + strings.Repeat("9", 60_000) + `}}`), 200},
		{"a domain without end", call(`{"name":"dns_lookup","arguments":{"domain":"` + strings.Repeat("a.", 30_000) + `"}}`), 200},
		{"many arguments", call(`{"name":"dns_lookup","arguments":{` + strings.TrimSuffix(strings.Repeat(`"b":1,`, 9000), ",") + `}}`), 400},
		{"control characters", call(`{"name":"dns_lookup","arguments":{"domain":"\u0000\u001b[31m\u202eexample.com"}}`), 200},
		{"a payment without end", call(`{"name":"dns_lookup","arguments":{"domain":"example.com"},"_meta":{"x402/payment":"` + strings.Repeat("A", 60_000) + `"}}`), 200},
		{"a payment of nothing", call(`{"name":"dns_lookup","arguments":{"domain":"example.com"},"_meta":{"x402/payment":{"x402Version":2,"accepted":{},"payload":{}}}}`), 200},
		{"a key without end", call(`{"name":"dns_lookup","arguments":{"domain":"example.com"},"_meta":{"x402/idempotency-key":"` + strings.Repeat("k", 60_000) + `"}}`), 200},
		{"prototypes", call(`{"name":"__proto__","arguments":{"__proto__":{"domain":"example.com"}}}`), 200},
	}
	everywhere(t, l, func(t *testing.T, d *deployment) {
		for _, b := range bodies {
			status, body := postTools(t, d, b.body)
			if status != b.status || !json.Valid(body) || !bytes.HasPrefix(body, []byte(`{"jsonrpc":"2.0"`)) {
				t.Errorf("%s: %d %.300s, want %d", b.name, status, body, b.status)
			}
			if len(body) > 16<<10 {
				t.Errorf("%s: an answer of %d bytes", b.name, len(body))
			}
		}
		if status, body := postTools(t, d, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); status != http.StatusOK {
			t.Errorf("afterwards: %d %.300s", status, body)
		}
		is(t, "transfers", len(l.facilitator.Transfers()), 0)
	})
}

func postTools(t *testing.T, d *deployment, body string) (status int, answer []byte) {
	t.Helper()
	res, err := http.Post(d.base+catalog.PathMCP, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if answer, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}
