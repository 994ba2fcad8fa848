package simnet

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

var measureBroken = flag.Bool("broken", false, "with -runs: measure on broken networks, beside the tools that users start")

// deadNetworkSix is the IPv6 network that corresponds to deadNetwork.
const deadNetworkSix = "2606:2800:222::/48"

// The kinds of hosts that are measured on broken networks. Their names begin with the kind.
const (
	kindSound     = "sound"
	kindFirstDead = "firstdead" // the first of two IPv4 addresses is dead
	kindSixDead   = "sixdead"   // the IPv6 address is dead, the IPv4 address is good
	kindFourDead  = "fourdead"  // the IPv4 address is dead, the IPv6 address is good
)

// hostsOfKind is the number of hosts of each kind. This many lookups may run at once without
// two lookups of the same host.
const hostsOfKind = 25

// measuredName returns the name of the ith host of a kind, and movedName returns the name of a
// host that redirects to that host.
func measuredName(kind string, i int) string { return fmt.Sprint(kind, i%hostsOfKind) }
func movedName(kind string, i int) string    { return measuredName(kind, i) + "moved" }

// measuredAddr returns an IPv6 address for a host of kind kindFourDead. Each of these hosts
// needs one, and so does the host that redirects to it.
func measuredAddr(i int) string { return fmt.Sprintf("2606:2800:220:2::%x", i+1) }

// addAddrCommands returns the commands for the program ip that add every address that
// measuredAddr returns.
func addAddrCommands() string {
	var b strings.Builder
	for i := range 2 * hostsOfKind {
		fmt.Fprintf(&b, "addr add %s/128 dev lo nodad\n", measuredAddr(i))
	}
	return b.String()
}

func measuredHosts() (all []host) {
	for i := range hostsOfKind {
		for _, h := range []host{
			{name: kindSound},
			{name: kindFirstDead, deadAddrs: deadAddrs(1)},
			{name: kindSixDead, deadAddrs: []string{"2606:2800:222::1"}},
			{name: kindFourDead, deadAddrs: deadAddrs(1), addrs: []string{measuredAddr(2 * i)}},
		} {
			from := h
			if h.addrs != nil {
				from.addrs = []string{measuredAddr(2*i + 1)}
			}
			from.name, from.serve = movedName(h.name, i), web(redirectTo("https://"+domainName(measuredName(h.name, i))+"/"))
			h.name, h.serve = measuredName(h.name, i), web(serveOK)
			all = append(all, h, from)
		}
	}
	return all
}

// trouble describes what is wrong with the network, if anything.
type trouble struct {
	description  string
	kind         string        // kind of the hosts that are looked up
	loss         float64       // share of packets lost in each direction
	resolverDead bool          // whether the first resolver is dead
	replyDelay   time.Duration // delay of the first resolver's replies
	perRun       int           // how many lookups of each operation are measured per run; -runs is the number of runs
}

// maxExtraMS limits how much slower dns may become when the first resolver does not reply in
// time: its p95 may be this many milliseconds above the p95 on a healthy network (design §9).
const maxExtraMS = 20

func troubles() []trouble {
	return []trouble{
		{description: "no packet lost", kind: kindSound, perRun: 7},
		{description: "2 % of packets lost each way", kind: kindSound, loss: 0.02, perRun: 7},
		{description: "5 % of packets lost each way", kind: kindSound, loss: 0.05, perRun: 7},
		{description: "the first resolver dead", kind: kindSound, resolverDead: true, perRun: 2},
		{description: "the first resolver 600 ms late", kind: kindSound, replyDelay: 600 * time.Millisecond, perRun: 2},
		{description: "the first of two addresses dead", kind: kindFirstDead, perRun: 2},
		{description: "IPv6 dead, IPv4 good (curl begins with IPv6, the service with IPv4)", kind: kindSixDead, perRun: 2},
		{description: "IPv4 dead, IPv6 good (curl begins with IPv6, the service with IPv4)", kind: kindFourDead, perRun: 2},
	}
}

// operations returns the operations to measure. If the hosts have dead addresses, it returns
// only the operations that connect to hosts.
func (c trouble) operations() []catalog.Operation {
	all := []catalog.Operation{catalog.SSLCheck(), catalog.Headers(), catalog.ResolveRedirect(), catalog.UptimeCheck()}
	if c.kind == kindSound {
		all = append([]catalog.Operation{catalog.DNS()}, all...)
	}
	return all
}

// lookup returns lookup number i of an operation.
func (c trouble) lookup(op catalog.Operation, i int) timedLookup {
	name := measuredName(c.kind, i)
	if op.Slug == catalog.ResolveRedirect().Slug {
		name = movedName(c.kind, i)
	}
	return timedLookup{op: op, domain: domainName(name)}
}

// apply makes the network have the trouble. The zero trouble makes the network healthy.
func (c trouble) apply(n *internet) {
	for i := range n.lines {
		n.lines[i].setLossShare(c.loss, uint64(i))
	}
	n.firstFaults.set(c.resolverDead, c.replyDelay)
}

// series holds how long each of many lookups took, in milliseconds.
type series struct {
	ms       []float64
	failures []string // errors of the lookups that failed
}

func (s *series) add(ms float64, failure string) {
	if s.ms = append(s.ms, ms); failure != "" {
		s.failures = append(s.failures, failure)
	}
}

func (s *series) String() string {
	text := fmt.Sprintf("%s in %d lookups", percentiles(s.ms), len(s.ms))
	if len(s.failures) > 0 {
		text += fmt.Sprintf(", %d failed", len(s.failures))
	}
	return text
}

// ratios divides the service's times by a tool's times, at three percentiles. The service's
// times are in s, and the tool's times are in theirs. If all lookups of the tool failed, ratios
// returns an empty text.
func (s *series) ratios(theirs *series) string {
	if len(theirs.failures) == len(theirs.ms) {
		return ""
	}
	return fmt.Sprintf("p50 %.2f, p95 %.2f, p99 %.2f", median(s.ms)/median(theirs.ms),
		percentile(s.ms, 95)/percentile(theirs.ms, 95), percentile(s.ms, 99)/percentile(theirs.ms, 99))
}

// writeBroken measures lookups on broken networks. At the same time, third-party tools do the
// same lookups.
func writeBroken(t *testing.T, n *internet) {
	testbed.Check(useResolvers(t.TempDir()))
	file := testbed.Must(os.Create(*rowsPath))
	defer file.Close()
	healthy := math.NaN() // the p95 of dns on a healthy network
	for _, c := range troubles() {
		t.Run(c.description, func(t *testing.T) {
			fmt.Fprintf(os.Stderr, "measuring lookups, %s ...\n", c.description)
			r := startRunner(t, n)
			c.apply(n)
			defer trouble{}.apply(n)
			for _, op := range c.operations() {
				_, _ = tryLookup(t, r, c.lookup(op, 0)) // the first lookup of each operation does not count
			}
			for _, m := range c.measure(t, n, r) {
				if m.op == catalog.DNS().Slug && c.isHealthy() {
					healthy = percentile(m.ours.ms, 95)
				}
				testbed.Check(json.NewEncoder(file).Encode(c.row(m, healthy)))
			}
		})
	}
}

// isHealthy reports whether the network is healthy.
func (c trouble) isHealthy() bool { return c.kind == kindSound && c.loss == 0 && !c.resolverIsSlow() }

// resolverIsSlow reports whether the first resolver does not reply in time.
func (c trouble) resolverIsSlow() bool { return c.resolverDead || c.replyDelay > 0 }

// row returns one line for the file that -rows names. healthy is the p95 of dns on a healthy
// network, or NaN if that was not measured.
func (c trouble) row(m comparison, healthy float64) map[string]any {
	row := map[string]any{
		"what": m.op + ", " + c.description, "ours": m.ours.String(),
		"beside": m.peer + ": " + m.theirs.String(), "ratio": m.ours.ratios(m.theirs),
	}
	if m.op == catalog.DNS().Slug && c.resolverIsSlow() && !math.IsNaN(healthy) {
		row["target"] = fmt.Sprintf("p95 ≤ %d ms more than with no packet lost", maxExtraMS)
		row["met"] = percentile(m.ours.ms, 95) <= healthy+maxExtraMS
	}
	return row
}

// comparison has the durations of an operation's lookups: of the lookups by the service
// (ours), and of the same lookups by a tool (theirs).
type comparison struct {
	op, peer     string
	ours, theirs *series
}

// lookupInterval is the interval at which lookups of an operation begin. A lookup begins even
// if the previous one has not ended, so a slow lookup does not delay the others.
const lookupInterval = 100 * time.Millisecond

func (c trouble) measure(t *testing.T, n *internet, r *runner) []comparison {
	times, ops := c.perRun**runs, c.operations()
	all := make([]comparison, len(ops))
	var running sync.WaitGroup
	for i, op := range ops {
		all[i] = comparison{op: op.Slug, ours: new(series), theirs: new(series)}
		running.Go(func() { all[i].ours = c.repeat(t, r, op, times) })
		running.Go(func() { all[i].peer, all[i].theirs = startTool(n, c.lookup(op, 0), times) })
		<-time.After(lookupInterval / time.Duration(len(ops))) // so that the operations do not begin their lookups at the same moment
	}
	running.Wait()
	return all
}

// repeat does a lookup many times.
func (c trouble) repeat(t *testing.T, r *runner, op catalog.Operation, times int) *series {
	var mu sync.Mutex
	var running sync.WaitGroup
	var all series
	for i := range times {
		running.Go(func() {
			ms, err := tryLookup(t, r, c.lookup(op, i))
			failure := ""
			if err != nil {
				failure = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			all.add(ms, failure)
		})
		<-time.After(lookupInterval)
	}
	running.Wait()
	return &all
}

// startTool has a tool do a lookup many times, in the network namespace of the service.
func startTool(n *internet, c timedLookup, times int) (peer string, all *series) {
	cmd := exec.Command(*peersPath, "tools", "-resolver", strings.Join(resolverAddrs(), ","),
		"-times", strconv.Itoa(times), "-beat", lookupInterval.String(), c.op.Slug, c.domain)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	testbed.Check(n.namespace.start(cmd))
	testbed.Check(cmd.Wait())
	var answers []timing
	testbed.Check(json.Unmarshal(out.Bytes(), &answers))
	all = new(series)
	for _, a := range answers {
		peer = a.Peer
		all.add(a.MS, a.Error)
	}
	return peer, all
}

// TestTroubles checks that "make bench" measures each trouble with all operations that the
// trouble can affect, and the healthy network first. The hosts of a trouble must exist. If the
// trouble is about dead addresses, its hosts must have some; otherwise they must have none.
func TestTroubles(t *testing.T) {
	t.Parallel()
	hosts := map[string]host{}
	for _, h := range measuredHosts() {
		hosts[domainName(h.name)] = h
	}
	var rows []int
	for _, c := range troubles() {
		rows = append(rows, len(c.operations()))
		for _, op := range c.operations() {
			h, there := hosts[c.lookup(op, hostsOfKind+1).domain]
			if !there || h.serve == nil || (c.kind == kindSound) != (len(h.deadAddrs) == 0) {
				t.Errorf("%s, %s: the host is %+v", op.Slug, c.description, h)
			}
		}
	}
	if healthyIndex := slices.IndexFunc(troubles(), trouble.isHealthy); healthyIndex != 0 {
		t.Errorf("what the others are held beside is number %d, want it first", healthyIndex)
	}
	if want := []int{5, 5, 5, 5, 5, 4, 4, 4}; !slices.Equal(rows, want) {
		t.Errorf("%d lookups are measured in the troubles, want %d", rows, want)
	}
}

// TestSeries checks that failed lookups are counted, and that there is no ratio to a series in
// which all lookups failed.
func TestSeries(t *testing.T) {
	t.Parallel()
	var ours, theirs, allFailed series
	for i := range 100 {
		ours.add(float64(i+1), "")
		theirs.add(float64(2*(i+1)), map[bool]string{i == 0: "broken"}[true])
	}
	allFailed.add(8000, "broken")
	for got, want := range map[string]string{
		ours.String():           "p50 51.0, p95 95.0, p99 99.0 ms in 100 lookups",
		theirs.String():         "p50 102.0, p95 190.0, p99 198.0 ms in 100 lookups, 1 failed",
		allFailed.String():      "p50 8000.0, p95 8000.0, p99 8000.0 ms in 1 lookups, 1 failed",
		ours.ratios(&theirs):    "p50 0.50, p95 0.50, p99 0.50",
		ours.ratios(&allFailed): "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestTroubleRow checks the row of a trouble. The row must have a target if its operation is
// dns, the first resolver does not reply in time, and dns was measured on the healthy network.
// Every other row must have no target. The row must also say whether the target was met.
func TestTroubleRow(t *testing.T) {
	t.Parallel()
	took := series{ms: []float64{70}}
	for _, c := range []struct {
		trouble trouble
		op      string
		healthy float64
		met     any
	}{
		{trouble{description: "it", resolverDead: true}, "dns", 50, true},
		{trouble{description: "it", replyDelay: time.Second}, "dns", 49, false},
		{trouble{description: "it"}, "dns", 10, nil},
		{trouble{description: "it", resolverDead: true}, "dns", math.NaN(), nil},
		{trouble{description: "it", resolverDead: true}, "headers", 10, nil},
	} {
		row := c.trouble.row(comparison{c.op, "peer", &took, &took}, c.healthy)
		if row["met"] != c.met || (row["target"] == nil) != (c.met == nil) || row["what"] != c.op+", it" ||
			row["beside"] != "peer: p50 70.0, p95 70.0, p99 70.0 ms in 1 lookups" || row["ratio"] != "p50 1.00, p95 1.00, p99 1.00" {
			t.Errorf("%+v: %v", c, row)
		}
	}
}
