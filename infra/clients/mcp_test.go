package clients

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// tools is the URL of the service's tools.
func (s service) tools() string { return s.url + catalog.PathMCP }

// toolWorlds are the ways to run the service for clients of its tools.
func toolWorlds() map[string]func(*testing.T) service {
	return map[string]func(*testing.T) service{"local": localTools, "lambda": lambdaTools}
}

// anyName is a resolver that answers every question about an address with one of
// documentation.
func anyName(t *testing.T) string {
	t.Helper()
	return resolverOf(t, "*. 30 A 192.0.2.77", nil)
}

// localTools runs the built local runner, which reaches nothing but its resolver.
func localTools(t *testing.T) service {
	t.Helper()
	s := newWorld(t, anyName(t)).start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the service said:\n%s", s.log())
		}
	})
	return s
}

// lambdaTools runs the built functions of the template behind a gateway.
func lambdaTools(t *testing.T) service {
	t.Helper()
	w, db := newWorld(t, anyName(t)), testbed.StartDynamo(t)
	extra := testbed.Alone()
	extra["AWS_ENDPOINT_URL_DYNAMODB"] = db.URL
	_, url := testbed.Deployment{
		Functions:   testbed.Functions(t),
		Parameters:  map[string]string{"Ledger": db.Table(t), "FacilitatorUrl": w.books.URL, "DnsResolvers": w.env["DNS_RESOLVERS"]},
		Environment: extra,
		Configure: func(c *lambdahost.Config) {
			c.Logs, c.Domain = io.Discard, "agents.execute-api.us-east-1.amazonaws.com"
		},
	}.Open(t)
	return service{url: url, books: w.books}
}

// mcpCommand prepares a program that runs in testdata/mcp, with a key to pay with.
func mcpCommand(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := testbed.Command(t, name, args...)
	cmd.Dir = filepath.Join("testdata", "mcp")
	cmd.Env = append(cmd.Env, "PRIVATE_KEY="+newPayer())
	return cmd
}

// bin is the path of an installed npm program; node itself is one of them, because
// the conformance suite needs a newer one than many machines have.
func bin(t *testing.T, name string) string {
	t.Helper()
	testbed.Node(t, ".")
	path, err := filepath.Abs(filepath.Join("node_modules", ".bin", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// printed decodes the first line of what a program prints that must succeed.
func printed[T any](t *testing.T, cmd *exec.Cmd) T {
	t.Helper()
	line, _, _ := strings.Cut(string(testbed.Run(t, cmd)), "\n")
	return decoded[T](t, []byte(line))
}

// arguments are those that every agent asks with.
const arguments = `{"domain":"example.com"}`

// toolNames are the tools in their order.
func toolNames() []string {
	var all []string
	for _, op := range catalog.All() {
		all = append(all, op.Tool)
	}
	return all
}

// moved are the transactions of an account in the books.
func (s service) moved(payer string) []string {
	var all []string
	for _, transfer := range s.books.Moved(payer) {
		all = append(all, transfer.Transaction)
	}
	return all
}

// bought holds results to be those of one purchase.
func (s service) bought(t *testing.T, paid ...x402test.ToolResult) {
	t.Helper()
	for i, r := range paid {
		if r.IsError || !strings.Contains(r.Text(), `"192.0.2.77"`) || r.Meta.Receipt == nil || !r.Meta.Receipt.Success || r.Meta.Replayed != (i > 0) {
			t.Fatalf("the answer %d: %+v", i, r)
		}
		if r.Text() != paid[0].Text() || *r.Meta.Receipt != *paid[0].Meta.Receipt {
			t.Errorf("another answer to the same payment: %+v", r)
		}
		if tx := s.moved(r.Meta.Receipt.Payer); !slices.Equal(tx, []string{r.Meta.Receipt.Transaction}) {
			t.Errorf("transfers %q, the receipt says %s", tx, r.Meta.Receipt.Transaction)
		}
	}
}

// everywhere runs a test in every world.
func everywhere(t *testing.T, run func(t *testing.T, s service)) {
	t.Helper()
	for name, start := range toolWorlds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, start(t))
		})
	}
}

// The clients of the TypeScript SDK, of both its generations and in both eras,
// see the price and pay it with the x402 project's own signer. The older one holds
// the price to the output schema, too. The project's own reader takes the bazaar
// entry of the tool.
func TestTypeScriptClientsPay(t *testing.T) {
	t.Parallel()
	node := bin(t, "node")
	everywhere(t, func(t *testing.T, s service) {
		for name, c := range map[string]struct{ program, era string }{
			"1.x": {"legacy.mjs", ""}, "2.x": {"modern.mjs", "legacy"}, "2.x, negotiated": {"modern.mjs", "auto"}, "2.x, 2026-07-28": {"modern.mjs", "modern"},
		} {
			cmd := mcpCommand(t, node, c.program, s.tools(), catalog.DNS().Tool, arguments)
			cmd.Env = append(cmd.Env, "ERA="+c.era)
			got := printed[struct {
				Tools                      []string
				Unpaid, Paid, Again, Wrong x402test.ToolResult
				Listing                    struct {
					Valid bool
					Entry map[string]any
				}
			}](t, cmd)
			if !slices.Equal(got.Tools, toolNames()) {
				t.Errorf("%s: tools %q", name, got.Tools)
			}
			if _, err := got.Unpaid.Required(); err != nil || !got.Unpaid.IsError {
				t.Errorf("%s: %+v: %v", name, got.Unpaid, err)
			}
			if e := got.Listing.Entry; !got.Listing.Valid || e["toolName"] != catalog.DNS().Tool || !strings.HasSuffix(fmt.Sprint(e["resourceUrl"]), catalog.PathMCP) {
				t.Errorf("%s: a facilitator would list %+v", name, got.Listing)
			}
			s.bought(t, got.Paid, got.Again)
			if !got.Wrong.IsError || got.Wrong.Structured != nil || !strings.Contains(got.Wrong.Text(), "invalid_arguments") {
				t.Errorf("%s: %+v", name, got.Wrong)
			}
		}
	})
}

// The x402 project's MCP session for Python asks for the price, signs, pays and
// reads the settlement by itself.
func TestPythonSessionPays(t *testing.T) {
	t.Parallel()
	interpreter := testbed.Python(t, requirements)
	everywhere(t, func(t *testing.T, s service) {
		cmd := mcpCommand(t, interpreter, "session.py", s.tools(), catalog.DNS().Tool, arguments)
		got := printed[struct {
			Tools       []string
			Made, Error bool
			Text, Wrong string
			Receipt     x402.SettleResponse
			WrongMade   bool `json:"wrong_made"`
		}](t, cmd)
		if !slices.Equal(got.Tools, toolNames()) || !got.Made || got.Error || !strings.Contains(got.Text, `"192.0.2.77"`) || !got.Receipt.Success {
			t.Errorf("%+v", got)
		}
		if got.WrongMade || !strings.Contains(got.Wrong, "invalid_arguments") {
			t.Errorf("wrong arguments: paid %v, %s", got.WrongMade, got.Wrong)
		}
		if tx := s.moved(got.Receipt.Payer); !slices.Equal(tx, []string{got.Receipt.Transaction}) {
			t.Errorf("transfers %q, the receipt says %s", tx, got.Receipt.Transaction)
		}
	})
}

// The client of the Go SDK, with a wallet beside it.
func TestGoClientPays(t *testing.T) {
	t.Parallel()
	program := t.TempDir() + "/client"
	build := mcpCommand(t, "go", "build", "-mod=readonly", "-o", program, ".")
	build.Dir = "testdata/mcp/go"
	build.Env = append(build.Env, "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	everywhere(t, func(t *testing.T, s service) {
		wallet, err := x402test.NewWallet(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		client := begin(t, mcpCommand(t, program, s.tools(), catalog.DNS().Tool, arguments))
		var unpaid, paid struct {
			Tools  int
			Result x402test.ToolResult
		}
		client.next(t, &unpaid)
		required, err := unpaid.Result.Required()
		if err != nil || unpaid.Tools != len(toolNames()) {
			t.Fatal(unpaid.Tools, err)
		}
		header, err := wallet.Pay(required, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		payment, err := base64.StdEncoding.DecodeString(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.in.Write(payment); err != nil {
			t.Fatal(err)
		}
		client.in.Close()
		client.next(t, &paid)
		client.end(t)
		s.bought(t, paid.Result)
	})
}

// The client that holds every result to its output schema takes the price of each
// tool, and what comes of paying: a result, or an error of text alone. What the
// schemas say is what the OpenAPI description says, to which real answers are held
// elsewhere.
func TestStrictClientTakesEveryTool(t *testing.T) {
	t.Parallel()
	node := bin(t, "node")
	s := localTools(t)
	for _, op := range catalog.All() {
		args := arguments
		if op.Kind == catalog.SmokeTest {
			args = `{}`
		}
		cmd := mcpCommand(t, node, "legacy.mjs", s.tools(), op.Tool, args)
		got := printed[struct{ Unpaid, Paid x402test.ToolResult }](t, cmd)
		if offer, err := got.Unpaid.Required(); err != nil || offer.Accepts[0].Amount != op.Amount {
			t.Errorf("%s: %+v: %v", op.Tool, got.Unpaid, err)
		}
		if got.Paid.Meta.Receipt == nil || got.Paid.IsError == (got.Paid.Structured != nil) {
			t.Errorf("%s: %+v", op.Tool, got.Paid)
		}
		if whole := op.Kind != catalog.Tool || op.Slug == catalog.DNS().Slug; whole && got.Paid.IsError {
			t.Errorf("%s: %+v", op.Tool, got.Paid)
		}
	}
}
