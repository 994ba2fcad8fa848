package dns_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// bug is in a method of the connections to the first resolver.
type bug struct {
	network, method string
	qtype           uint16 // 0: whatever is asked for
}

// strike meddles with a world.
func (b bug) strike(network, address, method string, query []byte) error {
	if network == b.network && address == first && method == b.method && (b.qtype == 0 || unpacked(query).Question[0].Qtype == b.qtype) {
		panic("bug in " + method)
	}
	return nil
}

// wantBug holds an error to internal_error, whose cause names the panic and
// where it was, and whose public message does not.
func wantBug(t *testing.T, err error, method string) {
	t.Helper()
	f := fault.From(err)
	cause, ok := errors.AsType[interface {
		error
		Stack() string
	}](f)
	if f.Code != fault.InternalError || !ok ||
		!strings.Contains(cause.Error(), "bug in "+method) || !strings.Contains(cause.Stack(), "panic_test.go") {
		t.Errorf("%v, want internal_error caused by a bug in %s", err, method)
	}
	if strings.Contains(f.Public(), "bug") || errors.Is(err, guard.ErrResolvers) {
		t.Errorf("public: %s, %v", f.Public(), err)
	}
}

// TestPanic: a panic in any goroutine of a lookup is its error at once, whoever else
// answered or is waited for, and leaves the process alone.
func TestPanic(t *testing.T) {
	bugs := map[string]bug{}
	for _, method := range []string{"Dial", "Write", "Read", "Close"} {
		bugs["udp "+method], bugs["tcp "+method] = bug{network: "udp", method: method}, bug{network: "tcp", method: method}
	}
	eachInBubble(t, bugs, func(t *testing.T, b bug) {
		w := newWorld(t, host{udp: mute}, resolver(answer(good)))
		due := 200 * ms // the second resolver wins, and the first one's connection is closed because of that
		switch {
		case b.network == "tcp": // while UDP is still waited for
			w, due = newWorld(t, host{mute, framed(ok(0))}), 2*time.Second
		case b.method != "Close":
			w, due = newWorld(t, host{udp: mute}, host{udp: mute}), 0
		}
		w.meddle = b.strike
		_, err := w.lookup("A")
		w.at(due)
		wantBug(t, err, b.method)
		wantBug(t, w.client().Probe(t.Context()), b.method)
		_, err = w.client().Addresses(t.Context(), "example.com")
		wantBug(t, err, b.method)
		ctx, end := dns.Share(t.Context())
		_, err = w.client().Lookup(ctx, query("A"))
		if b.method != "Close" || b.network == "tcp" { // a shared answer may be given before the loser is closed
			wantBug(t, err, b.method)
		}
		end()
		w.check()
	})
}

// TestPanicOfOneFamily: a bug in one family is not covered up by the other,
// not even when IPv6 has it and comes after its grace.
func TestPanicOfOneFamily(t *testing.T) {
	bugs := map[string]bug{"IPv4": {"udp", "Write", miekg.TypeA}, "IPv6": {"udp", "Write", miekg.TypeAAAA}}
	eachInBubble(t, bugs, func(t *testing.T, b bug) {
		w := newWorld(t, host{udp: eachFamily(10*ms, 20*ms)})
		w.meddle = b.strike
		_, err := w.client().Addresses(t.Context(), "example.com")
		wantBug(t, err, b.method)
	})
}

// TestPanicOfTheContext: what runs beside the attempts recovers, too.
func TestPanicOfTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, host{udp: mute})
		broken := &brokenContext{Context: t.Context()}
		shared, end := dns.Share(broken)
		asking, cancel := context.WithTimeout(shared, time.Minute)
		defer cancel()
		broken.down.Store(true)
		_, err := w.client().Lookup(asking, query("A"))
		wantBug(t, err, "Deadline")
		w.at(0)
		end()
		_, err = w.client().Addresses(broken, "example.com")
		wantBug(t, err, "Deadline")
	})
}

// brokenContext has a deadline until it is down.
type brokenContext struct {
	context.Context
	down atomic.Bool
}

func (c *brokenContext) Deadline() (time.Time, bool) {
	if c.down.Load() {
		panic("bug in Deadline")
	}
	return c.Context.Deadline()
}
