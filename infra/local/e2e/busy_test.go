package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// verifyOnly skips what a quick run leaves out: go test -short needs Go alone,
// and waits for nothing that takes long.
func verifyOnly(tb testing.TB, why string) {
	if testing.Short() {
		tb.Skip("runs in make verify: " + why)
	}
}

type pace = testbed.Pace

// paced is a transport that notes how long answers take to begin.
type paced struct {
	*http.Transport
	pace *pace
}

func (t paced) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	defer func() { t.pace.Took(time.Since(begun)) }()
	return t.Transport.RoundTrip(r)
}

func pacedClient(p *pace) *http.Client {
	c := newClient()
	c.Transport = paced{c.Transport.(*http.Transport), p}
	return c
}

// fairly plays a test of the service, of whose time-outs that of an attempt at a call of
// the store is the shortest.
func fairly(t testing.TB, play func(tb testing.TB, p *pace)) {
	t.Helper()
	testbed.Fairly(t, dynamo.DefaultAttemptTimeout, play)
}
