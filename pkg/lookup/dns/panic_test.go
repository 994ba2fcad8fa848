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

// faulty is a connection whose methods panic when asked to.
type faulty struct {
	net.Conn
	write, read, close bool
}

func (f faulty) Write(b []byte) (int, error) {
	if f.write {
		panic("bug in Write")
	}
	return f.Conn.Write(b)
}

func (f faulty) Read(b []byte) (int, error) {
	if f.read {
		panic("bug in Read")
	}
	return f.Conn.Read(b)
}

func (f faulty) Close() error {
	err := f.Conn.Close()
	if f.close {
		panic("bug in Close")
	}
	return err
}

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// wantBug holds an error to internal_error, whose cause names the panic and
// where it was, and whose public message does not.
func wantBug(t *testing.T, err error, bug string) {
	t.Helper()
	f := fault.From(err)
	cause, ok := errors.AsType[interface {
		error
		Stack() string
	}](f)
	if f.Code != fault.InternalError || !ok || !strings.Contains(cause.Error(), bug) || !strings.Contains(cause.Stack(), "panic_test.go") {
		t.Errorf("%v, want internal_error caused by %q", err, bug)
	}
	if strings.Contains(f.Public(), "bug") {
		t.Errorf("public: %s", f.Public())
	}
}

// TestPanic: a panic in any goroutine of a lookup is its error, whoever else
// answered, and leaves the process alone. The first resolver of two has it.
func TestPanic(t *testing.T) {
	t.Parallel()
	over := func(network string, spoil func(net.Conn) net.Conn) func(f *fakeNet) dial {
		return func(f *fakeNet) dial {
			return func(ctx context.Context, n, address string) (net.Conn, error) {
				conn, err := f.dial(ctx, n, address)
				if err != nil || n != network || address != "1.1.1.1:53" {
					return conn, err
				}
				return spoil(conn), nil
			}
		}
	}
	for _, c := range []struct {
		bug   string
		wraps func(f *fakeNet) dial
	}{
		{"bug in Dial", func(f *fakeNet) dial {
			return func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "1.1.1.1:53" {
					panic("bug in Dial")
				}
				return f.dial(ctx, network, address)
			}
		}},
		{"bug in Write", over("udp", func(c net.Conn) net.Conn { return faulty{Conn: c, write: true} })},
		{"bug in Read", over("udp", func(c net.Conn) net.Conn { return faulty{Conn: c, read: true} })},
		{"bug in Close", over("udp", func(c net.Conn) net.Conn { return faulty{Conn: c, close: true} })},
	} {
		t.Run(c.bug, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { panics(t, c.bug, c.wraps) })
		})
	}
}

// panics tries every way to ask. The second resolver wins in a race where the
// first one's connection is closed because of that.
func panics(t *testing.T, bug string, wraps func(*fakeNet) dial) {
	f := &fakeNet{t: t, begin: time.Now()}
	f.scripts = map[string]script{"1.1.1.1:53": mute, "8.8.8.8:53": f.says(0, miekg.RcodeSuccess, good)}
	cl := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53", "8.8.8.8:53"}, Dial: wraps(f)})
	_, err := lookup(t, cl, "A")
	wantBug(t, err, bug)
	wantBug(t, cl.Probe(t.Context()), bug)
	_, err = cl.Addresses(t.Context(), "example.com")
	if errors.Is(err, guard.ErrResolvers) {
		t.Errorf("a bug is taken for resolvers that do not answer: %v", err)
	}
	wantBug(t, err, bug)
	ctx, end := dns.Share(t.Context())
	_, err = cl.Lookup(ctx, dns.Query{Domain: "example.com", Type: "A"})
	if bug != "bug in Close" { // a shared answer may have been given before the loser is closed
		wantBug(t, err, bug)
		_, err = cl.Addresses(ctx, "example.com")
		wantBug(t, err, bug)
	}
	end()
	if bug != "bug in Close" { // which needs a reason to close
		f.scripts["8.8.8.8:53"] = mute
		begun := time.Now()
		_, err = lookup(t, cl, "A")
		if took := time.Since(begun); took != 0 {
			t.Errorf("the bug was there at once and came after %v", took)
		}
		wantBug(t, err, bug)
	}
	f.check(nil)
}

// TestPanicOverTCP: a panic of what asks over TCP is the lookup's error at once,
// though UDP is still waited for.
func TestPanicOverTCP(t *testing.T) {
	t.Parallel()
	for bug, spoil := range map[string]func(net.Conn) net.Conn{
		"bug in Dial":  nil,
		"bug in Write": func(c net.Conn) net.Conn { return faulty{Conn: c, write: true} },
		"bug in Read":  func(c net.Conn) net.Conn { return faulty{Conn: c, read: true} },
		"bug in Close": func(c net.Conn) net.Conn { return faulty{Conn: c, close: true} },
	} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fakeNet{t: t, begin: time.Now()}
				f.scripts = map[string]script{"1.1.1.1:53": mute, "tcp 1.1.1.1:53": stream(f.says(0, miekg.RcodeSuccess, good))}
				c := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					if network == "tcp" && spoil == nil {
						panic(bug)
					}
					conn, err := f.dial(ctx, network, address)
					if network == "tcp" {
						conn = spoil(conn)
					}
					return conn, err
				}})
				_, err := lookup(t, c, "A")
				wantBug(t, err, bug)
				if at := time.Since(f.begin); at != 2*time.Second {
					t.Errorf("it came at %v, want 2s", at)
				}
				f.check(nil)
			})
		})
	}
}

// TestPanicOfOneFamily: a bug in one family is not covered up by the other,
// not even when IPv6 has it and comes after its grace.
func TestPanicOfOneFamily(t *testing.T) {
	t.Parallel()
	for name, which := range map[string]uint16{"IPv4": miekg.TypeA, "IPv6": miekg.TypeAAAA} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cl := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := families{t, 10 * ms, 20 * ms}.dial(ctx, network, address)
					return &picky{Conn: conn, which: which}, err
				}})
				_, err := cl.Addresses(t.Context(), "example.com")
				wantBug(t, err, "bug in Write")
			})
		})
	}
}

// picky panics at questions of one type.
type picky struct {
	net.Conn
	which uint16
}

func (p *picky) Write(b []byte) (int, error) {
	q := new(miekg.Msg)
	if err := q.Unpack(b); err == nil && q.Question[0].Qtype == p.which {
		panic("bug in Write")
	}
	return p.Conn.Write(b)
}

// TestPanicOfTheContext: what runs beside the attempts recovers, too.
func TestPanicOfTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{t: t, begin: time.Now(), scripts: map[string]script{"1.1.1.1:53": mute}}
		cl := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: f.dial})
		broken := &brokenContext{Context: t.Context()}
		shared, end := dns.Share(broken)
		asking, cancel := context.WithTimeout(shared, time.Minute)
		defer cancel()
		broken.down.Store(true)
		_, err := cl.Lookup(asking, dns.Query{Domain: "example.com", Type: "A"})
		wantBug(t, err, "bug in Deadline")
		if at := time.Since(f.begin); at != 0 {
			t.Errorf("it took %v to say so", at)
		}
		end()
		_, err = cl.Addresses(broken, "example.com")
		wantBug(t, err, "bug in Deadline")
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
