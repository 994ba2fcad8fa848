package bundle

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

type look[Q, R any] func(context.Context, Q) (R, error)

func (l look[Q, R]) Lookup(ctx context.Context, q Q) (R, error) { return l(ctx, q) }

// takes is a lookup that takes a while, and stops when it is told to.
func takes[Q, R any](d time.Duration, r R, err error) look[Q, R] {
	return func(ctx context.Context, _ Q) (R, error) {
		select {
		case <-time.After(d):
			return r, err
		case <-ctx.Done():
			var none R
			return none, fault.New(fault.SSLTimeout, ctx.Err())
		}
	}
}

func hostIntel(d, s, w time.Duration, err error) HostIntel {
	return NewHostIntel(
		takes[dns.Query](d, dns.Result{Rcode: "NOERROR", Records: []dns.Record{}}, err),
		takes[ssl.Query](s, ssl.Result{Subject: "CN=x"}, err),
		takes[whois.Query](w, whois.Result{Source: "rdap"}, err),
	)
}

func TestSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r, err := hostIntel(2*time.Second, 3*time.Second, time.Second, nil).Lookup(t.Context(), HostIntelQuery{Domain: "example.com", DNSType: "A"})
		if err != nil || time.Since(begun) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		if r.DNS.Failed() || r.SSL.Failed() || r.Whois.Failed() {
			t.Errorf("%+v", r)
		}
	})
}

// A slow child is a time-out in its field; the others stand.
func TestSlowChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		r, err := hostIntel(time.Second, time.Hour, time.Second, nil).Lookup(ctx, HostIntelQuery{Domain: "example.com", DNSType: "A"})
		if err != nil || !r.SSL.Failed() || r.SSL.Fault.Code != fault.SSLTimeout || r.DNS.Failed() || r.Whois.Failed() {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestEveryChildFails(t *testing.T) {
	r, err := hostIntel(0, 0, 0, fault.New(fault.NXDomain, nil)).Lookup(t.Context(), HostIntelQuery{Domain: "example.com", DNSType: "A"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil || strings.Count(string(b), `{"error":{"code":"nxdomain"`) != 3 {
		t.Errorf("%s, %v", b, err)
	}
}

// Every child is owed under the name of its field.
func TestHostIntelOwed(t *testing.T) {
	ours, target := fault.New(fault.InternalError, nil), fault.New(fault.NotFound, nil)
	for _, c := range []struct {
		name            string
		dns, ssl, whois error
		want            []string
		prevented       bool
	}{
		{name: "all well"},
		{name: "facts about the target", dns: target, ssl: target, whois: target},
		{name: "dns", dns: ours, ssl: target, want: []string{"dns"}},
		{name: "ssl", ssl: ours, want: []string{"ssl"}},
		{name: "whois", whois: ours, dns: target, want: []string{"whois"}},
		{name: "all", dns: ours, ssl: ours, whois: ours, want: []string{"dns", "ssl", "whois"}},
		{name: "whois prevented", whois: ours.Prevented(), want: []string{"whois"}, prevented: true},
		{name: "whois prevented and dns tried", dns: ours, whois: ours.Prevented(), want: []string{"dns", "whois"}},
	} {
		r, err := NewHostIntel(
			takes[dns.Query](0, dns.Result{}, c.dns), takes[ssl.Query](0, ssl.Result{}, c.ssl), takes[whois.Query](0, whois.Result{}, c.whois),
		).Lookup(t.Context(), HostIntelQuery{Domain: "example.com", DNSType: "A"})
		if err != nil {
			t.Fatal(err)
		}
		if got, prevented := r.Owed(); !slices.Equal(got, c.want) || prevented != c.prevented {
			t.Errorf("%s: %q, prevented %v; want %q, %v", c.name, got, prevented, c.want, c.prevented)
		}
	}
}

func TestParseHostIntel(t *testing.T) {
	for query, want := range map[string]string{
		"domain=Example.COM.":                "dns_type=A&domain=example.com",
		"domain=example.com&dns_type=mx":     "dns_type=MX&domain=example.com",
		"domain=example.com&type=MX":         "dns_type=A&domain=example.com",
		"domain=example.com&dns_type=":       "invalid_type",
		"domain=example.com&dns_type=SRV":    "invalid_type",
		"domain=_dmarc.example.com":          "invalid_domain",
		"domain=127.0.0.1":                   "invalid_domain",
		"domain=example.com&domain=a.com":    "invalid_domain",
		"dns_type=A":                         "invalid_domain",
		"domain=localhost&dns_type=nonsense": "invalid_domain",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		q, err := ParseHostIntel(values)
		got := q.Values().Encode()
		if err != nil {
			got = string(fault.From(err).Code)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}
