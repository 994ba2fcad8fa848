package clients

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // imported so that a change of this package, which is part of the started programs, invalidates cached test results
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

var updateScreenshots = flag.Bool("update-screenshots", false, "write build/screenshots/*.png, and from them screenshots/*.png")

func TestMain(m *testing.M) {
	testbed.Parallel(8)
	m.Run()
}

// goods describes what a seller's program sells, and how a buyer asks for it.
type goods struct {
	name   string
	isShop bool   // whether the seller is the shop of infra/shop instead of the service
	path   string // the path and query that buyers request
	amount string
	answer map[string]any
	report *report // the body that buyers post; nil for a GET
	// The same goods as a tool: the name of the tool, a part of its answer, its arguments, and
	// the names of all tools of the seller.
	tool, answerPart string
	arguments        map[string]any
	tools            []string
}

// serviceGoods returns the service's example lookup.
func serviceGoods(t *testing.T) goods {
	op := catalog.DNS()
	g := goods{
		name: "the service", path: op.ExampleURL(""), amount: op.Amount, answer: answer(t),
		tool: op.Tool, answerPart: `"192.0.2.77"`, arguments: map[string]any{"domain": "example.com"},
	}
	for _, op := range catalog.All() {
		g.tools = append(g.tools, op.Tool)
	}
	return g
}

// shopGoods returns goods of the program infra/shop: the weather in Oslo.
func shopGoods() goods {
	return goods{
		name: "the shop", isShop: true, path: "/weather?city=Oslo", amount: "10000", answer: map[string]any{"city": "Oslo", "weather": "fair"},
		tool: "weather", answerPart: `"weather":"fair"`, arguments: map[string]any{"city": "Oslo"}, tools: []string{"weather", "report"},
	}
}

// report is the body that a purchase posts to the shop. Kind is one of the reportKinds.
type report struct {
	Kind  string `json:"kind"`
	City  string `json:"city"`
	Notes string `json:"notes"`
}

// reportKinds returns the formats in which the shop accepts a report, under the names that the
// client programs use.
func reportKinds() []string { return []string{"json", "form", "multipart"} }

// reportGoods returns goods of the shop that are bought with a report of the given kind, with
// the given notes.
func reportGoods(kind, notes string) goods {
	g := shopGoods()
	g.name, g.path, g.report = "the shop, by POST of "+kind, "/report", &report{kind, "Oslo", notes}
	g.answer = map[string]any{"city": "Oslo", "bytes": float64(len(notes))}
	g.tool = "report"
	g.answerPart = fmt.Sprintf(`"bytes":%d`, len(notes))
	g.arguments = map[string]any{"city": "Oslo", "notes": notes}
	return g
}

// world holds the goods, the facilitator, the settings and the folder of one seller's program.
// The program's ledger is in the folder, and is kept when the process ends.
type world struct {
	goods goods
	books *testbed.Facilitator
	env   map[string]string
	dir   string
}

// newWorld returns a world with a new facilitator. The plan says how the facilitator's first
// settlements end.
func newWorld(t *testing.T, resolver string, plan ...x402test.Behaviour) world {
	b := testbed.StartFacilitator(t)
	b.Plan("", plan...)
	return world{goods: serviceGoods(t), books: b, dir: t.TempDir(), env: map[string]string{"FACILITATOR_URL": b.URL, "DNS_RESOLVERS": resolver}}
}

// newTestnetWorld returns a world whose service runs on Base Sepolia. To select this network,
// the service needs only the setting NETWORK.
func newTestnetWorld(t *testing.T) world {
	w := newWorld(t, resolver(t))
	w.books = testbed.StartFacilitatorOn(t, x402.BaseSepolia)
	w.env["FACILITATOR_URL"], w.env["NETWORK"] = w.books.URL, x402.BaseSepolia
	return w
}

// service is a running program that sells, with its play-money facilitator.
type service struct {
	url   string
	goods goods
	books *testbed.Facilitator
	kill  func() // sends SIGKILL, and returns when the process has ended
}

// start starts the local runner in a new world.
func start(t *testing.T, plan ...x402test.Behaviour) service {
	return newWorld(t, resolver(t), plan...).start(t)
}

// startShop starts the shop in a new world without a node. The shop's setting WINDOW is the
// given number of seconds, or the default if window is "".
func startShop(t *testing.T, sold goods, window string) service {
	w := newWorld(t, "")
	w.goods, w.env["DUPLICATE_WINDOW_SECONDS"] = sold, window
	return w.startAt(t, testbed.FreeAddr(t))
}

// start starts the seller in this world. If an earlier process ran in this world, the seller
// uses the ledger of that process again.
func (w world) start(t *testing.T) service {
	return testbed.Must(w.tryStart(t))
}

// startAt starts the seller at an address. It retries while the port is still in use.
func (w world) startAt(t *testing.T, addr string) (s service) {
	w.env["LOCAL_ADDR"] = addr
	testbed.Until(t, w.goods.name+" at "+addr, func() (err error) {
		s, err = w.tryStart(t)
		return err
	})
	return s
}

// tryStart is like start, but returns an error if the seller does not start.
func (w world) tryStart(t *testing.T) (service, error) {
	cmd := testbed.Local(testbed.Program(t, testbed.LocalRunner), w.dir, w.env)
	if w.goods.isShop {
		cmd = testbed.Shop(t, w.dir, w.shopSettings())
	}
	p := testbed.Must(programs.Start(cmd))
	s := service{goods: w.goods, books: w.books, kill: p.Kill}
	if w.goods.isShop { // the shop prints no address when it is ready, and does not handle SIGTERM
		t.Cleanup(p.Kill)
		s.url = "http://" + w.env["LOCAL_ADDR"]
		return s, p.Listens(w.env["LOCAL_ADDR"])
	}
	t.Cleanup(func() { p.End(t) })
	err := p.Ready()
	s.url = p.URL
	return s, err
}

// shopSettings returns the settings of this world under the names that the shop uses.
func (w world) shopSettings() map[string]string {
	settings := map[string]string{
		"ADDR": w.env["LOCAL_ADDR"], "FACILITATOR": w.env["FACILITATOR_URL"], "STATION": w.env["STATION"],
		"NODE": cmp.Or(w.env["RPC_URL"], "none"),
	}
	if window := w.env["DUPLICATE_WINDOW_SECONDS"]; window != "" {
		settings["WINDOW"] = window + "s"
	}
	return settings
}

// answer returns the example answer of the catalog, with the address of this machine as the
// address of the resolver.
func answer(t *testing.T) map[string]any {
	want := decodeJSON[map[string]any](t, []byte(catalog.DNS().Response))
	want["resolver"] = "127.0.0.1"
	return want
}

// resolver starts a resolver that answers the example question with the records of the example,
// and returns its address.
func resolver(t *testing.T) string { return resolverOf(t, exampleZone(t), nil) }

func exampleZone(t *testing.T) string {
	text := "com. 30 NS a.gtld-servers.net.\nexample.com. 30 A 192.0.2.77\n" // the A record is for the MCP tool, which is called without a type
	for _, r := range answer(t)["records"].([]any) {
		mx := r.(map[string]any)
		text += fmt.Sprintf("example.com. %v MX %v %v.\n", answer(t)["ttl"], mx["preference"], mx["exchange"])
	}
	return text
}

// resolverOf starts a resolver that answers from a zone, and returns its address. If intercept
// is not nil, it gets each query before the zone does, and returns true if it has answered.
func resolverOf(t *testing.T, zone string, intercept func(dns.ResponseWriter, *dns.Msg) bool) string {
	z := testbed.ReadZone(t, zone)
	return testbed.Resolver(t, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		if intercept == nil || !intercept(w, q) {
			z.ServeDNS(w, q)
		}
	}))
}

// decodeJSON returns the value that a JSON text contains.
func decodeJSON[T any](t *testing.T, raw []byte) T {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %.3000s", err, raw)
	}
	return v
}

// workshop is a folder in which a program can be saved and run.
type workshop struct {
	dir   string
	env   []string // variables that are added to those of this process
	payer string   // the private key with which the programs pay
}

func newWorkshop(t *testing.T, env ...string) workshop {
	return workshop{dir: t.TempDir(), payer: newPayer(), env: env}
}

// nodeWorkshop returns a workshop with the npm packages of package-lock.json.
func nodeWorkshop(t *testing.T) workshop {
	testbed.Find(t, "Node for the TypeScript program", "npx")
	testbed.Node(t, ".")
	w := newWorkshop(t, "npm_config_offline=true", "npm_config_update_notifier=false")
	modules := testbed.Must(filepath.Abs("node_modules"))
	testbed.Check(os.Symlink(modules, filepath.Join(w.dir, "node_modules")))
	return w
}

// pythonWorkshop returns a workshop with a virtual environment, which has the packages of
// testdata/requirements.txt.
func pythonWorkshop(t *testing.T) workshop {
	bin := filepath.Dir(testbed.Python(t, requirements))
	return newWorkshop(t, "PATH="+bin+":"+os.Getenv("PATH"), "VIRTUAL_ENV="+filepath.Dir(bin))
}

const requirements = "testdata/requirements.txt"

// goWorkshop returns a workshop with the go.mod and go.sum of testdata/go.
func goWorkshop(t *testing.T) workshop {
	w := newWorkshop(t, "GOFLAGS=-mod=readonly", "GOWORK=off")
	w.fill(t, "go")
	return w
}

// fill copies the files of a folder of testdata into the workshop.
func (w workshop) fill(t *testing.T, folder string) {
	testbed.Check(os.CopyFS(w.dir, os.DirFS(filepath.Join("testdata", folder))))
}

// shell returns a command that runs a line in a shell in the workshop.
func (w workshop) shell(t *testing.T, line string, env ...string) *exec.Cmd {
	cmd := testbed.Command(t, "sh", "-c", line)
	cmd.Dir, cmd.WaitDelay = w.dir, 5*time.Second
	cmd.Env = slices.Concat(cmd.Env, []string{"PWD=" + w.dir}, w.env, env)
	return cmd
}

// shellWithKey is like shell, but takes a command of the documentation page and puts the
// payer's key in place of the placeholder.
func (w workshop) shellWithKey(t *testing.T, command string) *exec.Cmd {
	if !strings.HasPrefix(command, placeholder+" ") {
		t.Fatalf("the command %q has no place for the key", command)
	}
	return w.shell(t, strings.Replace(command, placeholder, "PRIVATE_KEY="+w.payer, 1))
}

// save writes a program to a file, like a reader who copies it from the documentation page.
func (w workshop) save(t *testing.T, name, program string) {
	if name == "" || strings.ContainsAny(name, "/\\ ") {
		t.Fatalf("%q is not the name of a file", name)
	}
	testbed.Check(os.WriteFile(filepath.Join(w.dir, name), []byte(program+"\n"), 0o600))
}

// dialogue is a program that reads and writes lines of JSON.
type dialogue struct {
	in    io.WriteCloser
	out   *bufio.Reader
	notes *strings.Builder // the program's stderr; complete when the program has ended
	wait  func() error
}

// begin starts a program for a dialogue.
func begin(t *testing.T, cmd *exec.Cmd) *dialogue {
	d := &dialogue{notes: &strings.Builder{}, wait: cmd.Wait}
	cmd.Stderr = d.notes
	in := testbed.Must(cmd.StdinPipe())
	out := testbed.Must(cmd.StdoutPipe())
	testbed.Check(cmd.Start())
	d.in, d.out = in, bufio.NewReader(out)
	return d
}

// say sends the program a line of JSON.
func (d *dialogue) say(t *testing.T, v any) {
	if err := json.NewEncoder(d.in).Encode(v); err != nil {
		_ = d.wait()
		t.Fatalf("%v\n%s", err, d.notes)
	}
}

// next reads a line of JSON from the program.
func (d *dialogue) next(t *testing.T, v any) {
	line, err := d.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		_ = d.in.Close()
		_ = d.wait()
		t.Fatalf("%v in %q\n%s", err, line, d.notes)
	}
}

// end closes the program's input and waits until the program ends by itself. The program must
// print nothing more.
func (d *dialogue) end(t *testing.T) {
	_ = d.in.Close() // fails if the program has ended
	rest, err := io.ReadAll(d.out)
	if err = errors.Join(err, d.wait()); err != nil || len(rest) > 0 {
		t.Errorf("%v, and %q\n%s", err, rest, d.notes)
	}
}
