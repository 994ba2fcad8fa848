package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
)

// ends is a lookup that ends with an error, or with a result when it is nil.
type ends[Q, R any] struct{ error }

func (e ends[Q, R]) Lookup(context.Context, Q) (r R, err error) { return r, e.error }

// What the Gate is told: a bundle that was answered names its parts that are owed; one
// that fails as a whole owes all of its answer, and names no part; so does a single
// lookup, whose error alone says whether it was prevented, or the target silent. A code
// that the operation does not list is a bug, which has neither mark. Package bundle tests which parts
// are owed.
func TestReplies(t *testing.T) {
	marked := lookup.Fault(lookup.DNSTimeout, nil).Prevented()
	silent := lookup.Fault(lookup.HeadersTimeout, nil).Silence()
	tool := func(err error) Operation { return DNS(ends[dns.Query, dns.Result]{err}) }
	whole := func(err error) Operation { return HostIntel(ends[bundle.HostIntelQuery, bundle.HostIntelResult]{err}) }
	parts := func(err error) Operation {
		return HostIntel(bundle.HostIntel{DNS: ends[dns.Query, dns.Result]{}, SSL: ends[ssl.Query, ssl.Result]{}, Whois: ends[whois.Query, whois.Result]{err}})
	}
	for name, c := range map[string]struct {
		op   Operation
		code fault.Code // of an error
		mark string
		owed string
	}{
		"tool, answered":       {tool(nil), "", "", "[]"},
		"tool":                 {tool(lookup.Fault(lookup.DNSTimeout, nil)), lookup.DNSTimeout, "", "[]"},
		"tool, prevented":      {tool(fmt.Errorf("lookup: %w", marked)), lookup.DNSTimeout, "prevented", "[]"},
		"tool, silent target":  {Headers(ends[headers.Query, headers.Result]{silent}), lookup.HeadersTimeout, "silent", "[]"},
		"tool, unlisted":       {tool(silent), fault.InternalError, "", "[]"},
		"tool, its own bug":    {tool(fault.New(fault.InternalError, marked)), fault.InternalError, "", "[]"},
		"bundle":               {whole(lookup.Fault(lookup.HostIntelTimeout, nil)), lookup.HostIntelTimeout, "", "[]"},
		"bundle, child's code": {whole(marked), fault.InternalError, "", "[]"},
		"bundle, answered":     {parts(nil), "", "", "[]"},
		"part, tried":          {parts(lookup.Fault(lookup.UpstreamUnavailable, nil)), "", "", "[whois]"},
		"part, prevented":      {parts(marked), "", "prevented", "[whois]"},
		"part, silent target":  {parts(silent), "", "silent", "[whois]"},
	} {
		j, err := c.op.job("domain=example.com")
		if err != nil {
			t.Fatal(err)
		}
		got, err := j.Run(t.Context())
		code, prevented, silent := fault.Code(""), got.Prevented, got.Silent
		if f := fault.From(err); err != nil {
			code, prevented, silent = f.Code, f.IsPrevented(), f.IsSilence()
		}
		if code != c.code || prevented != (c.mark == "prevented") || silent != (c.mark == "silent") || fmt.Sprint(got.Owed) != c.owed || (code == "") != json.Valid(got.Body) {
			t.Errorf("%s: %+v, %v, prevented %v, silent %v; want %q, %q, owed %s", name, got, err, prevented, silent, c.code, c.mark, c.owed)
		}
	}
}

// Two facilitators are counted apart, each once a payment, and named in the log
// line in the order in which they were asked. With one there is nothing to tell
// apart.
func TestMetricsBySource(t *testing.T) {
	one := func(class x402.Class) x402.Ask {
		return x402.Ask{Facilitator: "primary.example", Class: class.String(), Reason: "why", Took: time.Second}
	}
	two := func(class x402.Class) x402.Ask {
		a := one(class)
		a.Facilitator, a.Fallback = "fallback.example", true
		return a
	}
	for name, c := range map[string]struct {
		asked []x402.Ask
		want  string
	}{
		"one facilitator":   {nil, "[]"},
		"primary":           {[]x402.Ask{one(x402.Moved)}, "[]"},
		"refused":           {[]x402.Ask{one(x402.Refused)}, "[]"},
		"twice, fallback":   {[]x402.Ask{one(x402.Unknown), one(x402.NotSent), two(x402.Moved)}, "[PrimaryFailed FallbackSettled]"},
		"both":              {[]x402.Ask{one(x402.TurnedAway), two(x402.Unknown)}, "[PrimaryFailed FallbackFailed]"},
		"refused by second": {[]x402.Ask{one(x402.NotSent), two(x402.Refused)}, "[PrimaryFailed]"},
	} {
		got := []string{}
		for _, m := range metrics(x402http.Response{Trace: &x402.Trace{Asked: c.asked}})[1:] {
			got = append(got, m.Name)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	asked := x402http.Response{Trace: &x402.Trace{Asked: []x402.Ask{one(x402.NotSent), two(x402.Moved)}}}
	_, attrs := asked.Line(httptest.NewRequest(http.MethodGet, "/", nil), "dns", "id", time.Second)
	line := fmt.Sprint(attrs)
	if want := "facilitators=[map[ms:1000 name:primary.example reason:why settlement:not_sent] " +
		"map[ms:1000 name:fallback.example reason:why settlement:settled]]"; !strings.Contains(line, want) {
		t.Errorf("%s, want %s", line, want)
	}
}
