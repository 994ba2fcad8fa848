package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// patience is how long a test waits for another process.
const patience = testbed.Patience

func TestMain(m *testing.M) {
	testbed.Parallel(6)
	os.Exit(testbed.Main(m))
}

// world is what the service works with: the play-money facilitator, a resolver
// and a ledger that outlives the process.
type world struct {
	books *testbed.Facilitator
	env   map[string]string
	dir   string
}

// newWorld makes one. The first settlement goes as first says, the others
// honestly.
func newWorld(t *testing.T, first x402test.Behaviour, resolver string) world {
	t.Helper()
	books := testbed.StartFacilitator(t, func(n int, _ string) x402test.Behaviour {
		if n == 0 {
			return first
		}
		return x402test.Honest
	})
	return world{books: books, dir: t.TempDir(), env: map[string]string{"FACILITATOR_URL": books.URL, "DNS_RESOLVERS": resolver}}
}

// service is the running service with the play-money facilitator's books.
type service struct {
	url   string
	books *testbed.Facilitator
	kill  func()        // kill -9; it returns when the process is gone
	log   func() string // what it has printed so far
}

// start starts the whole service on this machine, in a world of its own.
func start(t *testing.T, first x402test.Behaviour) service {
	t.Helper()
	return newWorld(t, first, resolver(t, func() {})).start(t)
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

// answer is the catalog's example answer as the runner gives it here: from the
// resolver of this machine.
func answer(t *testing.T) map[string]any {
	t.Helper()
	var want map[string]any
	if err := json.Unmarshal([]byte(catalog.DNS().Response), &want); err != nil {
		t.Fatal(err)
	}
	want["resolver"] = "127.0.0.1"
	return want
}

// resolver answers the example question with the example's records, each time
// when asked returns.
func resolver(t *testing.T, asked func()) string {
	t.Helper()
	example := answer(t)
	var text strings.Builder
	for _, r := range example["records"].([]any) {
		mx := r.(map[string]any)
		fmt.Fprintf(&text, "example.com. %v MX %v %v.\n", example["ttl"], mx["preference"], mx["exchange"])
	}
	zone := testbed.ReadZone(t, text.String())
	return testbed.Resolver(t, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		asked()
		zone.ServeDNS(w, q)
	}))
}
