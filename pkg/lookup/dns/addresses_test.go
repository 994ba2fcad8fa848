package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// asks gives the two families of a name a server each.
func asks(v4, v6 miekg.HandlerFunc) miekg.HandlerFunc {
	return func(w miekg.ResponseWriter, q *miekg.Msg) {
		if q.Question[0].Qtype == miekg.TypeA {
			v4(w, q)
			return
		}
		v6(w, q)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	const a, aaaa = "example.com. 60 IN A 93.184.216.34", "example.com. 60 IN AAAA 2606:4700::1"
	none := answer(t)
	servfail, nx, refused := rcode(t, miekg.RcodeServerFailure), rcode(t, miekg.RcodeNameError), rcode(t, miekg.RcodeRefused)
	yx, referred := rcode(t, miekg.RcodeYXDomain, "com. 60 IN DNAME x.example."), refer(t)
	for _, c := range []struct {
		name   string
		v4, v6 miekg.HandlerFunc
		want   string
		code   fault.Code
		is     error
		says   string
	}{
		{name: "both", v4: answer(t, a, "example.com. 60 IN A 10.0.0.1"), v6: answer(t, aaaa), want: "93.184.216.34 10.0.0.1 2606:4700::1"},
		{name: "mapped stays mapped", v4: answer(t, a), v6: answer(t, "example.com. 60 IN AAAA ::ffff:10.0.0.1"), want: "93.184.216.34 ::ffff:10.0.0.1"},
		{name: "IPv4 only", v4: answer(t, a), v6: none, want: "93.184.216.34"},
		{name: "IPv6 only", v4: none, v6: answer(t, aaaa), want: "2606:4700::1"},
		{name: "IPv6 fails beside IPv4", v4: answer(t, a), v6: servfail, want: "93.184.216.34"},
		{name: "IPv6 is denied beside IPv4", v4: answer(t, a), v6: nx, want: "93.184.216.34"},
		{name: "IPv6 is referred beside IPv4", v4: answer(t, a), v6: referred, want: "93.184.216.34"},
		{name: "IPv4 fails beside IPv6", v4: servfail, v6: answer(t, aaaa), want: "2606:4700::1"},
		{name: "alias", v4: answer(t, "example.com. 60 IN CNAME b.test.", "b.test. 60 IN A 93.184.216.34", "c.test. 60 IN A 8.8.8.8"), v6: none, want: "93.184.216.34"},
		{name: "nxdomain", v4: nx, v6: nx, code: fault.NXDomain},
		{name: "nxdomain behind an alias", v4: rcode(t, miekg.RcodeNameError, "example.com. 60 IN CNAME b.test."), v6: nx, code: fault.NXDomain, says: "alias"},
		{name: "nxdomain, SERVFAIL", v4: servfail, v6: nx, code: fault.NXDomain},
		{name: "nxdomain, silence", v4: refused, v6: nx, code: fault.NXDomain},
		{name: "yxdomain", v4: yx, v6: yx, code: fault.ConnectFailed, says: "YXDOMAIN"},
		{name: "yxdomain, SERVFAIL", v4: servfail, v6: yx, code: fault.ConnectFailed, says: "YXDOMAIN"},
		{name: "no data", v4: none, v6: none, code: fault.ConnectFailed, says: "without A and AAAA"},
		{name: "no data, false nxdomain", v4: none, v6: nx, code: fault.ConnectFailed, says: "without A and AAAA"},
		{name: "SERVFAIL", v4: servfail, v6: servfail, code: fault.ConnectFailed, says: "SERVFAIL"},
		{name: "no data, SERVFAIL", v4: none, v6: servfail, code: fault.ConnectFailed, says: "SERVFAIL"},
		{name: "SERVFAIL, refused", v4: servfail, v6: refused, code: fault.ConnectFailed, says: "SERVFAIL"},
		{name: "refused", v4: refused, v6: refused, is: guard.ErrResolvers},
		{name: "referred", v4: referred, v6: referred, is: guard.ErrResolvers},
		{name: "referred, no data", v4: referred, v6: none, is: guard.ErrResolvers},
		{name: "no data, refused", v4: none, v6: refused, is: guard.ErrResolvers},
		{name: "refused, no data", v4: refused, v6: none, is: guard.ErrResolvers},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := client(t, resolver(t, asks(c.v4, c.v6))).Addresses(t.Context(), "example.com")
			if c.want != "" {
				if text := strings.Trim(fmt.Sprint(got), "[]"); text != c.want || err != nil {
					t.Errorf("%s, %v; want %s", text, err, c.want)
				}
				return
			}
			if err != nil && strings.Contains(err.Error(), "example.com") {
				t.Errorf("%v: errors are logged, and this one names what was asked about", err)
			}
			var f *fault.Error
			switch {
			case c.is != nil:
				if !errors.Is(err, c.is) || errors.As(err, &f) {
					t.Errorf("%v, want %v and no code", err, c.is)
				}
			case !errors.As(err, &f) || f.Code != c.code || !strings.Contains(f.Public(), c.says):
				t.Errorf("%v, want %s with %q", err, c.code, c.says)
			}
		})
	}
}

// A message can hold thousands of addresses. The last one counts too.
func TestAddressesAreAllOfThem(t *testing.T) {
	t.Parallel()
	var records []string
	for i := range 1500 {
		records = append(records, fmt.Sprintf("example.com. 60 IN A 8.8.%d.%d", i/250, i%250))
	}
	records = append(records, "example.com. 60 IN A 127.0.0.1")
	big := asks(func(w miekg.ResponseWriter, q *miekg.Msg) {
		if w.LocalAddr().Network() == "udp" {
			m := new(miekg.Msg).SetReply(q)
			m.Truncated = true
			w.WriteMsg(m)
			return
		}
		m := new(miekg.Msg).SetReply(q)
		m.Answer, m.Compress = parse(t, records...), true
		w.WriteMsg(m)
	}, answer(t))
	got, err := client(t, resolver(t, big)).Addresses(t.Context(), "example.com")
	if err != nil || len(got) != len(records) || got[len(got)-1] != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%d addresses, %v; want %d", len(got), err, len(records))
	}
}

func TestAddressesRefusesNoName(t *testing.T) {
	t.Parallel()
	_, err := client(t, dead(t)).Addresses(t.Context(), strings.Repeat("a", 300)+".com")
	if fault.From(err).Code != fault.InvalidDomain {
		t.Errorf("%v, want invalid_domain", err)
	}
}

// TestAddressesTime holds the grace, the deadline and the order of the two
// families to the rules, with a fake clock and one resolver.
func TestAddressesTime(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for _, c := range []struct {
		name   string
		v4, v6 time.Duration
		want   string
		at     time.Duration
	}{
		{"IPv6 before IPv4", 300 * ms, 100 * ms, "93.184.216.34 2606:4700::1", 300 * ms},
		{"IPv6 in its grace", 100 * ms, 140 * ms, "93.184.216.34 2606:4700::1", 140 * ms},
		{"IPv6 after its grace", 100 * ms, 200 * ms, "93.184.216.34", 150 * ms},
		{"IPv6 never", 100 * ms, never, "93.184.216.34", 150 * ms},
		{"IPv4 never", never, 100 * ms, "2606:4700::1", 3950 * ms},
		{"never", never, never, "", 3950 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				cl := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: families{t, c.v4, c.v6}.dial})
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				got, err := cl.Addresses(ctx, "example.com")
				if text := strings.Trim(fmt.Sprint(got), "[]"); text != c.want {
					t.Errorf("%s, %v; want %s", text, err, c.want)
				}
				if c.want == "" && !errors.Is(err, guard.ErrResolvers) {
					t.Errorf("%v, want ErrResolvers", err)
				}
				if took := time.Since(begin); took != c.at {
					t.Errorf("after %v, want %v", took, c.at)
				}
			})
		})
	}
}

// families is a resolver behind pipes that takes its time with each family.
type families struct {
	t      *testing.T
	v4, v6 time.Duration
}

func (f families) dial(_ context.Context, network, _ string) (net.Conn, error) {
	if network != "udp" {
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		buf := make([]byte, 4096)
		for {
			n, err := far.Read(buf)
			if err != nil {
				return
			}
			q := new(miekg.Msg)
			if err := q.Unpack(buf[:n]); err != nil {
				f.t.Errorf("query: %v", err)
				return
			}
			after, record := f.v4, "example.com. 60 IN A 93.184.216.34"
			if q.Question[0].Qtype == miekg.TypeAAAA {
				after, record = f.v6, "example.com. 60 IN AAAA 2606:4700::1"
			}
			wire := reply(f.t, buf[:n], nil, record)
			if after < time.Minute {
				time.AfterFunc(after, func() { far.Write(wire) }) // fails when the client has gone
			}
		}
	}()
	return near, nil
}
