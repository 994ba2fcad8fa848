package simnet

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// rtt is the duration of a round trip between the internet on one side, and the service and
// its payers on the other. Without -shell, only TestDelay uses it.
var rtt = flag.Duration("rtt", 0, "the round trip between the service and the internet, for -shell and TestDelay")

// farRoutes and nearRoutes route all packets between the namespaces over the devices far0 and
// near0. The far side has the addresses 203.0.113.2 and 2001:db8::2. In the internet's
// namespace, the routing table named local declares every address local. So the routes to the
// two addresses of the far side must be in that table as well.
const (
	farRoutes = `link set lo up
addr add 203.0.113.2/32 dev far0
addr add 2001:db8::2/128 dev far0 nodad
link set far0 up
route add 0.0.0.0/0 dev far0
route add ::/0 dev far0
`
	nearRoutes = `link set near0 up
route add 203.0.113.2/32 dev near0 table local
route add 2001:db8::2/128 dev near0 table local
`
)

// farNamespace is a thread in a second network namespace, which is a round trip away from the
// namespace of the test process. It runs the functions that are sent to it. A nil farNamespace
// means no delay: everything is in one namespace.
type farNamespace chan func()

func newFarNamespace(t *testing.T, rtt time.Duration, lines *[2]line) farNamespace {
	f := make(farNamespace)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		for job := range f {
			job()
		}
	}()
	t.Cleanup(func() { close(f) })
	var near, far *os.File
	err := f.do(func() (err error) {
		if err = syscall.Unshare(syscall.CLONE_NEWNET); err == nil {
			far, err = openTun("far0", farRoutes)
		}
		return err
	})
	if err == nil {
		near, err = openTun("near0", nearRoutes)
	}
	if err != nil {
		t.Fatalf("a second network namespace, and the way to it: %v", err)
	}
	var ways sync.WaitGroup
	for i, way := range [][2]*os.File{{near, far}, {far, near}} {
		ways.Go(func() {
			if lost := carry(way[0], way[1], rtt/2, &lines[i]); lost > 0 {
				t.Errorf("%d packets found the queue full", lost)
			}
		})
	}
	t.Cleanup(func() {
		far.Close()
		near.Close()
		ways.Wait()
	})
	return f
}

// do runs a job in the namespace. The sockets that the job opens and the processes that it
// starts are in the namespace as well. The job must not end the test.
func (f farNamespace) do(job func() error) error {
	if f == nil {
		return job()
	}
	done := make(chan error)
	f <- func() { done <- job() }
	return <-done
}

func (f farNamespace) start(cmd *exec.Cmd) error { return f.do(cmd.Start) }

func (f farNamespace) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = f.do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// openTun creates a TUN device in the namespace of the calling thread, and then runs commands
// of the program ip. The device exists until the file is closed. Each read returns one IP
// packet that was sent to the device; each write makes one packet arrive from the device.
func openTun(name, routes string) (*os.File, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
	}
	var request struct { // struct ifreq
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], name)
	request.flags = syscall.IFF_TUN | syscall.IFF_NO_PI
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		syscall.Close(fd)
		return nil, &fs.PathError{Op: "TUNSETIFF", Path: "/dev/net/tun", Err: errno}
	}
	return os.NewFile(uintptr(fd), "tun "+name), testbed.IP(routes)
}

// carry forwards packets in one direction, in order, each after a fixed delay. It returns when
// the sending device is closed and all queued packets are forwarded. The result is the number
// of packets that were dropped because the queue was full. It does not include the packets
// that the line loses.
func carry(from, to *os.File, delay time.Duration, l *line) (lost int) {
	type packet struct {
		due time.Time
		b   []byte
	}
	queue := make(chan packet, 8192) // more packets than a router would queue
	go func() {
		defer close(queue)
		buf := make([]byte, 1<<16)
		for n, err := from.Read(buf); err == nil; n, err = from.Read(buf) {
			if l.losesNext() {
				continue
			}
			select {
			case queue <- packet{time.Now().Add(delay), bytes.Clone(buf[:n])}:
			default:
				lost++
			}
		}
	}()
	for p := range queue {
		sleepUntil(p.due)
		_, _ = to.Write(p.b) // the packet is lost if the receiving device is closed
	}
	return lost
}

// sleepUntil sleeps with a system call, because the kernel's timers are accurate to a tenth of
// a millisecond. The timers of the Go runtime wait in whole milliseconds.
func sleepUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		pause := syscall.NsecToTimespec(left.Nanoseconds())
		_ = syscall.Nanosleep(&pause, nil) // a signal may end the sleep early
	}
}

// Flags for "make bench". With them, TestDelay measures lookups instead of testing.
var (
	runs      = flag.Int("runs", 1, "measure each lookup that many times and write the times; wants -rtt, -peers and -rows")
	rowsPath  = flag.String("rows", "", "where the times are written, a line of JSON for each lookup")
	peersPath = flag.String("peers", "", "the built program of infra/bench, which does the same lookups with the libraries and tools of others")
)

// TestDelay runs the service a round trip away from all other hosts. The round trip takes 20
// ms: long compared with the time for computing, and short compared with the time limit of a
// lookup. Without -rtt, the test starts itself once more in a separate namespace, in parallel
// with TestSimnet. Each lookup must last at least as long as its round trips. If it is
// shorter, it has reused an answer or a connection of an earlier call. How much longer it
// lasts is not tested; "make bench" measures that.
func TestDelay(t *testing.T) {
	reason := testbed.NoNamespaces()
	var probe *os.File
	if reason == nil {
		probe, reason = openTun("probe0", "")
		probe.Close()
	}
	switch {
	case *measureBroken && *runs == 1:
		t.Fatal("-broken measures; it wants -runs of more than 1")
	case reason != nil && *runs > 1:
		t.Fatal(reason) // make bench must fail here, because it needs the times
	case reason != nil || testing.Short():
		t.Skip("in make verify: ", reason)
	case *rtt == 0:
		t.Parallel()
		cmd := testbed.Namespaced(os.Args[0], "-test.run=^TestDelay$", "-test.v", "-rtt=20ms")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestDelay ") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	n := newInternet(t)
	switch {
	case *measureBroken:
		writeBroken(t, n)
		return
	case *runs > 1:
		writeTimes(t, n) // no other test runs at the same time
		return
	}
	r := startRunner(t, n)
	for _, c := range slices.Concat(timedLookups(), timedLookups()) {
		if took, least := lookupTime(t, r, c), float64(c.roundTrips)*rtt.Seconds()*1000; took < least {
			t.Errorf("%s of %s took %.1f ms, want %d round trips, %.1f ms, at least", c.op.Slug, c.domain, took, c.roundTrips, least)
		}
	}
}

// target is the largest ratio, from design §12, of the duration of a lookup to the duration of
// its round trips.
const target = 1.10

// timedLookup is a lookup and the number of round trips that the lookup needs, one after the
// other.
type timedLookup struct {
	op         catalog.Operation
	domain     string
	roundTrips int
	reason     string
}

func timedLookups() []timedLookup {
	return []timedLookup{
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

// lookupTime pays for a lookup, and returns its duration in milliseconds according to the log.
func lookupTime(t *testing.T, r *runner, c timedLookup) float64 {
	took, err := tryLookup(t, r, c)
	if err != nil {
		t.Fatal(err)
	}
	return took
}

// tryLookup is like lookupTime, but returns an error where lookupTime ends the test. For a
// failed lookup it returns the time until the answer.
func tryLookup(t *testing.T, r *runner, c timedLookup) (ms float64, err error) {
	begun := time.Now()
	reply, err := r.buy(t, c.op.Path+"?domain="+c.domain)
	if err != nil || reply.Status != 200 || strings.Contains(string(reply.Body), `"error":{`) {
		return time.Since(begun).Seconds() * 1000, fmt.Errorf("%s of %s: %d %v: %.500s", c.op.Slug, c.domain, reply.Status, err, reply.Body)
	}
	line := regexp.MustCompile(`request_id=` + regexp.QuoteMeta(reply.Header.Get("X-Request-Id")) + ` .*lookup_ms=([0-9.]+)`)
	for limit := time.Now().Add(patience); time.Now().Before(limit); <-time.After(time.Millisecond) {
		if m := line.FindStringSubmatch(r.log.String()); m != nil {
			return strconv.ParseFloat(m[1], 64)
		}
	}
	return 0, fmt.Errorf("the log does not say how long %s took: %.2000s", c.op.Slug, r.log.String())
}

// timing is how many milliseconds a third-party program took for a lookup. If the lookup
// failed, Error says why.
type timing struct {
	Peer  string  `json:"peer"`
	MS    float64 `json:"ms"`
	Error string  `json:"error"`
}

// writeTimes measures every lookup in several turns. In each turn, third-party programs do the
// same lookup. The results of the first turn are dropped.
func writeTimes(t *testing.T, n *internet) {
	testbed.Check(useResolvers(t.TempDir()))
	r := startRunner(t, n)
	file := testbed.Must(os.Create(*rowsPath))
	defer file.Close()
	for _, c := range timedLookups() {
		ours, theirs, peers := times(t, n, r, c, c.op.Slug)
		var peerTimes []string
		for _, p := range peers {
			if p.Error == "" {
				peerTimes = append(peerTimes, fmt.Sprintf("%s: %.1f ms", p.Peer, median(theirs[p.Peer])))
			}
		}
		ratio := median(ours) / float64(c.roundTrips) / rtt.Seconds() / 1000
		testbed.Check(json.NewEncoder(file).Encode(map[string]any{
			"what": fmt.Sprintf("%s, %d × %s (%s)", c.op.Slug, c.roundTrips, *rtt, c.reason),
			"ours": fmt.Sprintf("%.1f ms", median(ours)), "beside": strings.Join(peerTimes, "; "), "ratio": fmt.Sprintf("%.3f", ratio),
			"target": fmt.Sprintf("≤ %.2f times the round trips", target), "met": ratio <= target,
		}))
	}
	for _, c := range racedLookups() {
		ours, theirs, peers := times(t, n, r, c.timedLookup, "broken")
		racer := peers[0]
		if racer.Error != "" {
			t.Fatalf("%s of %s: %s", racer.Peer, c.domain, racer.Error)
		}
		ratio := median(ours) / median(theirs[racer.Peer])
		testbed.Check(json.NewEncoder(file).Encode(map[string]any{
			"what": fmt.Sprintf("%s, %s", c.op.Slug, c.reason), "ours": percentiles(ours),
			"beside": racer.Peer + ": " + percentiles(theirs[racer.Peer]), "ratio": fmt.Sprintf("%.3f", ratio),
			"target": fmt.Sprintf("≤ %.2f", c.maxRatio), "met": ratio <= c.maxRatio,
		}))
	}
}

// times returns how many milliseconds a lookup took in each turn, for the service (ours) and
// for each peer (theirs). It also returns the results of the peers in the last turn.
func times(t *testing.T, n *internet, r *runner, c timedLookup, slug string) (ours []float64, theirs map[string][]float64, peers []timing) {
	theirs = map[string][]float64{}
	for turn := range *runs + 1 {
		took := lookupTime(t, r, c)
		if peers = askPeers(n, slug, c.domain); turn == 0 {
			continue
		}
		ours = append(ours, took)
		for _, p := range peers {
			theirs[p.Peer] = append(theirs[p.Peer], p.MS)
		}
	}
	return ours, theirs, peers
}

// percentiles formats p50, p95 and p99 by the nearest rank.
func percentiles(ms []float64) string {
	return fmt.Sprintf("p50 %.1f, p95 %.1f, p99 %.1f ms", median(ms), percentile(ms, 95), percentile(ms, 99))
}

func percentile(ms []float64, p int) float64 {
	return slices.Sorted(slices.Values(ms))[(len(ms)*p+99)/100-1]
}

func median(ms []float64) float64 { return slices.Sorted(slices.Values(ms))[len(ms)/2] }

// askPeers makes third-party libraries and tools do a lookup in the network namespace of the
// service.
func askPeers(n *internet, slug, domain string) (all []timing) {
	cmd := exec.Command(*peersPath, "peers", "-bootstrap", bootstrapURL, "-resolver", resolverAddrs()[0], slug, domain)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File)
	cmd.Stderr = os.Stderr
	var out []byte
	testbed.Check(n.namespace.do(func() (err error) { out, err = cmd.Output(); return err }))
	testbed.Check(json.Unmarshal(out, &all))
	return all
}
