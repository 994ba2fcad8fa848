package clients

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// patience is how long a test waits for another process.
const patience = testbed.Patience

var updateScreenshots = flag.Bool("update-screenshots", false, "write build/screenshots/*.png, and from them screenshots/*.png")

func TestMain(m *testing.M) {
	testbed.Parallel(8)
	os.Exit(testbed.Main(m))
}

// world is what the service works with: the play-money facilitator, a resolver
// and a ledger that outlives the process.
type world struct {
	books *books
	env   map[string]string
	dir   string
}

// newWorld makes one, in which the first settlements go as plan says.
func newWorld(t *testing.T, resolver string, plan ...x402test.Behaviour) world {
	t.Helper()
	b := &books{settles: map[string]int{}, next: plan}
	b.Facilitator = testbed.StartFacilitator(t, b.behave)
	return world{books: b, dir: t.TempDir(), env: map[string]string{"FACILITATOR_URL": b.URL, "DNS_RESOLVERS": resolver}}
}

// books are the play-money facilitator with a count of settlements by payer.
type books struct {
	*testbed.Facilitator

	mu      sync.Mutex
	settles map[string]int       // by payer, lower case
	next    []x402test.Behaviour // of the next settlements; honest when empty
}

func (b *books) behave(_ int, key string) x402test.Behaviour {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settles[testbed.KeyPayer(key)]++
	if len(b.next) == 0 {
		return x402test.Honest
	}
	how := b.next[0]
	b.next = b.next[1:]
	return how
}

func (b *books) plan(next ...x402test.Behaviour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = next
}

// of is how often a payer's money was asked for, and how often it moved.
func (b *books) of(payer string) (settles, transfers int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.settles[strings.ToLower(payer)], len(b.Moved(payer))
}

// service is the running service with the play-money facilitator's books.
type service struct {
	url   string
	books *books
	kill  func()        // kill -9; it returns when the process is gone
	log   func() string // what it has printed so far
}

// start starts the whole service on this machine, in a world of its own.
func start(t *testing.T, plan ...x402test.Behaviour) service {
	t.Helper()
	return newWorld(t, resolver(t), plan...).start(t)
}

// start starts the service in this world, which may have had one before.
func (w world) start(t *testing.T) service {
	t.Helper()
	s, err := w.tryStart(t)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// startAt starts the service at an address of which somebody may have the port for a
// moment. A store that is slow on a busy machine ends the runner, too.
func (w world) startAt(t *testing.T, addr string) (s service) {
	t.Helper()
	w.env["LOCAL_ADDR"] = addr
	eventually(t, "the service at "+addr, func() (err error) {
		s, err = w.tryStart(t)
		return err
	})
	return s
}

// tryStart is start for a world in which a first attempt may fail. The service
// is stopped after the test, unless it was killed.
func (w world) tryStart(t *testing.T) (service, error) {
	t.Helper()
	p, err := testbed.Launch(testbed.Local(testbed.Program(t, testbed.LocalRunner), w.dir, w.env), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.End(t) })
	err = p.Ready()
	return service{url: p.URL, books: w.books, kill: p.Kill, log: p.Log.String}, err
}

// eventually tries until there is no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	pace := time.NewTicker(250 * time.Millisecond)
	defer pace.Stop()
	for end := time.Now().Add(patience); ; <-pace.C {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// answer is the catalog's example answer as the runner gives it here: from the
// resolver of this machine.
func answer(t *testing.T) map[string]any {
	t.Helper()
	want := decoded[map[string]any](t, []byte(catalog.DNS().Response))
	want["resolver"] = "127.0.0.1"
	return want
}

// resolver answers the example question with the example's records.
func resolver(t *testing.T) string { return resolverOf(t, exampleZone(t), nil) }

func exampleZone(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, r := range answer(t)["records"].([]any) {
		mx := r.(map[string]any)
		fmt.Fprintf(&text, "example.com. %v MX %v %v.\n", answer(t)["ttl"], mx["preference"], mx["exchange"])
	}
	return text.String()
}

// resolverOf answers out of a zone, but what first, which may be nil, has answered.
func resolverOf(t *testing.T, zone string, first func(dns.ResponseWriter, *dns.Msg) bool) string {
	t.Helper()
	z := testbed.ReadZone(t, zone)
	return testbed.Resolver(t, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		if first == nil || !first(w, q) {
			z.ServeDNS(w, q)
		}
	}))
}

// decoded is JSON as Go values.
func decoded[T any](t *testing.T, raw []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %.3000s", err, raw)
	}
	return v
}
