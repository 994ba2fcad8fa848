package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/judge/launch"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test/judge"
)

var update = flag.Bool("update", false, "write peers.md")

// peer is a seller with a column in the table of peers.md.
type peer struct {
	name        string
	isOurs      bool
	promises    []judge.Promise
	goods       judge.Goods
	seller      judge.Seller
	price       string
	higherPrice string // a higher price at which the seller can be started, or empty; if price is empty, playRows sets both prices
}

// weatherGoods returns the goods of most of the sellers.
func weatherGoods() judge.Goods {
	return judge.Goods{Path: "/weather?city=Oslo", OtherPath: "/weather?city=Rome"}
}

// addTool returns the given goods with a second way to buy them: the MCP tool "weather".
func addTool(goods judge.Goods) judge.Goods {
	goods.ToolPath, goods.Tool, goods.Args, goods.OtherArgs = "/mcp", "weather", `{"city":"Oslo"}`, `{"city":"Rome"}`
	return goods
}

func lookupGoods() judge.Goods {
	return judge.Goods{
		Path: "/v1/tools/dns?domain=example.com", OtherPath: "/v1/tools/dns?domain=example.org",
		ToolPath: "/mcp", Tool: "dns_lookup", Args: `{"domain":"example.com"}`, OtherArgs: `{"domain":"example.org"}`,
	}
}

// allPromises returns all promises that a seller can make. Our sellers make all of them.
func allPromises() []judge.Promise {
	return []judge.Promise{judge.PromiseSame, judge.PromiseNew, judge.PromiseKey}
}

// programSeller returns a seller that is a program. The settings are its environment variables,
// whose values may contain placeholders such as {facilitator}.
func programSeller(addr, command string, goods judge.Goods, settings map[string]string) judge.Seller {
	p := &launch.Program{Command: "exec " + command, Origin: "http://" + addr, Within: 2 * time.Minute}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		p.Env = append(p.Env, name+"="+settings[name])
	}
	path := cmp.Or(goods.Path, goods.ToolPath)
	p.Ready = testbed.Must(http.NewRequest(cmp.Or(goods.Method, http.MethodGet), p.Origin+path, strings.NewReader(goods.Body)))
	if goods.ContentType != "" {
		p.Ready.Header.Set("Content-Type", goods.ContentType)
	}
	return p
}

// startResolver starts a DNS resolver that knows the domains in the requests for lookups, and
// returns the resolver's address.
func startResolver(t *testing.T) string {
	t.Helper()
	return testbed.Resolver(t, testbed.ReadZone(t, "example.com. 300 A 192.0.2.1\nexample.org. 300 A 192.0.2.2\ncom. 3600 NS a.example.\n"))
}

// allPeers returns all sellers, in the order of the table's columns.
func allPeers(t *testing.T) []peer {
	t.Helper()
	return slices.Concat([]peer{localRunner(t), deployedPeer(t)}, shops(t), npmPeers(t), pythonPeers(t))
}

func localRunner(t *testing.T) peer {
	t.Helper()
	addr := address(t)
	env := testbed.Alone()
	maps.Copy(env, map[string]string{
		"FACILITATOR_URL": "{facilitator}", "RPC_URL": "{node}", "LOCAL_ADDR": addr, "LEDGER_FILE": filepath.Join(t.TempDir(), "ledger.db"),
		"DNS_RESOLVERS": startResolver(t), "PAY_TO": testbed.Account(1), "DUPLICATE_WINDOW_SECONDS": "600",
	})
	return peer{
		name: "ours, the local runner", isOurs: true, promises: allPromises(), goods: lookupGoods(), price: "0.005",
		seller: programSeller(addr, testbed.Program(t, testbed.LocalRunner), lookupGoods(), env),
	}
}

// shops returns sellers that run the program of infra/shop, which embeds the library.
func shops(t *testing.T) []peer {
	t.Helper()
	server := testbed.Shop(t, t.TempDir(), nil).Path
	start := func(goods judge.Goods, node string) judge.Seller {
		addr := address(t)
		return programSeller(addr, server, goods, map[string]string{
			"ADDR": addr, "PAY_TO": testbed.Account(1), "LEDGER_FILE": filepath.Join(t.TempDir(), "ledger.db"), "FACILITATOR": "{facilitator}",
			"NODE": node, "STATION": "{upstream}", "PRICE": "{price}", "WINDOW": "600s",
		})
	}
	report := judge.Goods{
		Method: http.MethodPost, Path: "/report", ContentType: "application/json",
		Body: `{"city":"Oslo","notes":"fair"}`, OtherBody: `{"city":"Rome","notes":"fair"}`,
	}
	return []peer{
		{name: "ours, a shop", isOurs: true, goods: addTool(weatherGoods()), seller: start(weatherGoods(), "{node}")},
		{name: "the same, by POST", isOurs: true, goods: report, seller: start(report, "{node}")},
		{name: "the same, without a node", isOurs: true, goods: addTool(weatherGoods()), seller: start(weatherGoods(), "none")},
	}
}

// peerSettings returns the environment variables that every server in testdata/peers reads.
func peerSettings(addr string) map[string]string {
	return map[string]string{
		"PORT": addr[strings.LastIndex(addr, ":")+1:], "PAY_TO": testbed.Account(1), "PRICE": "{price}", "UPSTREAM": "{upstream}", "FACILITATOR": "{facilitator}",
	}
}

func npmPeers(t *testing.T) []peer {
	t.Helper()
	const folder = "testdata/peers/node"
	node := testbed.Node(t, folder)
	start := func(program, flow string) judge.Seller {
		addr := address(t)
		settings := peerSettings(addr)
		settings["FLOW"] = flow
		return programSeller(addr, node+" "+filepath.Join(folder, program), weatherGoods(), settings)
	}
	return []peer{
		{name: "`@x402/express` 2.27.0", goods: weatherGoods(), seller: start("express.mjs", "")},
		{name: "the same, `upfront`", goods: weatherGoods(), seller: start("express.mjs", "upfront")},
		{name: "`@x402/hono` 2.27.0", goods: weatherGoods(), seller: start("hono.mjs", "")},
	}
}

func pythonPeers(t *testing.T) []peer {
	t.Helper()
	const folder = "testdata/peers/python"
	python := testbed.Python(t, filepath.Join(folder, "requirements.txt"))
	start := func(program string, goods judge.Goods) judge.Seller {
		addr := address(t)
		return programSeller(addr, python+" "+filepath.Join(folder, program), goods, peerSettings(addr))
	}
	tool := addTool(judge.Goods{})
	return []peer{
		{name: "`x402` 2.25.0 for Python, FastAPI", goods: weatherGoods(), seller: start("fastapi_server.py", weatherGoods())},
		{name: "the same, Flask", goods: weatherGoods(), seller: start("flask_server.py", weatherGoods())},
		{name: "the same, an MCP tool", goods: tool, seller: start("tool_server.py", tool)},
	}
}

// lambdaSeller is a seller that runs the built Lambda functions on a DynamoDB table, as
// template.yaml deploys them.
type lambdaSeller struct {
	t    *testing.T
	once sync.Once
	host *cloud.Host
	env  map[string]string
	db   cloud.Dynamo
}

// Start implements judge.Seller.
func (f *lambdaSeller) Start(_ context.Context, s judge.Settings) (judge.Instance, error) {
	f.once.Do(func() {
		settings := testbed.Alone()
		maps.Copy(settings, f.env)
		settings["FACILITATOR_URL"], settings["RPC_URL"] = s.Facilitator, s.Node
		parameters := testbed.Parameters(settings)
		parameters["Ledger"] = f.db.DeployedTable(f.t)
		f.host = cloud.Deployment{
			Functions: testbed.Functions(f.t), Parameters: parameters, Environment: map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": f.db.URL},
		}.Open(f.t)
	})
	return f, nil
}

// Origin implements judge.Instance.
func (f *lambdaSeller) Origin() string { return f.host.URL }

// Kill implements judge.Instance. For the next request to a function, the host starts a new
// process.
func (f *lambdaSeller) Kill() {
	for _, name := range f.host.Names() {
		f.host.Kill(name)
	}
}

func deployedPeer(t *testing.T) peer {
	t.Helper()
	return peer{
		name: "ours, functions on DynamoDB", isOurs: true, promises: allPromises(), goods: lookupGoods(), price: "0.005",
		seller: &lambdaSeller{t: t, db: cloud.StartDynamoLocal(t), env: map[string]string{"DNS_RESOLVERS": startResolver(t), "DUPLICATE_WINDOW_SECONDS": "600"}},
	}
}

// TestPeers runs every row of the judge with every seller of allPeers. The table in
// peers.md must have the results. With -update, the test writes the table instead.
func TestPeers(t *testing.T) {
	t.Parallel()
	peers := allPeers(t)
	reports := make([]*judge.Report, len(peers))
	t.Run("all", func(t *testing.T) {
		for i, p := range peers {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				reports[i] = p.playRows(t)
			})
		}
	})
	if t.Failed() {
		return
	}
	table := tableOf(peers, reports)
	text := testbed.Must(os.ReadFile("peers.md"))
	before, rest, _ := strings.Cut(string(text), tableBegins)
	_, after, _ := strings.Cut(rest, tableEnds)
	now := before + tableBegins + table + tableEnds + after
	if now == string(text) {
		return
	}
	if *update {
		testbed.Check(os.WriteFile("peers.md", []byte(now), 0o600))
		return
	}
	t.Errorf("peers.md has another table than this; -update writes it:\n%s", table)
}

// playRows runs every row of the judge with the peer's seller, and returns the report. The
// test fails if one of our sellers breaks a promise.
func (p peer) playRows(t *testing.T) *judge.Report {
	t.Helper()
	if p.price == "" {
		p.price, p.higherPrice = "0.01", "0.02"
	}
	if p.isOurs {
		p.promises = allPromises()
	}
	report, err := judge.Run(t.Context(), judge.Config{
		Seller: p.seller, World: testbed.Must(x402test.World(x402.Base)), Goods: p.goods, Price: p.price, OtherPrice: p.higherPrice,
		Promises: p.promises, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	testbed.Check(report.WriteText(&text))
	t.Log(text.String())
	if broken := report.Broken(); p.isOurs && len(broken) > 0 {
		testbed.Check(report.WriteSteps(t.Output()))
		t.Error(broken)
	}
	return report
}

const (
	tableBegins = "<!-- The test writes this table. -->\n"
	tableEnds   = "<!-- It ends here. -->\n"
)

// tableOf returns the results as a Markdown table with a line for each row of the judge and a
// column for each seller.
func tableOf(peers []peer, reports []*judge.Report) string {
	var b strings.Builder
	b.WriteString("\n| What happens |")
	for _, p := range peers {
		fmt.Fprintf(&b, " %s |", p.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(peers)) + "\n")
	for i, row := range reports[0].Rows {
		fmt.Fprintf(&b, "| `%s`: %s |", row.Row, row.What)
		for _, r := range reports {
			fmt.Fprintf(&b, " %s |", cellOf(r.Rows[i]))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	return b.String()
}

// cellOf returns the table cell for a seller's result in a row, in the form transfers/answers.
// If the result depends on the way of paying, the cell has one entry for each different
// result.
func cellOf(row judge.RowResult) string {
	if row.NotPlayed != "" {
		return "–"
	}
	ways := map[string][]string{}
	var order []string
	for _, c := range row.Cases {
		text := fmt.Sprintf("%d/%d", c.Transfers, c.Answers)
		if c.Verdict == judge.Broken {
			text = "**" + text + "**"
		}
		if ways[text] == nil {
			order = append(order, text)
		}
		ways[text] = append(ways[text], string(c.Way))
	}
	if len(order) == 1 {
		return order[0]
	}
	var all []string
	for _, text := range order {
		all = append(all, text+" "+strings.Join(ways[text], ", "))
	}
	return strings.Join(all, "; ")
}
