package simnet

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// What asks TestDelay for lookup times instead of the tests, for make bench.
var (
	runs      = flag.Int("runs", 1, "measure each lookup that many times and write the times; wants -rtt, -peers and -rows")
	rowsPath  = flag.String("rows", "", "where the times are written, a line of JSON for each lookup")
	peersPath = flag.String("peers", "", "the built program of infra/bench, which does the same lookups with the libraries and tools of others")
)

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
	t.Helper()
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

// timing is how long one of others took, or why there is no time.
type timing struct {
	Peer  string  `json:"peer"`
	MS    float64 `json:"ms"`
	Error string  `json:"error"`
}

// writeTimes measures every lookup, and beside it the same one by others, turn
// by turn, after one turn that does not count.
func writeTimes(t *testing.T, n *internet) {
	t.Helper()
	if err := useResolvers(t.TempDir()); err != nil {
		t.Fatalf("resolv.conf: %v", err)
	}
	r := startRunner(t, n)
	ask := startPeers(t, n)
	file, err := os.Create(*rowsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range trips() {
		var ours []time.Duration
		theirs := map[string][]time.Duration{}
		var peers []timing // of the last turn, in their order
		for turn := range *runs + 1 {
			took := lookupTime(t, r, c)
			peers = ask(t, c)
			if turn == 0 {
				continue
			}
			ours = append(ours, took)
			for _, p := range peers {
				if p.Error == "" {
					theirs[p.Peer] = append(theirs[p.Peer], time.Duration(p.MS*float64(time.Millisecond)))
				}
			}
		}
		var beside []string
		for _, p := range peers {
			if p.Error == "" {
				beside = append(beside, fmt.Sprintf("%s: %s", p.Peer, ms(median(theirs[p.Peer]))))
			}
		}
		over := median(ours).Seconds() / (float64(c.trips) * rtt.Seconds())
		if err := json.NewEncoder(file).Encode(map[string]any{
			"what": fmt.Sprintf("%s, %d × %s (%s)", c.op.Slug, c.trips, *rtt, c.why),
			"ours": ms(median(ours)), "beside": strings.Join(beside, "; "), "ratio": fmt.Sprintf("%.3f", over),
			"target": fmt.Sprintf("≤ %.2f of the round trips", target), "met": over <= target,
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// startPeers starts the program of others where the service is. It takes a line
// "operation domain" and gives one with an array of answers.
func startPeers(t *testing.T, n *internet) func(*testing.T, trip) []timing {
	t.Helper()
	cmd := exec.Command(*peersPath, "peers", "-bootstrap", n.bootstrap, "-resolver", resolverAddrs()[0])
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File)
	cmd.Stderr = os.Stderr
	questions, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.far.start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		questions.Close() // at which it ends
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", *peersPath, err)
		}
	})
	lines := json.NewDecoder(bufio.NewReader(answers))
	return func(t *testing.T, c trip) (all []timing) {
		t.Helper()
		if _, err := fmt.Fprintln(questions, c.op.Slug, c.domain); err != nil {
			t.Fatalf("%s: %s: %v", *peersPath, c.op.Slug, err)
		}
		if err := lines.Decode(&all); err != nil {
			t.Fatalf("%s: %s: %v", *peersPath, c.op.Slug, err)
		}
		return all
	}
}
