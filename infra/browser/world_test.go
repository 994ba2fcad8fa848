package browser

import (
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// world is the service behind the pages.
type world struct {
	origin string // of the proxy: what the browser knows
	proxy  *proxy
	dns    *resolver
	books  *books
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{proxy: newProxy(t), dns: newResolver(t), books: newBooks(t)}
	w.origin = w.proxy.url
	w.proxy.to(t, startRunner(t, w))
	return w
}

// books are the play-money facilitator with a count of settlements by payer.
type books struct {
	*testbed.Facilitator

	mu      sync.Mutex
	settles map[string]int       // by payer, lower case
	next    []x402test.Behaviour // of the next settlements; honest when empty
}

func newBooks(t *testing.T) *books {
	t.Helper()
	b := &books{settles: map[string]int{}}
	b.Facilitator = testbed.StartFacilitator(t, b.behave)
	return b
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
	transfers = len(b.Moved(payer))
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.settles[strings.ToLower(payer)], transfers
}

// startRunner starts the built local runner and returns where it listens.
func startRunner(t *testing.T, w *world) string {
	t.Helper()
	return testbed.Start(t, testbed.Local(testbed.Program(t, testbed.LocalRunner), t.TempDir(), map[string]string{
		"FACILITATOR_URL": w.books.URL, "DNS_RESOLVERS": w.dns.addr, "LOG_LEVEL": "warn",
	})).URL
}
