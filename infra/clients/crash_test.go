package clients

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestServiceCrashes kills the service with kill -9 between settlement and
// answer, and starts it again on the same ledger. Every program that asks
// until it is answered ends with the answer that its one payment bought.
//
// It takes the half minute that a lease lasts, once: the programs run side by
// side.
func TestServiceCrashes(t *testing.T) {
	t.Parallel()
	// Whatever the service asks its resolver is held until the service is dead.
	type doomed struct {
		p       program
		tools   workshop
		world   world
		service service
		gateway *gateway
		process *process
		free    func() // lets the resolver answer
	}
	list := make([]*doomed, len(persistent()))
	asked := make(chan *doomed, len(list))
	for i, p := range persistent() {
		held := make(chan struct{})
		// A command has its time from when it is prepared, and tools may first
		// have to be installed.
		d := &doomed{p: p, tools: p.tools(t), free: sync.OnceFunc(func() { close(held) })}
		list[i] = d
		first := sync.OnceFunc(func() { asked <- d })
		d.world = newWorld(t, x402test.Honest, resolver(t, func() { first(); <-held }))
		t.Cleanup(d.free)
		d.service = d.world.start(t)
		d.gateway = newGateway(t, d.service)
	}
	for _, d := range list {
		d.process = prepare(t, d.p, d.tools, d.service, d.gateway.url)
	}
	for _, d := range list {
		d.process.start(t)
	}
	for range list {
		select {
		case d := <-asked:
			awaitReceipt(t, d.service, d.gateway.one(t, d.p))
			d.service.kill()
			d.free()
			d.gateway.moveTo(d.world.start(t))
		case <-time.After(patience):
			t.Fatal("a program has not paid")
		}
	}
	for _, d := range list {
		begun := time.Now()
		o := d.process.wait()
		t.Logf("%s: %d requests, %.0f s more\n%.300s", d.p.id, d.gateway.requests(), time.Since(begun).Seconds(), o.notes)
		t.Run(d.p.id, func(t *testing.T) {
			o.checkAnswer(t)
			d.service.checkPaidOnce(t)
			d.gateway.one(t, d.p)
		})
	}
}

// awaitReceipt returns when the ledger has the settlement, which a copy of the
// payment tells.
func awaitReceipt(t *testing.T, s service, signature string) {
	t.Helper()
	client := &x402test.Client{HTTP: &http.Client{Timeout: patience}}
	eventually(t, "the settlement is written down", func() error {
		reply, err := client.Get(t.Context(), catalog.DNS().ExampleURL(s.url), signature)
		if err == nil && reply.Header.Get("PAYMENT-RESPONSE") == "" {
			err = fmt.Errorf("%d %s", reply.Status, reply.Body)
		}
		return err
	})
}
