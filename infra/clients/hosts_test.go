package clients

import (
	"encoding/json"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// hostRequirements lists the packages for the hosts that are written in Python.
var hostRequirements = filepath.Join("testdata", "hosts", "requirements.txt")

// hostOutput is what a host program prints.
type hostOutput struct {
	Tools []string // the tools of the server
	Asks  []bool   // for each tool, whether the host would ask a person before a call; empty if the host does not report this
	Told  []string // the answers to two calls of the same tool
}

// mcpHosts returns third-party programs that start an MCP server, use it over stdio and do not
// know x402. Each calls one tool twice with the same arguments.
func mcpHosts() map[string]func(t *testing.T, tool, arguments string, server []string) hostOutput {
	run := func(t *testing.T, tool, arguments string, server []string, command ...string) hostOutput {
		cmd := testbed.Command(t, command[0], slices.Concat(command[1:], []string{tool, arguments}, server)...)
		cmd.Dir = filepath.Join("testdata", "hosts")
		return decodeOutput[hostOutput](t, cmd)
	}
	python := func(program string) func(*testing.T, string, string, []string) hostOutput {
		return func(t *testing.T, tool, arguments string, server []string) hostOutput {
			return run(t, tool, arguments, server, testbed.Python(t, hostRequirements), program)
		}
	}
	node := func(program string) func(*testing.T, string, string, []string) hostOutput {
		return func(t *testing.T, tool, arguments string, server []string) hostOutput {
			return run(t, tool, arguments, server, bin(t, "node"), program)
		}
	}
	return map[string]func(*testing.T, string, string, []string) hostOutput{
		"Python SDK": python("sdk.py"), "LangChain": python("langchain_tools.py"), "OpenAI Agents": python("openai_agents.py"),
		"TypeScript SDK 1.x": node("legacy.mjs"), "TypeScript SDK 2.x": node("modern.mjs"), "TypeScript SDK 2.x, 2026-07-28": node("negotiated.mjs"),
		"AI SDK": node("aisdk.mjs"), "Inspector": inspect,
	}
}

// inspect lists the tools and calls one of them twice, with the MCP inspector.
func inspect(t *testing.T, tool, arguments string, server []string) hostOutput {
	ask := func(more ...string) []byte {
		launcher := filepath.Join("node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js")
		return programs.Run(t, testbed.Command(t, bin(t, "node"), slices.Concat([]string{launcher, "--cli"}, server, more)...))
	}
	list := decodeJSON[struct {
		Tools []struct {
			Name        string
			Annotations struct{ ReadOnlyHint bool }
		}
	}](t, ask("--method", "tools/list"))
	var r hostOutput
	for _, tool := range list.Tools {
		r.Tools, r.Asks = append(r.Tools, tool.Name), append(r.Asks, !tool.Annotations.ReadOnlyHint)
	}
	var pairs []string
	for name, value := range decodeJSON[map[string]string](t, []byte(arguments)) {
		pairs = append(pairs, name+"="+value)
	}
	for range 2 {
		answer := decodeJSON[struct{ Content []struct{ Text string } }](t, ask(append([]string{"--method", "tools/call", "--tool-name", tool, "--tool-arg"}, pairs...)...))
		r.Told = append(r.Told, answer.Content[0].Text)
	}
	return r
}

// payMCP returns the command with which a host starts pay-mcp for the server at url. It also
// returns the new folder in which pay-mcp keeps its files.
func payMCP(t *testing.T, url string) (server []string, folder string) {
	folder = t.TempDir()
	return []string{testbed.PayMCP(t), "-dir", folder, url}, folder
}

// TestHostsBuy checks that every host can buy an answer of the service through pay-mcp. The
// host must list the tools, must intend to ask a person before a call, and must get the
// answer. A second call must return the same answer without another payment.
func TestHostsBuy(t *testing.T) {
	t.Parallel()
	for name, runHost := range mcpHosts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			server, _ := payMCP(t, s.tools())
			got := runHost(t, s.goods.tool, s.arguments(t), server)
			slices.Sort(got.Tools)
			want := slices.Sorted(slices.Values(s.goods.tools))
			if !slices.Equal(got.Tools, want) || slices.Contains(got.Asks, false) {
				t.Errorf("it sees %+v", got)
			}
			if len(got.Told) != 2 || got.Told[0] != got.Told[1] || !strings.Contains(got.Told[0], s.goods.answerPart) {
				t.Errorf("it is told %q", got.Told)
			}
			if moved := s.books.Transfers(); len(moved) != 1 || moved[0].Value != s.goods.amount {
				t.Errorf("transfers %+v", moved)
			}
		})
	}
}

// TestStockSeller checks purchases through pay-mcp from a server that uses the Python package
// of the x402 project. This server keeps no records, so an answer is lost for good if the
// facilitator moves the money and then fails. In that case pay-mcp must say that the payment
// could still be charged, and must make no second payment. If the facilitator refuses the
// first payment without moving the money, the second call must get the answer.
func TestStockSeller(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan          []x402test.Behaviour
		wantText      string
		wantTransfers int
	}{
		"it settles":                             {wantText: "hello Ann", wantTransfers: 1},
		"its facilitator refuses":                {plan: []x402test.Behaviour{x402test.Refuse}, wantText: "hello Ann", wantTransfers: 1},
		"its facilitator moves money and fails":  {plan: []x402test.Behaviour{x402test.FailAfter}, wantText: "could still be charged", wantTransfers: 1},
		"its facilitator moves money and leaves": {plan: []x402test.Behaviour{x402test.DropAfter}, wantText: "could still be charged", wantTransfers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := testbed.StartFacilitator(t)
			books.Plan("", c.plan...)
			addr := testbed.FreeAddr(t)
			_, port, err := net.SplitHostPort(addr)
			testbed.Check(err)
			cmd := exec.Command(testbed.Python(t, hostRequirements), filepath.Join("testdata", "hosts", "stock_server.py"), books.URL, testbed.Account(1), port)
			p := testbed.Must(programs.Start(cmd))
			t.Cleanup(p.Kill)
			testbed.Check(p.Listens(addr))
			server, _ := payMCP(t, "http://"+addr+"/mcp")
			got := mcpHosts()["Python SDK"](t, "greet", string(testbed.Must(json.Marshal(map[string]string{"name": "Ann"}))), server)
			if !slices.Equal(got.Tools, []string{"greet"}) || len(got.Told) != 2 || !strings.Contains(got.Told[1], c.wantText) {
				t.Errorf("it is told %q\n%s", got.Told, &p.Log)
			}
			if wantTransfers := books.Transfers(); len(wantTransfers) != c.wantTransfers {
				t.Errorf("transfers %+v", wantTransfers)
			}
		})
	}
}
