package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp/mcptest"
)

// tools is the URL of the service's tools.
func (s service) tools() string { return s.url + catalog.PathMCP }

// toolWorlds are the ways to run the service for clients of its tools.
func toolWorlds() map[string]func(*testing.T) service {
	return map[string]func(*testing.T) service{"local": localTools, "lambda": lambdaTools, "shop": startShop}
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
	url := testbed.Deployment{
		Functions:   testbed.Functions(t),
		Parameters:  map[string]string{"Ledger": db.Table(t), "FacilitatorUrl": w.books.URL, "DnsResolvers": w.env["DNS_RESOLVERS"]},
		Environment: extra,
	}.Open(t).URL
	return service{url: url, goods: w.goods, books: w.books}
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
// some need a newer one than many machines have.
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

// toolNames are the tools in their order.
func toolNames() []string {
	var all []string
	for _, op := range catalog.All() {
		all = append(all, op.Tool)
	}
	return all
}

// arguments are those that every agent asks with.
func (s service) arguments(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(s.goods.arguments)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// bought holds results to be those of one purchase.
func (s service) bought(t *testing.T, paid ...mcptest.ToolResult) {
	t.Helper()
	for i, r := range paid {
		if r.IsError || !strings.Contains(r.Text(), s.goods.says) || r.Meta.Receipt == nil || !r.Meta.Receipt.Success || r.Meta.Replayed != (i > 0) {
			t.Fatalf("the answer %d: %+v", i, r)
		}
		if r.Text() != paid[0].Text() || *r.Meta.Receipt != *paid[0].Meta.Receipt {
			t.Errorf("another answer to the same payment: %+v", r)
		}
		if moved := s.books.Moved(r.Meta.Receipt.Payer); len(moved) != 1 || moved[0].Transaction != r.Meta.Receipt.Transaction {
			t.Errorf("transfers %+v, the receipt says %s", moved, r.Meta.Receipt.Transaction)
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

// mcpClients are the clients of others, with a wallet each. All list the tools and pay for
// one; those that can show its price, and pay again.
func mcpClients() map[string]func(*testing.T, service) *exec.Cmd {
	script := func(program, era string) func(*testing.T, service) *exec.Cmd {
		return func(t *testing.T, s service) *exec.Cmd {
			t.Helper()
			cmd := mcpCommand(t, bin(t, "node"), program, s.tools(), s.goods.tool, s.arguments(t))
			cmd.Env = append(cmd.Env, "ERA="+era)
			return cmd
		}
	}
	return map[string]func(*testing.T, service) *exec.Cmd{
		// Those of the TypeScript SDK, of both its generations and in both eras, with the
		// x402 project's own signer. The older one holds the price to the output schema,
		// too. The project's own reader takes the bazaar entry of the tool.
		"TypeScript 1.x": script("legacy.mjs", ""), "TypeScript 2.x": script("modern.mjs", "legacy"),
		"TypeScript 2.x, negotiated": script("modern.mjs", "auto"), "TypeScript 2.x, 2026-07-28": script("modern.mjs", "modern"),
		// The x402 project's MCP session asks for the price, signs, pays and reads the
		// settlement by itself.
		"Python": func(t *testing.T, s service) *exec.Cmd {
			t.Helper()
			return mcpCommand(t, testbed.Python(t, requirements), "session.py", s.tools(), s.goods.tool, s.arguments(t))
		},
		"Go": func(t *testing.T, s service) *exec.Cmd {
			t.Helper()
			program := filepath.Join(t.TempDir(), "client")
			build := testbed.Command(t, "go", "build", "-mod=readonly", "-o", program, ".")
			build.Dir, build.Env = filepath.Join("testdata", "mcp", "go"), append(build.Env, "GOWORK=off")
			testbed.Run(t, build)
			wallet := testbed.NewClient(t, &http.Client{Timeout: patience})
			header, err := mcptest.SignCall(t.Context(), wallet, s.tools(), s.goods.tool, s.goods.arguments)
			if err != nil {
				t.Fatal(err)
			}
			return mcpCommand(t, program, s.tools(), s.goods.tool, s.arguments(t), unwrapped(t, header))
		},
	}
}

// TestToolClientsPay has every client pay for a tool in every world.
func TestToolClientsPay(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s service) {
		for name, client := range mcpClients() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := printed[struct {
					Tools                      []string
					Unpaid, Paid, Again, Wrong mcptest.ToolResult
					Listing                    struct {
						Valid bool
						Entry map[string]any
					}
				}](t, client(t, s))
				if !slices.Equal(got.Tools, s.goods.tools) {
					t.Errorf("tools %q", got.Tools)
				}
				paid := []mcptest.ToolResult{got.Paid}
				if strings.HasPrefix(name, "TypeScript") {
					paid = append(paid, got.Again)
					if e := got.Listing.Entry; !s.goods.stranger && (!got.Listing.Valid || e["toolName"] != catalog.DNS().Tool || !strings.HasSuffix(fmt.Sprint(e["resourceUrl"]), catalog.PathMCP)) {
						t.Errorf("a facilitator would list %+v", got.Listing)
					}
				}
				s.bought(t, paid...)
				if _, err := got.Unpaid.Required(); name != "Python" && (err != nil || !got.Unpaid.IsError) {
					t.Errorf("%+v: %v", got.Unpaid, err)
				}
				if r := got.Wrong; name != "Go" && (!r.IsError || r.Structured != nil || !s.goods.stranger && !strings.Contains(r.Text(), "invalid_arguments")) {
					t.Errorf("%+v", r)
				}
			})
		}
	})
}
