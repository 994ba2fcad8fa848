package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/infra/testbed"
	wire "github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// stranger is a paid server that stores no answers. Like the reference servers, it settles and
// answers every payment that it receives.
type stranger struct {
	url string

	mu            sync.Mutex
	terms         x402.Requirements
	paidNonces    []string // the nonces of the payments that moved money
	toolPages     int      // the number of pages of the list of tools
	refusalReason string   // if not empty, the server refuses every payment for this reason
	// facilitatorURL, if not empty, is the URL of a facilitator that moves the money before
	// the server refuses the payment.
	facilitatorURL string
}

const strangerPayee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"

func newStranger(t *testing.T) *stranger {
	usdc := x402.USDC()
	usdc.PayTo = strangerPayee
	s := &stranger{terms: usdc.Requirements("20000"), toolPages: 3}
	server := mcp.NewServer(&mcp.Implementation{Name: "stranger", Version: "1"}, &mcp.ServerOptions{PageSize: 2})
	for n := range 2 * s.toolPages {
		server.AddTool(&mcp.Tool{Name: fmt.Sprintf("tool_%d", n), Description: "Says hello.", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(false)}}, s.call)
	}
	s.url = testbed.Serve(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	return s
}

func (s *stranger) call(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, paid := r.Params.Meta[wire.KeyPayment]
	if !paid || s.refusalReason != "" {
		return s.paymentRequired(s.refusalReason), nil
	}
	var p bill.Signed
	if err := json.Unmarshal(testbed.Must(json.Marshal(sent)), &p); err != nil {
		return nil, err
	}
	a := p.Payload.Authorization
	if s.facilitatorURL != "" {
		return s.paymentRequired("settlement failed"), s.settle(sent)
	}
	for _, nonce := range s.paidNonces {
		if nonce == a.Nonce {
			return s.paymentRequired("nonce already used"), nil
		}
	}
	s.paidNonces = append(s.paidNonces, a.Nonce)
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: "hello " + string(r.Params.Arguments)}},
		Meta:    mcp.Meta{wire.KeyResponse: x402.SettleResponse{Success: true, Transaction: "0x01", Network: s.terms.Network, Payer: a.From}},
	}, nil
}

// settle calls the facilitator to move the money of a payment.
func (s *stranger) settle(payment any) error {
	body := testbed.Must(json.Marshal(map[string]any{"x402Version": x402.Version, "paymentPayload": payment, "paymentRequirements": s.terms}))
	res, err := http.Post(s.facilitatorURL+"/settle", "application/json", bytes.NewReader(body)) //nolint:noctx // a request of a test needs no context
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

func (s *stranger) paymentRequired(why string) *mcp.CallToolResult {
	offer := x402.PaymentRequired{X402Version: x402.Version, Error: why, Resource: x402.Resource{URL: "mcp://tool/x"}, Accepts: []x402.Requirements{s.terms}}
	text := testbed.Must(json.Marshal(offer))
	return &mcp.CallToolResult{IsError: true, StructuredContent: json.RawMessage(text), Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}
}

// update calls edit with the running server. The function edit can change the server, for
// example its terms.
func (s *stranger) update(edit func(s *stranger)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s)
}

func (s *stranger) checkCharged(t *testing.T, times int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.paidNonces) != times {
		t.Errorf("charged %d times, want %d", len(s.paidNonces), times)
	}
}

// writeKey writes a private key to a file in a folder, and returns the path. Only the file's
// owner can read it.
func writeKey(t *testing.T, dir string) string {
	path := filepath.Join(dir, "wallet.key")
	testbed.Check(os.WriteFile(path, []byte("0x"+hex.EncodeToString(append(make([]byte, 31), 7))+"\n"), 0o600))
	return path
}

// allowPayments makes a folder with a purse, and allows payments to the server at url. It
// returns the folder and the purse.
func allowPayments(t *testing.T, url string) (dir string, p *purse.Purse) {
	t.Helper()
	dir = t.TempDir()
	at := testbed.Must(parseTarget(url))
	p = testbed.Must(purse.Open(filepath.Join(dir, folderFor(at)), time.Now, time.After))
	usdc := x402.USDC()
	testbed.Check(p.Allow(purse.Allowance{
		Server: at.String(), PayTo: strangerPayee, Network: usdc.Network, Asset: usdc.Asset, PerCall: "20000", PerDay: "50000", Node: purse.NoNode, KeyFile: writeKey(t, dir), Allowed: time.Now(),
	}))
	return dir, p
}

// TestStranger checks that pay-mcp can pay a server of another product. The host must see the
// tools of all pages, with the limits in their descriptions. A new process must know how much
// of the budget is spent. If a call is repeated soon, its answer must be returned again
// without a charge, although the server stores no answers.
func TestStranger(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	dir, _ := allowPayments(t, s.url)
	start := func() hostSession { return startHost(t, testbed.PayMCP(t), "-dir", dir, s.url) }
	h := start()
	list := testbed.Must(h.ListTools(t.Context(), nil))
	if len(list.Tools) != 2*s.toolPages {
		t.Errorf("%d tools", len(list.Tools))
	}
	for _, tool := range list.Tools {
		a := tool.Annotations
		if a.ReadOnlyHint || a.OpenWorldHint == nil || *a.OpenWorldHint || !strings.HasPrefix(tool.Description, "Says hello.") ||
			!strings.Contains(tool.Description, "Each call costs money, and the server is asked for the price (limits: 0.02 USDC a call, 0.05 USDC in any 24 hours).") {
			t.Errorf("%+v %s", a, tool.Description)
		}
	}
	first := h.call(t, "tool_1", map[string]any{"n": 1})
	if !isPlainAnswer(first) {
		t.Fatal(textOf(first))
	}
	again := start().call(t, "tool_1", map[string]any{"n": 1.0})
	if again.IsError || !strings.HasPrefix(textOf(again), textOf(first)) {
		t.Errorf("another process says: %s", textOf(again))
	}
	s.checkCharged(t, 1)
	if r := start().call(t, "tool_2", map[string]any{}); !isPlainAnswer(r) {
		t.Error(textOf(r))
	}
	over := start().call(t, "tool_3", map[string]any{})
	for _, want := range []string{"this costs 0.02 USDC on Base, and 0.04 USDC on Base of the budget of 0.05 USDC on Base for any 24 hours", "Only a person can raise the budget, in a terminal: ", " allow " + s.url} {
		if !over.IsError || !strings.Contains(textOf(over), want) {
			t.Errorf("it says %s\nwant %s", textOf(over), want)
		}
	}
	s.checkCharged(t, 2)
}

// TestChangedTerms checks that only what was allowed is paid. For another price, payee, token
// or network, nothing may be paid, and the message must say why.
func TestChangedTerms(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	dir, p := allowPayments(t, s.url)
	h := startHost(t, testbed.PayMCP(t), "-dir", dir, s.url)
	const other = "0x0000000000000000000000000000000000000bad"
	for name, c := range map[string]struct {
		change   func(s *stranger)
		wantText string
	}{
		"the price":   {func(s *stranger) { s.terms.Amount = "20001" }, "this costs 0.020001 USDC on Base, and the limit for one call is 0.02 USDC on Base"},
		"the payee":   {func(s *stranger) { s.terms.PayTo = other }, "the server asks to pay " + other + ", but the allowed payee is " + strangerPayee},
		"the token":   {func(s *stranger) { s.terms.Asset = other }, "asks for the token " + other},
		"the network": {func(s *stranger) { s.terms.Network = "eip155:84532" }, "asks to be paid on Base Sepolia, but the allowed network is eip155:8453"},
	} {
		former := s.terms
		s.update(c.change)
		r := h.call(t, "tool_0", map[string]any{"what": name})
		if !r.IsError || !strings.Contains(textOf(r), c.wantText) || !strings.Contains(textOf(r), "Nothing was signed or charged") {
			t.Errorf("%s: %s", name, textOf(r))
		}
		s.update(func(s *stranger) { s.terms = former })
	}
	s.checkCharged(t, 0)
	// If one of these files becomes accessible to others, even a running process must stop
	// paying.
	for path, wantText := range map[string]string{p.AllowanceFile(): "chmod 600", filepath.Join(dir, "wallet.key"): "chmod 600"} {
		testbed.Check(os.Chmod(path, 0o644))
		if r := h.call(t, "tool_0", map[string]any{}); !r.IsError || !strings.Contains(textOf(r), wantText) {
			t.Errorf("%s is open to others: %s", path, textOf(r))
		}
		if path == p.AllowanceFile() {
			list := testbed.Must(startHost(t, testbed.PayMCP(t), "-dir", dir, s.url).ListTools(t.Context(), nil))
			if said := list.Tools[0].Description; !strings.Contains(said, "Calls are not paid for yet: ") || !strings.Contains(said, wantText) {
				t.Errorf("a tool is described as %s", said)
			}
		}
		testbed.Check(os.Chmod(path, 0o600))
	}
	s.checkCharged(t, 0)
	s.update(func(s *stranger) { s.refusalReason = "no \x1b[2J funds" })
	r := h.call(t, "tool_0", map[string]any{})
	if !r.IsError || strings.Contains(textOf(r), "\x1b") || !strings.Contains(textOf(r), "Its reason: \"no ") || !strings.Contains(textOf(r), "could still be charged") {
		t.Errorf("refused: %q", textOf(r))
	}
}

// TestChainDecides checks a server that refuses a payment without saying whether it was
// charged. While the chain shows no transfer, pay-mcp must say that the payment could still be
// charged. When the chain shows the transfer, pay-mcp must say that the payment was made. It
// must pay only once.
func TestChainDecides(t *testing.T) {
	t.Parallel()
	books := testbed.StartFacilitator(t)
	node := testbed.Serve(t, testbed.PlayNode{Moved: books.Transfers, ChainID: 8453, Now: time.Now})
	s := newStranger(t)
	s.terms.PayTo = testbed.Account(1)
	dir, p := allowPayments(t, s.url)
	a := testbed.Must(p.ReadAllowance(testbed.Must(parseTarget(s.url)).String()))
	a.PayTo, a.Node = s.terms.PayTo, node
	testbed.Check(p.Allow(*a))
	h := startHost(t, testbed.PayMCP(t), "-dir", dir, s.url)
	s.update(func(s *stranger) { s.refusalReason = "not yet" })
	if r := h.call(t, "tool_1", map[string]any{}); !strings.Contains(textOf(r), "could still be charged") {
		t.Errorf("unused on the chain: %s\n%s", textOf(r), h.log)
	}
	s.update(func(s *stranger) { s.refusalReason, s.facilitatorURL = "", books.URL })
	for range 2 { // the second call must not change anything
		r := h.call(t, "tool_1", map[string]any{})
		moved := books.Transfers()
		if len(moved) != 1 {
			t.Fatalf("transfers %+v: %s", moved, textOf(r))
		}
		if want := "Charged, and not answered: the payment of 0.02 USDC on Base was made in the transaction " + moved[0].Transaction; !strings.Contains(textOf(r), want) {
			t.Errorf("paid on the chain: %s\nwant %s", textOf(r), want)
		}
	}
}

// TestNotAllowed checks that a server on another machine must use https, and that other
// unusable URLs are refused as well. A server on another machine is not paid before a person
// has allowed it: the error must show the command for that.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	for url, wantErr := range map[string]string{
		"http://api.example.com/mcp":     "must use https",
		"https://me:pw@api.example.com/": "user name",
		"ftp://127.0.0.1/mcp":            "not the URL of an MCP server",
		"127.0.0.1:8402/mcp":             "not the URL of an MCP server",
	} {
		if _, err := parseTarget(url); err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: %v", url, err)
		}
	}
	at := testbed.Must(parseTarget("https://API.example.com/mcp#x"))
	p := &program{now: time.Now, after: time.After, executable: "/bin/pay-mcp", folder: t.TempDir()}
	till := &till{program: p, serverURL: at, purse: testbed.Must(purse.Open(p.folder, time.Now, time.After))}
	if _, err := till.terms(); err == nil || !strings.Contains(err.Error(), "/bin/pay-mcp -dir "+p.folder+" -wait 0s allow https://api.example.com/mcp") {
		t.Error(err)
	}
	if here := testbed.Must(parseTarget("http://LOCALHOST:8402/mcp")); here.Host != "localhost:8402" || !bill.IsLoopback(here) {
		t.Error(here)
	}
}
