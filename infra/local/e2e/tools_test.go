package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// caller is a payer that buys one lookup by path and by tool.
type caller struct {
	testing.TB
	*x402test.Client
	lab    *lab
	payer  string
	domain string
	args   map[string]any
	path   string // the URL of the same question
	tools  string // the URL of the tools
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
		lab: l, payer: payer, domain: domain, args: map[string]any{"domain": domain},
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
	header, err := c.SignCall(c.Context(), c.tools, catalog.DNS().Tool, c.args)
	if err != nil {
		c.Fatal(err)
	}
	c.lab.secret(header)
	return header
}

func (c *caller) signPath() string {
	c.Helper()
	header, err := c.Sign(c.Context(), c.path)
	if err != nil {
		c.Fatal(err)
	}
	c.lab.secret(header)
	return header
}

// byTool and byPath ask until the payment is not in progress any more.
func (c *caller) byTool(header string) x402test.ToolResult {
	c.Helper()
	for begun := time.Now(); ; {
		r := c.call(header, "")
		if !strings.Contains(r.Text(), "payment_in_progress") {
			return r
		}
		if strings.Contains(string(r.Raw), "accepts") {
			c.Fatalf("in progress, and asked to pay: %s", r.Raw)
		}
		if time.Since(begun) > patience {
			c.Fatalf("in progress for ever: %s", r.Raw)
		}
	}
}

func (c *caller) byPath(header string) x402test.Reply {
	c.Helper()
	for begun := time.Now(); ; {
		if r := c.get(header); r.Status != http.StatusConflict {
			return r
		} else if time.Since(begun) > patience {
			c.Fatalf("in progress for ever: %s", r.Body)
		}
	}
}

// bought holds two answers to be the one that was bought, once.
func (c *caller) bought(path x402test.Reply, tool x402test.ToolResult, settles int) {
	c.Helper()
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

// A payment that was sent over one transport gets its answer over the other, with
// one settlement and one lookup, however the first answer was lost.
func TestToolsAndPathsShareAPurchase(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			d := w.start(t, l)(t, l.setup())
			for name, play := range map[string]func(*testing.T){
				"the tool's client goes away": func(t *testing.T) {
					c := l.caller(t, d)
					header := c.signTool()
					c.abandon(func(ctx context.Context) {
						_, _ = c.Call(ctx, c.tools, catalog.DNS().Tool, c.args, header, "") // nobody listens any more
					})
					c.bought(c.byPath(header), c.byTool(header), 1)
				},
				"the path's client goes away": func(t *testing.T) {
					c := l.caller(t, d)
					header := c.signPath()
					c.abandon(func(ctx context.Context) { _, _ = c.Get(ctx, c.path, header) })
					tool := c.byTool(header)
					c.bought(c.byPath(header), tool, 1)
				},
				"the tool is in doubt": func(t *testing.T) {
					c := l.caller(t, d, x402test.DropAfter)
					header := c.signTool()
					if r := c.call(header, ""); !r.IsError || r.Structured != nil || !strings.Contains(r.Text(), "settlement_uncertain") {
						t.Errorf("%s", r.Raw)
					}
					c.bought(c.byPath(header), c.byTool(header), 2)
				},
				"the path is in doubt": func(t *testing.T) {
					c := l.caller(t, d, x402test.DropAfter)
					header := c.signPath()
					if r := c.get(header); r.Status != http.StatusServiceUnavailable {
						t.Errorf("%d %s", r.Status, r.Body)
					}
					tool := c.byTool(header)
					c.bought(c.byPath(header), tool, 2)
				},
				"the offers are one": func(t *testing.T) {
					c := l.caller(t, d)
					header := c.signTool()
					path := c.byPath(header)
					c.bought(path, c.byTool(header), 1)
				},
				"signed anew over the other": func(t *testing.T) {
					c := l.caller(t, d)
					tool := c.byTool(c.signTool())
					c.bought(c.byPath(c.signPath()), tool, 1)
				},
				"one purchase key": func(t *testing.T) {
					c := l.caller(t, d)
					const key = "3e8f43c2-7f0e-4a3b-8a51-6c3b7f8f2a11"
					tool := c.call(c.signTool(), key)
					q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil)
					if err != nil {
						t.Fatal(err)
					}
					q.Header.Set(x402.HeaderSignature, c.signPath())
					q.Header.Set(x402.HeaderKey, key)
					res, err := c.HTTP.Do(q)
					if err != nil {
						t.Fatal(err)
					}
					defer res.Body.Close()
					body, err := io.ReadAll(res.Body)
					if err != nil {
						t.Fatal(err)
					}
					c.bought(x402test.Reply{Status: res.StatusCode, Header: res.Header, Body: body}, tool, 1)
				},
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					play(t)
				})
			}
		})
	}
}
