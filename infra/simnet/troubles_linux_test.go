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

var onBroken = flag.Bool("broken", false, "with -runs: measure on broken networks, beside the tools that users start")

// deadNetworkSix is the IPv6 network that corresponds to deadNetwork.
const deadNetworkSix = "2606:2800:222::/48"

// The kinds of hosts that are measured on broken networks. Their names begin with the kind.
const (
	sound     = "sound"
	firstDead = "firstdead" // the first of two IPv4 addresses is dead
	sixDead   = "sixdead"   // the IPv6 address is dead, the IPv4 address is good
	fourDead  = "fourdead"  // the IPv4 address is dead, the IPv6 address is good
)

// hostsOfKind is the number of hosts of each kind. This many lookups may run at once without
// two lookups of the same host.
const hostsOfKind = 25

// measured returns the name of the ith host of a kind, and moved returns the name of a host
// that redirects to it.
func measured(kind string, i int) string { return fmt.Sprint(kind, i%hostsOfKind) }
func moved(kind string, i int) string    { return measured(kind, i) + "moved" }

// measuredSix returns an IPv6 address for the hosts of kind fourDead. Each of them needs one,
// and so does the host that redirects to it.
func measuredSix(i int) string { return fmt.Sprintf("2606:2800:220:2::%x", i+1) }

// measuredAddrs returns the commands for the program ip that add every address that
// measuredSix returns.
func measuredAddrs() string {
	var b strings.Builder
	for i := range 2 * hostsOfKind {
		fmt.Fprintf(&b, "addr add %s/128 dev lo nodad\n", measuredSix(i))
	}
	return b.String()
}

func measuredHosts() (all []host) {
	for i := range hostsOfKind {
		for _, h := range []host{
			{name: sound},
			{name: firstDead, dead: deadAddrs(1)},
			{name: sixDead, dead: []string{"2606:2800:222::1"}},
			{name: fourDead, dead: deadAddrs(1), addrs: []string{measuredSix(2 * i)}},
		} {
			from := h
			if h.addrs != nil {
				from.addrs = []string{measuredSix(2*i + 1)}
			}
			from.name, from.serve = moved(h.name, i), web(to("https://"+full(measured(h.name, i))+"/"))
			h.name, h.serve = measured(h.name, i), web(ok)
			all = append(all, h, from)
		}
	}
	return all
}

// trouble describes what is wrong with the network, if anything.
type trouble struct {
	what  string
	kind  string        // kind of the hosts
	loss  float64       // share of packets lost in each direction
	dead  bool          // whether the first resolver is dead
	late  time.Duration // delay of the first resolver's replies
	turns int           // how many lookups of each operation are measured per run; -runs is the number of runs
}

// lateBy is a number of milliseconds. If the first resolver does not reply in time, the p95 of
// dns may be larger by that number than on a healthy network (design §9).
const lateBy = 20

func troubles() []trouble {
	return []trouble{
		{what: "no packet lost", kind: sound, turns: 7},
		{what: "2 % of packets lost each way", kind: sound, loss: 0.02, turns: 7},
		{what: "5 % of packets lost each way", kind: sound, loss: 0.05, turns: 7},
		{what: "the first resolver dead", kind: sound, dead: true, turns: 2},
		{what: "the first resolver 600 ms late", kind: sound, late: 600 * time.Millisecond, turns: 2},
		{what: "the first of two addresses dead", kind: firstDead, turns: 2},
		{what: "IPv6 dead, IPv4 good (curl begins with IPv6, the service with IPv4)", kind: sixDead, turns: 2},
		{what: "IPv4 dead, IPv6 good (curl begins with IPv6, the service with IPv4)", kind: fourDead, turns: 2},
	}
}

// lookups returns the operations to measure. If the hosts have dead addresses, it returns only
// the operations that connect to hosts.
func (c trouble) lookups() []catalog.Operation {
	all := []catalog.Operation{catalog.SSLCheck(), catalog.Headers(), catalog.ResolveRedirect(), catalog.UptimeCheck()}
	if c.kind == sound {
		all = append([]catalog.Operation{catalog.DNS()}, all...)
	}
	return all
}

// of returns lookup number i of an operation.
func (c trouble) of(op catalog.Operation, i int) trip {
	name := measured(c.kind, i)
	if op.Slug == catalog.ResolveRedirect().Slug {
		name = moved(c.kind, i)
	}
	return trip{op: op, domain: full(name)}
}

// begin starts the trouble. To end a trouble, begin the zero trouble, which makes the network
// healthy.
func (c trouble) begin(n *internet) {
	for i := range n.lines {
		n.lines[i].lose(c.loss, uint64(i))
	}
	n.first.become(c.dead, c.late)
}

// series holds how long each of many lookups took, in milliseconds.
type series struct {
	ms     []float64
	failed []string // errors of the lookups that failed
}

func (s *series) add(ms float64, failure string) {
	if s.ms = append(s.ms, ms); failure != "" {
		s.failed = append(s.failed, failure)
	}
}

func (s *series) String() string {
	text := fmt.Sprintf("%s in %d lookups", percentiles(s.ms), len(s.ms))
	if len(s.failed) > 0 {
		text += fmt.Sprintf(", %d failed", len(s.failed))
	}
	return text
}

// ratios divides the service's times by a tool's times, at three percentiles. The service's
// times are in s, and the tool's times in theirs. If all lookups of the tool failed, ratios
// returns an empty text.
func (s *series) ratios(theirs *series) string {
	if len(theirs.failed) == len(theirs.ms) {
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
		t.Run(c.what, func(t *testing.T) {
			fmt.Fprintf(os.Stderr, "measuring lookups, %s ...\n", c.what)
			r := startRunner(t, n)
			c.begin(n)
			defer trouble{}.begin(n)
			for _, op := range c.lookups() {
				_, _ = tryLookup(t, r, c.of(op, 0)) // the first lookup of each operation does not count
			}
			for _, m := range c.measure(t, n, r) {
				if m.op == catalog.DNS().Slug && c.none() {
					healthy = percentile(m.ours.ms, 95)
				}
				testbed.Check(json.NewEncoder(file).Encode(c.row(m, healthy)))
			}
		})
	}
}

// none reports whether the network is healthy.
func (c trouble) none() bool { return c.kind == sound && c.loss == 0 && !c.slow() }

// slow reports whether the first resolver does not reply in time.
func (c trouble) slow() bool { return c.dead || c.late > 0 }

// row returns one line for the file that -rows names. healthy is the p95 of dns on a healthy
// network, or NaN if that was not measured.
func (c trouble) row(m comparison, healthy float64) map[string]any {
	row := map[string]any{
		"what": m.op + ", " + c.what, "ours": m.ours.String(),
		"beside": m.peer + ": " + m.theirs.String(), "ratio": m.ours.ratios(m.theirs),
	}
	if m.op == catalog.DNS().Slug && c.slow() && !math.IsNaN(healthy) {
		row["target"] = fmt.Sprintf("p95 ≤ %d ms more than with no packet lost", lateBy)
		row["met"] = percentile(m.ours.ms, 95) <= healthy+lateBy
	}
	return row
}

// comparison has the durations of an operation's lookups: of the lookups by the service
// (ours), and of the same lookups by a tool (theirs).
type comparison struct {
	op, peer     string
	ours, theirs *series
}

// beat is the interval at which lookups of an operation begin. A lookup begins even if the
// previous one has not ended, so a slow lookup does not delay the others.
const beat = 100 * time.Millisecond

func (c trouble) measure(t *testing.T, n *internet, r *runner) []comparison {
	times, ops := c.turns**runs, c.lookups()
	all := make([]comparison, len(ops))
	var running sync.WaitGroup
	for i, op := range ops {
		all[i] = comparison{op: op.Slug, ours: new(series), theirs: new(series)}
		running.Go(func() { all[i].ours = c.repeat(t, r, op, times) })
		running.Go(func() { all[i].peer, all[i].theirs = startTool(n, c.of(op, 0), times) })
		<-time.After(beat / time.Duration(len(ops))) // so that the operations do not begin their lookups at the same moment
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
			ms, err := tryLookup(t, r, c.of(op, i))
			failure := ""
			if err != nil {
				failure = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			all.add(ms, failure)
		})
		<-time.After(beat)
	}
	running.Wait()
	return &all
}

// startTool has a tool do a lookup many times, in the network namespace of the service.
func startTool(n *internet, c trip, times int) (peer string, all *series) {
	cmd := exec.Command(*peersPath, "tools", "-resolver", strings.Join(resolverAddrs(), ","),
		"-times", strconv.Itoa(times), "-beat", beat.String(), c.op.Slug, c.domain)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	testbed.Check(n.far.start(cmd))
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
// trouble can affect, and the healthy network first. The hosts of a trouble must exist. They
// must have dead addresses if the trouble is dead addresses, and none otherwise.
func TestTroubles(t *testing.T) {
	t.Parallel()
	hosts := map[string]host{}
	for _, h := range measuredHosts() {
		hosts[full(h.name)] = h
	}
	var rows []int
	for _, c := range troubles() {
		rows = append(rows, len(c.lookups()))
		for _, op := range c.lookups() {
			h, there := hosts[c.of(op, hostsOfKind+1).domain]
			if !there || h.serve == nil || (c.kind == sound) != (len(h.dead) == 0) {
				t.Errorf("%s, %s: the host is %+v", op.Slug, c.what, h)
			}
		}
	}
	if none := slices.IndexFunc(troubles(), trouble.none); none != 0 {
		t.Errorf("what the others are held beside is number %d, want it first", none)
	}
	if want := []int{5, 5, 5, 5, 5, 4, 4, 4}; !slices.Equal(rows, want) {
		t.Errorf("%d lookups are measured in the troubles, want %d", rows, want)
	}
}

// TestSeries checks that failed lookups are counted, and that there is no ratio to a series in
// which all lookups failed.
func TestSeries(t *testing.T) {
	t.Parallel()
	var ours, theirs, none series
	for i := range 100 {
		ours.add(float64(i+1), "")
		theirs.add(float64(2*(i+1)), map[bool]string{i == 0: "broken"}[true])
	}
	none.add(8000, "broken")
	for got, want := range map[string]string{
		ours.String():        "p50 51.0, p95 95.0, p99 99.0 ms in 100 lookups",
		theirs.String():      "p50 102.0, p95 190.0, p99 198.0 ms in 100 lookups, 1 failed",
		none.String():        "p50 8000.0, p95 8000.0, p99 8000.0 ms in 1 lookups, 1 failed",
		ours.ratios(&theirs): "p50 0.50, p95 0.50, p99 0.50",
		ours.ratios(&none):   "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestTroubleRow checks the targets. Only the operation dns has a target, and only if the
// first resolver does not reply in time and the healthy network was measured.
func TestTroubleRow(t *testing.T) {
	t.Parallel()
	took := series{ms: []float64{70}}
	for _, c := range []struct {
		trouble trouble
		op      string
		healthy float64
		met     any
	}{
		{trouble{what: "it", dead: true}, "dns", 50, true},
		{trouble{what: "it", late: time.Second}, "dns", 49, false},
		{trouble{what: "it"}, "dns", 10, nil},
		{trouble{what: "it", dead: true}, "dns", math.NaN(), nil},
		{trouble{what: "it", dead: true}, "headers", 10, nil},
	} {
		row := c.trouble.row(comparison{c.op, "peer", &took, &took}, c.healthy)
		if row["met"] != c.met || (row["target"] == nil) != (c.met == nil) || row["what"] != c.op+", it" ||
			row["beside"] != "peer: p50 70.0, p95 70.0, p99 70.0 ms in 1 lookups" || row["ratio"] != "p50 1.00, p95 1.00, p99 1.00" {
			t.Errorf("%+v: %v", c, row)
		}
	}
}
