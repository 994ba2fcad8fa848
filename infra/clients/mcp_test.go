package clients

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
)

// tools returns the URL of the service's MCP server.
func (s service) tools() string { return s.url + catalog.PathMCP }

// lambdaTools runs the built functions of the template behind a gateway.
func lambdaTools(t *testing.T) service {
	w, db := newWorld(t, resolver(t)), cloud.StartDynamo(t)
	parameters := testbed.Parameters(testbed.Alone())
	maps.Copy(parameters, testbed.Parameters(w.env))
	parameters["Ledger"] = db.Table(t)
	url := cloud.Deployment{
		Functions: testbed.Functions(t), Parameters: parameters, Environment: map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": db.URL},
	}.Open(t).URL
	return service{url: url, goods: w.goods, books: w.books}
}

// mcpCommand returns a command that runs a program in testdata/mcp, with the key of a new payer.
func mcpCommand(t *testing.T, name string, args ...string) *exec.Cmd {
	cmd := testbed.Command(t, name, args...)
	cmd.Dir = filepath.Join("testdata", "mcp")
	cmd.Env = append(cmd.Env, "PRIVATE_KEY="+newPayer())
	return cmd
}

// bin returns the path of a program that npm has installed. Node itself is such a program: it
// comes from the npm package "node".
func bin(t *testing.T, name string) string {
	testbed.Node(t, ".")
	return testbed.Must(filepath.Abs(filepath.Join("node_modules", ".bin", name)))
}

// decodeOutput runs a program, which must succeed, and decodes the first line of its output.
func decodeOutput[T any](t *testing.T, cmd *exec.Cmd) T {
	line, _, _ := strings.Cut(string(programs.Run(t, cmd)), "\n")
	return decodeJSON[T](t, []byte(line))
}

// arguments returns, as JSON, the arguments with which every client calls the tool.
func (s service) arguments(t *testing.T) string {
	return string(testbed.Must(json.Marshal(s.goods.arguments)))
}

// mcpClients returns third-party clients, by name. Each is a function that returns a command,
// which pays for a tool of the given service. Some commands also print the tool's price, or
// send the same payment again.
func mcpClients() map[string]func(*testing.T, service) *exec.Cmd {
	script := func(program, era string) func(*testing.T, service) *exec.Cmd {
		return func(t *testing.T, s service) *exec.Cmd {
			cmd := mcpCommand(t, bin(t, "node"), program, s.tools(), s.goods.tool, s.arguments(t))
			cmd.Env = append(cmd.Env, "ERA="+era)
			return cmd
		}
	}
	return map[string]func(*testing.T, service) *exec.Cmd{
		// These are clients with both generations of the TypeScript SDK, for the protocol with
		// and without a handshake. They sign with the signer of the x402 project, and parse the
		// tool's bazaar entry with code of that project. The older SDK validates structured
		// content against the output schema, even in the result that asks for a payment.
		"TypeScript 1.x": script("legacy.mjs", ""), "TypeScript 2.x": script("modern.mjs", "legacy"),
		"TypeScript 2.x, negotiated": script("modern.mjs", "auto"), "TypeScript 2.x, 2026-07-28": script("modern.mjs", "modern"),
		// The MCP session of the x402 project itself asks for the price, signs, pays and reads
		// the settlement.
		"Python": func(t *testing.T, s service) *exec.Cmd {
			return mcpCommand(t, testbed.Python(t, requirements), "session.py", s.tools(), s.goods.tool, s.arguments(t))
		},
		"Go": func(t *testing.T, s service) *exec.Cmd {
			program := filepath.Join(t.TempDir(), "client")
			build := testbed.Command(t, "go", "build", "-mod=readonly", "-o", program, ".")
			build.Dir, build.Env = filepath.Join("testdata", "mcp", "go"), append(build.Env, "GOWORK=off")
			programs.Run(t, build)
			wallet := testbed.NewClient(t, &http.Client{Timeout: testbed.Patience})
			header := testbed.Must(mcptest.SignCall(t.Context(), wallet, s.tools(), s.goods.tool, s.goods.arguments))
			return mcpCommand(t, program, s.tools(), s.goods.tool, s.arguments(t), decodeHeader(header))
		},
	}
}

// TestToolClientsPay checks that every client can pay for a tool of the local runner, of the
// built functions and of the shop.
func TestToolClientsPay(t *testing.T) {
	t.Parallel()
	for world, start := range map[string]func(*testing.T) service{
		"local": func(t *testing.T) service { return start(t) }, "lambda": lambdaTools,
		"shop":          func(t *testing.T) service { return startShop(t, shopGoods(), wideWindow) },
		"shop, by POST": func(t *testing.T) service { return startShop(t, reportGoods("json", "sunny"), wideWindow) },
	} {
		t.Run(world, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			for name, client := range mcpClients() {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					s.checkPurchaseBy(t, name, client(t, s))
				})
			}
		})
	}
}

// checkPurchaseBy runs a client. It checks that the client's output and the facilitator's
// books show one purchase of the tool. Most clients also call the tool without a payment and
// with wrong arguments. checkPurchaseBy checks the answers to these calls.
func (s service) checkPurchaseBy(t *testing.T, name string, client *exec.Cmd) {
	got := decodeOutput[struct {
		Tools                      []string
		Unpaid, Paid, Again, Wrong mcptest.ToolResult
		Listing                    struct {
			Valid bool
			Entry map[string]any
		}
	}](t, client)
	if !slices.Equal(got.Tools, s.goods.tools) {
		t.Errorf("tools %q", got.Tools)
	}
	paid := []mcptest.ToolResult{got.Paid}
	if strings.HasPrefix(name, "TypeScript") {
		paid = append(paid, got.Again)
		e := got.Listing.Entry
		listed := got.Listing.Valid && e["toolName"] == catalog.DNS().Tool && strings.HasSuffix(fmt.Sprint(e["resourceUrl"]), catalog.PathMCP)
		if !s.goods.isShop && !listed {
			t.Errorf("a facilitator would list %+v", got.Listing)
		}
	}
	s.checkAnswers(t, paid)
	if moved := s.books.Moved(got.Paid.Meta.Receipt.Payer); len(moved) != 1 || moved[0].Transaction != got.Paid.Meta.Receipt.Transaction {
		t.Errorf("transfers %+v, the receipt says %s", moved, got.Paid.Meta.Receipt.Transaction)
	}
	_, err := got.Unpaid.Required()
	if asked := err == nil && got.Unpaid.IsError; name != "Python" && !asked {
		t.Errorf("%+v: %v", got.Unpaid, err)
	}
	if r := got.Wrong; name != "Go" && (!r.IsError || r.Structured != nil || !s.goods.isShop && !strings.Contains(r.Text(), "invalid_arguments")) {
		t.Errorf("%+v", r)
	}
}

// checkAnswers checks that all answers to one payment are the same, and that all except the
// first are marked as repeated.
func (s service) checkAnswers(t *testing.T, paid []mcptest.ToolResult) {
	t.Helper()
	for i, r := range paid {
		if r.IsError || !strings.Contains(r.Text(), s.goods.answerPart) || r.Meta.Receipt == nil || !r.Meta.Receipt.Success || (r.Meta.Replayed || r.Meta.Repeated) != (i > 0) {
			t.Fatalf("the answer %d: %+v", i, r)
		}
		if r.Text() != paid[0].Text() || *r.Meta.Receipt != *paid[0].Meta.Receipt {
			t.Errorf("another answer to the same payment: %+v", r)
		}
	}
}

// If a client gets no answer, it gives up the call after this number of seconds. A client
// without an idempotency key must call again within the 45 seconds of the window. A client
// with a key may call again later.
const (
	giveUpTimeout      = 30
	giveUpTimeoutKeyed = 60
)

// window is the default duplicate window. Over HTTP, a second payment without a key for the
// same request counts as the same purchase if it is made within this time of the first.
const window = 45 * time.Second

// usualWindow is the value of a shop's setting WINDOW that means the default window.
const usualWindow = ""

// TestSwallowedReply checks a purchase whose answer is lost on a connection that stays open.
// An unmodified client waits until its timeout, signs another payment and calls again. With
// the default window, both payments must be for the same purchase, which is paid once. The
// same must hold over MCP, when a client calls a tool of the service or of the shop. charged.md
// has rows for these tests.
//
// The test takes a minute, which is the timeout of the client with a key and of the SDK of the
// Model Context Protocol.
func TestSwallowedReply(t *testing.T) {
	t.Parallel()
	t.Run("gives up", func(t *testing.T) {
		for _, c := range stockClients() {
			t.Run(c.title, func(t *testing.T) {
				t.Parallel()
				checkGivesUp(t, c)
			})
		}
		for _, name := range toolClients() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				checkToolGivesUp(t, name, func(t *testing.T) service { return start(t) })
			})
			for _, sold := range []goods{shopGoods(), reportGoods("json", "sunny")} {
				t.Run(name+", "+sold.name, func(t *testing.T) {
					t.Parallel()
					checkToolGivesUp(t, name, func(t *testing.T) service { return startShop(t, sold, usualWindow) })
				})
			}
		}
	})
	checkRow(t, fmt.Sprintf("the reply never arrives; the client gives up after %d s, or with a key after %d s", giveUpTimeout, giveUpTimeoutKeyed), len(stockClients()))
	checkRow(t, fmt.Sprintf("the reply never arrives; the SDK gives up after %d s", giveUpTimeoutKeyed), len(toolClients()))
	checkRow(t, "the same with the shop", len(toolClients()))
	checkRow(t, "the same with the shop, for a tool that sells a `POST` handler", len(toolClients()))
}

// toolClients returns the names of the mcpClients that have a timeout for a call.
func toolClients() []string { return []string{"TypeScript 1.x", "TypeScript 2.x, 2026-07-28"} }

// checkGivesUp runs a loop that buys over HTTP. The loop gives up its first call after a
// timeout, and calls again. It must get the answer, and the payer must pay once.
func checkGivesUp(t *testing.T, c stockClient) {
	t.Helper()
	stands, timeout := window, giveUpTimeout
	if c.keyed {
		stands, timeout = ledger.KeptFor, giveUpTimeoutKeyed
	}
	checkSettledOnce(t, stands, func(t *testing.T) service { return start(t) }, func(s service) (payer, fault string) {
		order, payer := orderOf(t, s.url, s.goods, c.keyed)
		order.Timeout = timeout
		p := startLoops(t, c)
		p.orders = []purchase{order}
		results, err := p.loop()
		if err != nil || len(results) != 1 {
			t.Fatal(err)
		}
		faults := results[0].check(s.goods.answer)
		if told := results[0].Told; len(told) != 3 || told[0] != 0 { // of three calls, the first is given up, and both others are answered
			faults = append(faults, fmt.Sprintf("the loop was told %v", told))
		}
		return payer, strings.Join(faults, "\n")
	})
}

// checkToolGivesUp runs a client that buys by calling a tool. The client gives up its first
// call after a timeout, and calls again. It must get the answer, and the payer must pay once.
func checkToolGivesUp(t *testing.T, name string, start func(*testing.T) service) {
	t.Helper()
	checkSettledOnce(t, 2*window, start, func(s service) (payer, fault string) {
		cmd := mcpClients()[name](t, s)
		cmd.Args = append(cmd.Args, "host")
		got := decodeOutput[struct {
			Told []string
			Paid mcptest.ToolResult
		}](t, cmd)
		if got.Paid.Meta.Receipt == nil {
			t.Fatalf("%+v", got)
		}
		if len(got.Told) != 1 || !strings.Contains(got.Told[0], "timed out") || !got.Paid.Meta.Replayed && !got.Paid.Meta.Repeated || !strings.Contains(got.Paid.Text(), s.goods.answerPart) {
			fault = fmt.Sprintf("%+v", got)
		}
		return got.Paid.Meta.Receipt.Payer, fault
	})
}

// checkSettledOnce starts a service and runs a trial with it. The trial returns the payer,
// and a description of any fault. checkSettledOnce repeats this, up to five times in all,
// until the client has made its second call within the window. checkSettledOnce then checks
// that the payer has paid once.
func checkSettledOnce(t *testing.T, window time.Duration, start func(*testing.T) service, trial func(service) (payer, fault string)) {
	for range 5 {
		s := start(t)
		g := newGateway(t, s.url, holdAnswer)
		s.url = g.url
		payer, fault := trial(s)
		if paid := g.paidRequests(); len(paid) > 1 && paid[1].receivedAt.Sub(paid[0].receivedAt) >= window {
			t.Log("the client called again after the window: once more")
			continue
		}
		moved := s.books.Moved(payer)
		if fault != "" || len(moved) != 1 || moved[0].Value != s.goods.amount || len(g.paidRequests()) < 2 || g.paidRequests()[0].signature == g.paidRequests()[1].signature {
			t.Errorf("%v: moved %+v for %d payments", fault, moved, len(g.paidRequests()))
		}
		return
	}
	t.Fatal("in five trials the client never called again within the window: is the machine overloaded?")
}
