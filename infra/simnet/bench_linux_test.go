package simnet

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// runs asks TestDelay for the table of lookup times instead of the tests
// (make bench).
var runs = flag.Int("runs", 1, "measure each lookup that many times and print the table of times; wants -rtt")

// rowsPath is where the table is also written for make bench, a line of JSON for
// each operation.
var rowsPath = flag.String("rows", "", "write the table of times to this file, too")

// target is design §12's: lookup time over its round trips.
const target = 1.10

// trip is a lookup with the round trips that it needs and what they are for:
// each waits for the one before.
type trip struct {
	op     catalog.Operation
	domain string
	trips  int
	why    string
}

func trips() []trip {
	return []trip{
		{catalog.DNS(), "example.com", 1, "question"},
		{catalog.SSLCheck(), "example.com", 3, "name, TCP, TLS"},
		{catalog.Whois(), "example.com", 4, "registry's name, TCP, TLS, HTTP"},
		{catalog.Headers(), "example.com", 4, "name, TCP, TLS, HEAD"},
		{catalog.ResolveRedirect(), "relative.example.com", 6, "one host: name, TCP, TLS, 3 x HEAD"},
		{catalog.ResolveRedirect(), "there.example.com", 8, "two hosts: 2 x (name, TCP, TLS, HEAD)"},
		{catalog.HostIntel(), "example.com", 4, "the slowest child, whois"},
		{catalog.UptimeCheck(), "example.com", 4, "name, TCP, TLS, HEAD"},
	}
}

// takesItsTrips wants each lookup to last its round trips: a shorter one
// would have kept an answer or a connection of an earlier call. How much longer
// it lasts is the table's to say, not a test's.
func takesItsTrips(t *testing.T, r *runner) {
	for _, c := range trips() {
		for range 2 {
			took := lookupTime(t, r, c)
			if least := time.Duration(c.trips) * *rtt; took < least {
				t.Errorf("%s of %s took %s, want %d round trips, %s, at least", c.op.Slug, c.domain, took, c.trips, least)
			}
		}
	}
}

// lookupTime pays for a lookup and reads in the service's log how long it
// took, settlement not included.
func lookupTime(t *testing.T, r *runner, c trip) time.Duration {
	t.Helper()
	reply, err := r.buy(t.Context(), c.op.Path+"?domain="+c.domain)
	if err != nil || reply.Status != 200 || strings.Contains(string(reply.Body), `"error":{`) {
		t.Fatalf("%s of %s: %d %v: %.500s", c.op.Slug, c.domain, reply.Status, err, reply.Body)
	}
	line := regexp.MustCompile(`request_id=` + regexp.QuoteMeta(reply.Header.Get("X-Request-Id")) + ` .*lookup_ms=([0-9.]+)`)
	for limit := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		if m := line.FindStringSubmatch(r.log.String()); m != nil {
			ms, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(ms * float64(time.Millisecond))
		}
		if time.Now().After(limit) {
			t.Fatalf("the log does not say how long %s took: %.2000s", c.op.Slug, r.log.String())
		}
	}
}

// printSpeed measures every lookup, and beside it the same one by others, turn
// by turn, after one turn that does not count.
func printSpeed(t *testing.T, n *internet, out io.Writer) {
	t.Helper()
	if err := useResolvers(t.TempDir()); err != nil {
		t.Fatalf("resolv.conf: %v", err)
	}
	r := startRunner(t, n)
	others := startPeers(t, n)
	fmt.Fprintf(out, "\nLookups with a round trip of %s, warm: medians of %d in ms.\nOther work on this machine adds to them: its load is %s on %d CPUs.\n\n",
		*rtt, *runs, load(), runtime.NumCPU())
	rows := &bytes.Buffer{}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "operation\ttrips\tours\tover trips\ttarget %.2f\tquickest\tthe same by\ttheirs\tours/theirs\n", target)
	for _, c := range trips() {
		var ours []time.Duration
		theirs := map[string][]time.Duration{}
		var peers []timing // of the last turn, in their order
		for turn := range *runs + 1 {
			took := lookupTime(t, r, c)
			peers = others.ask(t, c)
			if turn == 0 {
				continue
			}
			ours = append(ours, took)
			for _, p := range peers {
				if p.Error == "" {
					theirs[p.Peer] = append(theirs[p.Peer], p.took())
				}
			}
		}
		c.print(w, ours, peers, theirs)
		c.row(t, rows, ours, peers, theirs)
	}
	w.Flush()
	fmt.Fprintln(out)
	if *rowsPath != "" {
		if err := os.WriteFile(*rowsPath, rows.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// load is how many processes wanted a CPU in the last minute, on average.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	minute, _, _ := strings.Cut(string(b), " ")
	return minute
}

// over is a duration in the round trips that a lookup needs.
func (c trip) over(d time.Duration) float64 {
	return d.Seconds() / (float64(c.trips) * rtt.Seconds())
}

// row writes one operation for make bench: its time over its round trips, and the
// same by others.
func (c trip) row(t *testing.T, w io.Writer, all []time.Duration, peers []timing, theirs map[string][]time.Duration) {
	t.Helper()
	ours := median(all)
	var beside []string
	for _, p := range peers {
		if p.Error == "" {
			beside = append(beside, fmt.Sprintf("%s: %s ms", p.Peer, ms(median(theirs[p.Peer]))))
		}
	}
	err := json.NewEncoder(w).Encode(map[string]any{
		"what": fmt.Sprintf("%s, %d × %s (%s)", c.op.Slug, c.trips, *rtt, c.why),
		"ours": ms(ours) + " ms", "beside": strings.Join(beside, "; "), "ratio": fmt.Sprintf("%.3f", c.over(ours)),
		"target": fmt.Sprintf("≤ %.2f of the round trips", target), "met": c.over(ours) <= target,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// print is one operation's lines of the table.
func (c trip) print(w io.Writer, all []time.Duration, peers []timing, theirs map[string][]time.Duration) {
	ours := median(all)
	verdict := "OK"
	if c.over(ours) > target {
		verdict = "over"
	}
	lines := []string{
		fmt.Sprintf("%s\t%d\t%s\t%.3f\t%s\t%.3f\t", c.op.Slug, c.trips, ms(ours), c.over(ours), verdict, c.over(slices.Min(all))),
		"  " + c.why + "\t\t\t\t\t\t",
	}
	for i := range max(len(lines), len(peers)) {
		line := "\t\t\t\t\t\t"
		if i < len(lines) {
			line = lines[i]
		}
		if i < len(peers) {
			line += beside(ours, peers[i], theirs[peers[i].Peer])
		} else {
			line += "\t\t"
		}
		fmt.Fprintln(w, line)
	}
}

// beside is a peer's part of a line.
func beside(ours time.Duration, p timing, took []time.Duration) string {
	if p.Error != "" {
		return p.Peer + "\t" + p.Error + "\t"
	}
	them := median(took)
	return fmt.Sprintf("%s\t%s\t%.2f", p.Peer, ms(them), ours.Seconds()/them.Seconds())
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }
