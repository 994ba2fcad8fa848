package dns_test

import (
	"context"
	"errors"
	"net"
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

// bug makes a method of the connections to the first resolver panic, or of its
// Dial.
type bug struct {
	method  string
	network string
	qtype   uint16 // 0: whatever is asked for
}

func (b bug) String() string { return "bug in " + b.method }

// wrap is that of a fakeNet.
func (b bug) wrap(network, address string, c net.Conn) net.Conn {
	if network != b.network || address != first {
		return c
	}
	if b.method == "Dial" {
		c.Close()
		panic(b.String())
	}
	return faulty{c, b}
}

type faulty struct {
	net.Conn
	bug bug
}

func (f faulty) Write(p []byte) (int, error) {
	if f.bug.method == "Write" && (f.bug.qtype == 0 || unpacked(p).Question[0].Qtype == f.bug.qtype) {
		panic(f.bug.String())
	}
	return f.Conn.Write(p)
}

func (f faulty) Read(p []byte) (int, error) {
	if f.bug.method == "Read" {
		panic(f.bug.String())
	}
	return f.Conn.Read(p)
}

func (f faulty) Close() error {
	err := f.Conn.Close()
	if f.bug.method == "Close" {
		panic(f.bug.String())
	}
	return err
}

// wantBug holds an error to internal_error, whose cause names the panic and
// where it was, and whose public message does not.
func wantBug(t *testing.T, err error, b bug) {
	t.Helper()
	f := fault.From(err)
	cause, ok := errors.AsType[interface {
		error
		Stack() string
	}](f)
	if f.Code != fault.InternalError || !ok || !strings.Contains(cause.Error(), b.String()) || !strings.Contains(cause.Stack(), "panic_test.go") {
		t.Errorf("%v, want internal_error caused by %q", err, b)
	}
	if strings.Contains(f.Public(), "bug") {
		t.Errorf("public: %s", f.Public())
	}
}

// bugs are those of one resolver's connections over a network.
func bugs(network string) map[string]bug {
	all := map[string]bug{}
	for _, method := range []string{"Dial", "Write", "Read", "Close"} {
		all[method] = bug{method: method, network: network}
	}
	return all
}

// TestPanic: a panic in any goroutine of a lookup is its error, whoever else
// answered, and leaves the process alone. The first resolver of two has it.
func TestPanic(t *testing.T) { eachInBubble(t, bugs("udp"), panics) }

// panics tries every way to ask. The second resolver wins in a race where the
// first one's connection is closed because of that.
func panics(t *testing.T, b bug) {
	f := newFakeNet(t, map[string]script{first: mute, second: ok(0)})
	f.wrap = b.wrap
	cl := f.client(first, second)
	_, err := lookup(t, cl, "A")
	wantBug(t, err, b)
	wantBug(t, cl.Probe(t.Context()), b)
	_, err = cl.Addresses(t.Context(), "example.com")
	if errors.Is(err, guard.ErrResolvers) {
		t.Errorf("a bug is taken for resolvers that do not answer: %v", err)
	}
	wantBug(t, err, b)
	ctx, end := dns.Share(t.Context())
	_, err = cl.Lookup(ctx, query("A"))
	if b.method != "Close" { // a shared answer may have been given before the loser is closed
		wantBug(t, err, b)
		_, err = cl.Addresses(ctx, "example.com")
		wantBug(t, err, b)
	}
	end()
	if b.method != "Close" { // which needs a reason to close
		f.scripts[second] = mute
		f.begin = time.Now()
		_, err = lookup(t, cl, "A")
		f.at(0)
		wantBug(t, err, b)
	}
	f.check()
}

// TestPanicOverTCP: a panic of what asks over TCP is the lookup's error at once,
// though UDP is still waited for.
func TestPanicOverTCP(t *testing.T) {
	eachInBubble(t, bugs("tcp"), func(t *testing.T, b bug) {
		f := newFakeNet(t, map[string]script{first: mute, "tcp " + first: stream(ok(0))})
		f.wrap = b.wrap
		_, err := lookup(t, f.client(first), "A")
		wantBug(t, err, b)
		f.at(2 * time.Second)
		f.check()
	})
}

// TestPanicOfOneFamily: a bug in one family is not covered up by the other,
// not even when IPv6 has it and comes after its grace.
func TestPanicOfOneFamily(t *testing.T) {
	bugs := map[string]bug{"IPv4": {"Write", "udp", miekg.TypeA}, "IPv6": {"Write", "udp", miekg.TypeAAAA}}
	eachInBubble(t, bugs, func(t *testing.T, b bug) {
		f := newFakeNet(t, map[string]script{first: eachFamily(10*ms, 20*ms)})
		f.wrap = b.wrap
		_, err := f.client(first).Addresses(t.Context(), "example.com")
		wantBug(t, err, b)
	})
}

// TestPanicOfTheContext: what runs beside the attempts recovers, too.
func TestPanicOfTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t, map[string]script{first: mute})
		cl := f.client(first)
		b := bug{method: "Deadline"}
		broken := &brokenContext{Context: t.Context()}
		shared, end := dns.Share(broken)
		asking, cancel := context.WithTimeout(shared, time.Minute)
		defer cancel()
		broken.down.Store(true)
		_, err := cl.Lookup(asking, query("A"))
		wantBug(t, err, b)
		f.at(0)
		end()
		_, err = cl.Addresses(broken, "example.com")
		wantBug(t, err, b)
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
