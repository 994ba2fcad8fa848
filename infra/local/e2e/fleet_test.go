package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

// fleetOrigin is what every process of a fleet calls itself: they stand behind
// one name, so that an offer of one is paid at another.
const fleetOrigin = "https://fleet.example.com"

// fleetSize is how many processes share one table.
const fleetSize = 8

// fleet is one service for a crowd: one deployment, or several processes of the
// local runner on one ledger table.
type fleet struct {
	members []*deployment
	next    atomic.Int64   // whose turn it is
	store   *dynamo.Ledger // on the fleet's table; nil for one deployment
}

// fleetOf is the service of one deployment.
func fleetOf(d *deployment) *fleet { return &fleet{members: []*deployment{d}} }

// newFleet starts the processes and waits until each of them is ready.
func newFleet(tb testing.TB, l *lab, s setup) *fleet {
	tb.Helper()
	db := dynamotest.Start(tb)
	table := db.Table(tb)
	f := &fleet{store: tableStore(db, table)}
	var starting []*testbed.Process
	for range fleetSize {
		addr := testbed.FreeAddr(tb)
		p := launchLocal(tb, l, s, tb.TempDir(), map[string]string{
			"LEDGER_FILE": "", "LEDGER_TABLE": table, "AWS_ENDPOINT_URL_DYNAMODB": db.URL, "AWS_REGION": dynamotest.Region,
			"AWS_ACCESS_KEY_ID": dynamotest.AccessKeyID, "AWS_SECRET_ACCESS_KEY": dynamotest.SecretAccessKey,
			"LOCAL_ADDR": addr, "BASE_URL": fleetOrigin, "LOG_LEVEL": "info",
		})
		starting = append(starting, p)
		f.members = append(f.members, &deployment{base: "http://" + addr, origin: fleetOrigin, log: p.Log.String})
	}
	for _, p := range starting {
		if err := p.Ready(); err != nil {
			tb.Fatal(err)
		}
	}
	return f
}

// log is what all processes have said.
func (f *fleet) log() string {
	var all strings.Builder
	for _, d := range f.members {
		all.WriteString(d.log())
	}
	return all.String()
}

// said counts the lines of all logs that have a part.
func (f *fleet) said(part string) int { return strings.Count(f.log(), part) }

// crowd does n things, at most width of them at a time, and returns the first
// error.
func crowd(n, width int, do func(i int) error) error {
	var all sync.WaitGroup
	var next atomic.Int64
	faults := make(chan error, width)
	for range width {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					faults <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(faults)
	return <-faults
}

// visitor is somebody in a crowd, with a connection of his own to one process.
type visitor struct {
	d      *deployment
	client *http.Client
	fresh  *atomic.Int64 // requests that needed a new connection
}

// visit sends a payment; without a signature it asks for the offer.
func (v visitor) visit(ctx context.Context, path, signature string) (exchange, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if !c.Reused {
			v.fresh.Add(1)
		}
	}})
	h := http.Header{}
	if signature != "" {
		h = paidBy(signature)
	}
	return v.d.send(ctx, v.client, http.MethodGet, path, h)
}

// rush has n visitors come to the processes of a fleet in turn. Each has his
// connection open before all of them are let go at one moment. It returns when they
// are through, with the first error.
func (f *fleet) rush(tb testing.TB, n int, do func(i int, v visitor) error) error {
	tb.Helper()
	const doors = 64 // who opens a connection at the same time
	visitors, fresh := make([]visitor, n), new(atomic.Int64)
	for i := range visitors {
		visitors[i] = visitor{d: f.members[i%len(f.members)], fresh: fresh, client: &http.Client{
			Timeout: 2 * patience,
			Transport: &http.Transport{
				DialContext: (&net.Dialer{Timeout: patience}).DialContext, MaxIdleConnsPerHost: 1, DisableCompression: true,
			},
		}}
		defer visitors[i].client.CloseIdleConnections()
	}
	if err := crowd(n, doors, func(i int) error {
		e, err := visitors[i].visit(tb.Context(), lookup("example.com", "A"), "")
		if err == nil && e.status != http.StatusPaymentRequired {
			err = fmt.Errorf("the offer: %s", e)
		}
		return err
	}); err != nil {
		return err
	}
	fresh.Store(0)
	begin, faults := make(chan struct{}), make([]error, n)
	var all sync.WaitGroup
	for i, v := range visitors {
		all.Go(func() {
			<-begin
			faults[i] = do(i, v)
		})
	}
	close(begin)
	all.Wait()
	if at := fresh.Load(); at > int64(n)/100 {
		tb.Errorf("%d of %d visitors had no open connection", at, n)
	}
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	return nil
}
