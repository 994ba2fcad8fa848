package e2e

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// visitor is somebody in a rush, with a connection of his own.
type visitor struct {
	d      *deployment
	client *http.Client
	fresh  *atomic.Int64 // requests that needed a new connection
}

// visit sends a payment.
func (v visitor) visit(ctx context.Context, path, signature string) (exchange, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if !c.Reused {
			v.fresh.Add(1)
		}
	}})
	return v.d.send(ctx, v.client, http.MethodGet, path, paidBy(signature))
}

// rush has n visitors come to the members in turn. Each has his connection open
// before all of them are let go at one moment. It returns when they are through,
// with the first error.
func rush(tb testing.TB, members []*deployment, n int, do func(i int, v visitor) error) error {
	tb.Helper()
	const doors = 64 // who opens a connection at the same time
	visitors := make([]visitor, n)
	fresh := new(atomic.Int64)
	for i := range visitors {
		visitors[i] = visitor{d: members[i%len(members)], fresh: fresh, client: &http.Client{
			Timeout: 2 * patience,
			Transport: &http.Transport{
				DialContext: (&net.Dialer{Timeout: patience}).DialContext, MaxIdleConnsPerHost: 1, DisableCompression: true,
			},
		}}
		defer visitors[i].client.CloseIdleConnections()
	}
	if err := crowd(n, doors, func(i int) error {
		_, err := visitors[i].d.send(tb.Context(), visitors[i].client, http.MethodGet, "/health", nil)
		return err
	}); err != nil {
		return err
	}
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

// TestThousandPayments has many payments arrive at one service at the same
// moment, a thousand on a machine that can: each is answered, charged once and
// looked up once. On a machine that is busy with something else somebody may be
// told to come back, and be looked up again.
//
// It runs by itself, as TestCopies does.
func TestThousandPayments(t *testing.T) {
	verifyOnly(t, "sends a crowd of payments")
	l := newLab(t)
	s := l.setup()
	s.single, s.crowd = "0", true
	p := startLocal(t, l, s, filepath.Join(t.TempDir(), "ledger.db"))
	d := &deployment{base: p.URL, origin: p.URL}
	b := newBasketAt(t, l, d, crowdSize(t, l, []*deployment{d}), modeHealthy)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := rush(t, []*deployment{d}, len(b.payments), func(i int, v visitor) (err error) {
		for p := &b.payments[i]; err == nil; err = rest(ctx, p.answer) {
			p.answer, err = v.visit(ctx, p.path, p.header)
			if err != nil || p.answer.header.Get("Retry-After") == "" {
				return err
			}
			b.note(p, p.answer)
		}
		return err
	}); err != nil {
		t.Fatalf("a payment was not answered: %v", err)
	}
	took := time.Since(begun)
	b.auditAnswers(t, d, p.Log.String)
	p.End(t)
	d.seen.check(t, p.Log.String())
	t.Logf("%d payments at once in %s, %s", len(b.payments), took.Round(time.Millisecond), b.waits())
}
