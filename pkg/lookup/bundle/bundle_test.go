package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

type fact struct {
	N int `json:"n"`
}

// A result or an error as JSON. What is owed shows in the header of the answer; its
// body is that of spec §2.8.
func TestChild(t *testing.T) {
	gone := fault.Newf(fault.NXDomain, nil, "gone")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"result":    {nil, `{"n":7}`},
		"fault":     {gone, `{"error":{"code":"nxdomain","message":"gone"}}`},
		"prevented": {fmt.Errorf("x: %w", gone.Prevented()), `{"error":{"code":"nxdomain","message":"gone"}}`},
		"foreign":   {errors.New("secret"), `{"error":{"code":"internal_error",`},
		"panic":     {errPanic, `{"error":{"code":"internal_error",`},
	} {
		b, err := json.Marshal(run(t.Context(), func(context.Context) (fact, error) {
			if c.err == errPanic {
				panic("secret")
			}
			return fact{7}, c.err
		}))
		if err != nil || !strings.HasPrefix(string(b), c.want) || strings.Contains(string(b), "secret") {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}

var errPanic = errors.New("panics")

// In whatever way the children of a bundle end, those are owed under the names of
// their fields whose code is owed by itself; they were prevented when none of them
// was tried.
func TestOwed(t *testing.T) {
	prevented := fault.New(fault.BootstrapUnavailable, nil).Prevented()
	ends := []*fault.Error{nil, prevented, fault.New(fault.NXDomain, nil), fault.New(fault.InternalError, nil)}
	few := len(ends)
	for _, i := range fault.All() {
		ends = append(ends, fault.New(i.Code, nil))
	}
	for n := range few * few * len(ends) {
		three := []*fault.Error{ends[n%few], ends[n/few%few], ends[n/few/few]}
		for last, owed := range map[string]func() ([]string, bool){
			"whois": HostIntelResult{DNS: Child[dns.Result]{Fault: three[0]}, SSL: Child[ssl.Result]{Fault: three[1]},
				Whois: Child[whois.Result]{Fault: three[2]}}.Owed,
			"headers": UptimeResult{DNS: Child[dns.Result]{Fault: three[0]}, SSL: Child[ssl.Result]{Fault: three[1]},
				Headers: Child[headers.Result]{Fault: three[2]}}.Owed,
		} {
			var want []string
			tried := false
			for i, f := range three {
				if f != nil && f.Info().Class == fault.Owed {
					want = append(want, []string{"dns", "ssl", last}[i])
					tried = tried || f != prevented
				}
			}
			if got, all := owed(); !slices.Equal(got, want) || all != (want != nil && !tried) {
				t.Fatalf("%v: %q, prevented %v; want %q", three, got, all, want)
			}
		}
	}
}

type look[Q, R any] func(context.Context, Q) (R, error)

func (l look[Q, R]) Lookup(ctx context.Context, q Q) (R, error) { return l(ctx, q) }

// takes is a lookup that takes a while, and stops when it is told to.
func takes[Q, R any](d time.Duration) look[Q, R] {
	return func(ctx context.Context, _ Q) (r R, err error) {
		select {
		case <-time.After(d):
			return r, nil
		case <-ctx.Done():
			return r, fault.New(fault.SSLTimeout, ctx.Err())
		}
	}
}

// The children run side by side. A slow one is a time-out in its field, before the
// bundle's own time is up; the others stand.
func TestSlowChild(t *testing.T) {
	for name, c := range map[string]struct{ slow, deadline, at time.Duration }{
		"side by side":      {3 * time.Second, time.Hour, 3 * time.Second},
		"slow":              {time.Hour, 12 * time.Second, 8 * time.Second},
		"slow, little time": {time.Hour, 3 * time.Second, 2500 * time.Millisecond},
		"slow, no deadline": {time.Hour, 0, 8 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := t.Context(), func() {}
			if c.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
			}
			defer cancel()
			begun := time.Now()
			d, w := takes[dns.Query, dns.Result](2*time.Second), takes[whois.Query, whois.Result](time.Second)
			r, err := NewHostIntel(d, takes[ssl.Query, ssl.Result](c.slow), w).Lookup(ctx, HostIntelQuery{Domain: "example.com", DNSType: "A"})
			if err != nil || r.SSL.Failed() != (c.slow == time.Hour) || r.DNS.Failed() || r.Whois.Failed() || time.Since(begun) != c.at {
				t.Errorf("%s: %+v, %v after %s", name, r, err, time.Since(begun))
			}
		})
	}
}

// late is a context whose deadline is past and whose timer has not fired: a
// process that was just thawed.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// A bundle whose time is up says so, whatever its children say: where one of them
// does not heed its context, and where the process was frozen past the deadline and
// the context does not know it yet.
func TestBundlesOutOfTime(t *testing.T) {
	stubborn := look[dns.Query, dns.Result](func(context.Context, dns.Query) (dns.Result, error) {
		time.Sleep(2 * time.Second)
		return dns.Result{}, nil
	})
	h := good()
	for name, c := range map[string]struct {
		look func(context.Context) error
		want fault.Code
	}{
		"host-intel": {func(ctx context.Context) error {
			b := NewHostIntel(stubborn, takes[ssl.Query, ssl.Result](0), takes[whois.Query, whois.Result](0))
			_, err := b.Lookup(ctx, HostIntelQuery{Domain: "example.com", DNSType: "A"})
			return err
		}, fault.HostIntelTimeout},
		"uptime-check": {func(ctx context.Context) error {
			_, err := NewUptime(h, stubborn, h, h).Lookup(ctx, UptimeQuery{Domain: "example.com"})
			return err
		}, fault.UptimeCheckTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			left, leave := context.WithCancel(t.Context())
			leave()
			for what, ctx := range map[string]context.Context{"stubborn": ctx, "thawed": late{t.Context()}, "left": left} {
				if err := c.look(ctx); fault.From(err).Code != c.want {
					t.Errorf("%s, %s: %v, want %s", name, what, err, c.want)
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	for query, want := range map[string]string{ // the values as understood, or a code
		"domain=Example.COM.":             "dns_type=A&domain=example.com",
		"domain=example.com&dns_type=mx":  "dns_type=MX&domain=example.com",
		"domain=example.com&type=MX":      "dns_type=A&domain=example.com",
		"domain=example.com&dns_type=SRV": "invalid_type",
		"domain=_dmarc.example.com":       "invalid_domain",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		h, err := ParseHostIntel(values)
		got := h.Values().Encode()
		if err != nil {
			got = string(fault.From(err).Code)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
		if u, err := ParseUptime(values); (err == nil) != (want != "invalid_domain") || err == nil && u.Values().Get("domain") != "example.com" {
			t.Errorf("%s: %+v, %v", query, u, err)
		}
	}
}
