package e2e

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// fleetOrigin is what every process of a fleet calls itself: they stand behind
// one name, so that an offer of one is paid at another.
const fleetOrigin = "https://fleet.example.com"

// fleetSize is how many processes share one table.
const fleetSize = 8

// fleet is the local runner several times over, all on one ledger table.
type fleet struct {
	terms   x402.Terms
	members []*deployment
	logs    []*testbed.Output
	store   *dynamo.Store // on the fleet's table
	client  *http.Client
	next    atomic.Int64
}

// newFleet starts the processes and waits until each of them answers.
func newFleet(tb testing.TB, l *lab, s setup) *fleet {
	tb.Helper()
	db := dynamotest.Start(tb)
	table := db.Table(tb)
	f := &fleet{
		terms: l.terms, client: newClient(),
		store: dynamo.New(dynamo.Config{API: dynamotable.NewClient(db.ClientConfig()), Table: table, Timeout: patience}),
	}
	tb.Cleanup(f.client.CloseIdleConnections)
	for range fleetSize {
		addr := testbed.FreeAddr(tb)
		cmd := exec.Command(s.runner(tb))
		cmd.Dir, cmd.Env = tb.TempDir(), append(tableEnvironment(s, db, table), "LOCAL_ADDR="+addr, "BASE_URL="+fleetOrigin, "LOG_LEVEL=info")
		p := startMember(tb, l, cmd)
		f.logs = append(f.logs, &p.Log)
		f.members = append(f.members, &deployment{base: "http://" + addr, origin: fleetOrigin})
	}
	for i, d := range f.members {
		poll(tb, "a process of the fleet to listen", func() bool {
			e, err := d.send(tb.Context(), f.client, http.MethodGet, "/health", nil)
			return err == nil && e.status == http.StatusOK
		}, f.logs[i])
	}
	return f
}

// tableEnvironment are the variables of a process on a table of a local server.
func tableEnvironment(s setup, db dynamotest.Server, table string) []string {
	list := []string{
		"LEDGER_TABLE=" + table, "AWS_ENDPOINT_URL_DYNAMODB=" + db.URL, "AWS_REGION=" + dynamotest.Region,
		"AWS_ACCESS_KEY_ID=" + dynamotest.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + dynamotest.SecretAccessKey,
	}
	for name, value := range s.environment() {
		list = append(list, name+"="+value)
	}
	return list
}

// member is the process whose turn it is.
func (f *fleet) member() *deployment {
	return f.members[int(f.next.Add(1))%len(f.members)]
}

// said counts the lines of all logs that have a part.
func (f *fleet) said(part string) int {
	n := 0
	for _, log := range f.logs {
		n += strings.Count(log.String(), part)
	}
	return n
}

// log is what all processes have said.
func (f *fleet) log() string {
	var all strings.Builder
	for _, log := range f.logs {
		all.WriteString(log.String())
	}
	return all.String()
}

// paidBy is the header of a paid request.
func paidBy(signature string) http.Header {
	return http.Header{x402.HeaderSignature: {signature}}
}

// visit sends a payment to the process whose turn it is.
func (f *fleet) visit(ctx context.Context, path, signature string) (exchange, error) {
	return f.member().send(ctx, f.client, http.MethodGet, path, paidBy(signature))
}

// persist sends a payment, to another process each time, until it is answered
// for good. It heeds Retry-After. each is called with every answer on the way.
func (f *fleet) persist(ctx context.Context, path, signature string, each func(exchange)) (exchange, error) {
	for {
		e, err := f.visit(ctx, path, signature)
		if err != nil || e.header.Get("Retry-After") == "" {
			return e, err
		}
		each(e)
		if err := rest(ctx, e); err != nil {
			return e, err
		}
	}
}

// rest waits as long as an answer asks for.
func rest(ctx context.Context, e exchange) error {
	t := time.NewTimer((x402test.Reply{Header: e.header}).RetryAfter())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll waits until something is so, and shows the logs when it never is.
func poll(tb testing.TB, what string, so func() bool, logs ...*testbed.Output) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !so(); <-tick.C {
		if time.Now().After(deadline) {
			for _, log := range logs {
				tb.Log(log.String())
			}
			tb.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// crowd does n things at once, at most width of them at a time, and returns
// the first error.
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
