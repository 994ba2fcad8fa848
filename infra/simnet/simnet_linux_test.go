package simnet

import (
	"cmp"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // what the programs are made of: the cache of go test sees imports only
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestSimnet plays the tables to the local runner and to the functions as they are deployed, then
// looks at what they covered, and at who was connected to.
func TestSimnet(t *testing.T) {
	if err := testbed.NoNamespaces(); err != nil || testing.Short() {
		t.Skip("played in make verify: ", err)
	}
	n := newInternet(t)
	if *shell {
		openShell(t, n)
		return
	}
	own := proveTap(t, n.tap)
	r := startRunner(t, n)
	seen := &observed{facts: map[string]bool{}, api: testbed.Must(clients.FetchOpenAPI(t.Context(), r.client(t).HTTP, r.url))}
	play := func(t *testing.T, name string, s *runner, rows []row) {
		t.Run(name, func(t *testing.T) {
			for _, c := range rows {
				t.Run(c.String(), func(t *testing.T) {
					t.Parallel()
					seen.play(t, s, c)
				})
			}
		})
	}
	play(t, "table", r, tableRows())
	play(t, "addresses", r, specialRows())
	t.Run("beside each other", func(t *testing.T) {
		t.Run("deployed", func(t *testing.T) {
			t.Parallel()
			play(t, "table", deploy(t, n), tableRows())
		})
		t.Run("without a bootstrap", func(t *testing.T) {
			t.Parallel()
			nowhere := startRunner(t, n, "RDAP_BOOTSTRAP_URL=http://127.0.0.1:9/")
			seen.play(t, nowhere, asks("whois")("example.com", fails(lookup.BootstrapUnavailable)))
			seen.play(t, nowhere, asks("host-intel")("example.com", has(child("whois", lookup.BootstrapUnavailable), `"expired":false`)))
		})
	})
	// Where a row fails or was not asked for, something is missing.
	missed := t.Failed() || strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if !missed {
		t.Run("covers the spec", func(t *testing.T) { covered(t, seen) })
	}
	t.Run("nothing else was connected to", func(t *testing.T) { onlyPublic(t, n, own, missed) })
	t.Run("nothing was left behind", func(t *testing.T) { nothingLeft(t, r) })
}

// covered wants every code of every operation, every verdict, and every nullable field both null
// and set, to have been answered.
func covered(t *testing.T, seen *observed) {
	saw := func(parts ...any) {
		if fact := fmt.Sprint(parts...); !seen.facts[fact] {
			t.Errorf("it was never seen that %s", fact)
		}
	}
	// bothWays is for the operations' own fields; bundles have those of their children.
	var bothWays func(op string, fields []catalog.Field)
	bothWays = func(op string, fields []catalog.Field) {
		for _, f := range fields {
			// That a server chooses a version and a suite without a name is in package ssl.
			if f.Nullable {
				saw(op, ".", f.Name, " null: ", false)
			}
			if f.Nullable && f.Name != "tls_version" && f.Name != "cipher" {
				saw(op, ".", f.Name, " null: ", true)
			}
			bothWays(op, f.Fields)
			for i := 0; f.Type == "array" && i < len(f.Items); i++ {
				bothWays(op, f.Items[i].Fields)
			}
		}
	}
	for _, op := range catalog.All() {
		if op.Kind == catalog.SmokeTest {
			continue
		}
		for _, code := range op.Errors {
			// No request can bring the bundles' time-outs about from outside: the children end
			// half a second before. That there is no room is in the tests of pkg/service.
			if code != lookup.HostIntelTimeout && code != lookup.UptimeCheckTimeout && code != fault.Overloaded {
				saw(op.Slug, " answered ", code)
			}
		}
		bothWays(op.Slug, op.Fields)
	}
	for _, v := range []bundle.Verdict{bundle.Up, bundle.Degraded, bundle.Down} {
		saw(`"verdict":"`, v, `"`)
	}
}

// onlyPublic wants nothing to have been sent but to the hosts that may be connected to, and to this
// test's own servers on 127.0.0.1.
func onlyPublic(t *testing.T, n *internet, own []netip.AddrPort, missed bool) {
	if lost := n.tap.dropped(t); lost > 0 {
		t.Errorf("the tap missed %d packets", lost)
	}
	resolvers := map[netip.Addr]bool{}
	for _, a := range resolverAddrs() {
		resolvers[netip.MustParseAddr(a)] = true
	}
	ours := netip.MustParseAddr("127.0.0.1")
	https := 0
	for to, packet := range n.tap.all() {
		switch a := to.Addr(); {
		case to == own[0] || to == own[1]:
		case a == ours && to.Port() >= 1024: // runner, facilitator
		case a == ours && to.Port() == 9: // the bootstrap that is not there
		case resolvers[a] && to.Port() == 53:
		case n.public[to]:
			https++
		case to.Port() >= 32768 && (resolvers[a] || a.IsLoopback()): // answers over UDP
		default:
			t.Errorf("somebody sent to %s: %q", to, packet)
		}
	}
	if https < 50 && !missed {
		t.Errorf("only %d hosts were connected to: the tap is blind", https)
	}
}

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-shell") { // somebody has typed RTT
		flag.Usage = func() { fmt.Fprintln(os.Stderr, "RTT is a duration, such as 50ms") }
	}
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run()) // the rows are looked at, and not played
	}
	// The tables have no delay: where there is one, it is TestDelay's.
	if f := flag.Lookup("test.run"); *rtt > 0 && !*shell && f != nil && f.Value.String() == "" {
		_ = f.Value.Set("^TestDelay$")
	}
	packages := []string{testbed.LocalRunner, testbed.AllFunctions}
	if *shell || *runs > 1 {
		packages = packages[:1] // neither needs the functions
	}
	os.Exit(testbed.Isolate(m, 48, packages...))
}

// shell asks for a shell in the internet instead of the tests (make simnet).
var shell = flag.Bool("shell", false, "open a shell in the internet, with the service running")

func openShell(t *testing.T, n *internet) {
	r := startRunner(t, n)
	if err := useResolvers(t.TempDir()); err != nil {
		fmt.Fprintln(os.Stderr, "dig and curl do not know this internet's names:", err)
	}
	fmt.Println("Names of this internet, one for each outcome:")
	shown := map[string]bool{}
	for _, r := range tableRows() {
		if outcome := fmt.Sprintf("%-17s %-22s", r.op, cmp.Or(r.want.code, "200")); !shown[outcome] {
			fmt.Println(outcome, r.domain, r.more)
			shown[outcome] = true
		}
	}
	if *rtt > 0 {
		fmt.Printf("\nEverything but the service and this shell is a round trip of %s away.\n", *rtt)
	}
	fmt.Printf("\nThe service is on %s (URL). Its log ends with this shell. For example:\n\n"+
		"  pay \"$URL/v1/tools/ssl-check?domain=expired.example.com\"\n  curl -I https://example.com/\n\n", r.url)
	cmd := exec.Command(cmp.Or(os.Getenv("SHELL"), "/bin/sh"))
	cmd.Env = append(os.Environ(), "URL="+r.url, "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File,
		"PATH="+testbed.Must(filepath.Abs("../../build"))+":"+os.Getenv("PATH"), "PS1=simnet$ ")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := n.far.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, cmd.Path+":", err) // of the last command, mostly
	}
}

// useResolvers gives the programs of this mount namespace our resolvers.
func useResolvers(dir string) error {
	file := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+resolverAddrs()[0]+"\n"), 0o600); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	return syscall.Mount(file, "/etc/resolv.conf", "", syscall.MS_BIND, "")
}

// The rows are of every operation, several of each; no two have one name.
func TestRows(t *testing.T) {
	ops, names := map[string]int{}, map[string]bool{}
	for _, r := range tableRows() {
		if ops[r.op]++; names[r.String()] {
			t.Errorf("two rows are called %q", r)
		}
		names[r.String()] = true
	}
	for _, op := range catalog.All() {
		if op.Kind != catalog.SmokeTest && ops[op.Slug] < 5 {
			t.Errorf("there are only %d rows of %s", ops[op.Slug], op.Slug)
		}
	}
}
