package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/headers"
	"github.com/hostfacts/hostfacts/pkg/lookup/ssl"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
	"github.com/hostfacts/hostfacts/pkg/x402/storefront"
)

// fixedOutcome is a lookup that returns its error. If the error is nil, it returns an empty
// result.
type fixedOutcome[Q, R any] struct{ error }

func (e fixedOutcome[Q, R]) Lookup(context.Context, Q) (r R, err error) { return r, e.error }

// TestReplies checks what an operation tells the Gate. An answered bundle names its owed
// pieces. A bundle that fails completely names no piece, because its whole answer is owed. The
// error of a single lookup tells whether the lookup was prevented or the target was silent. An
// error code that the operation does not list is a bug: it becomes internal_error, which tells
// neither. The tests of package bundle check which pieces are owed.
func TestReplies(t *testing.T) {
	preventedErr := lookup.Fault(lookup.DNSTimeout, nil).Prevented()
	silentErr := lookup.Fault(lookup.HeadersTimeout, nil).Silence()
	toolOp := func(err error) Operation { return DNS(fixedOutcome[dns.Query, dns.Result]{err}) }
	bundleOp := func(err error) Operation {
		return HostIntel(fixedOutcome[bundle.HostIntelQuery, bundle.HostIntelResult]{err})
	}
	childOp := func(err error) Operation {
		return HostIntel(bundle.HostIntel{DNS: fixedOutcome[dns.Query, dns.Result]{}, SSL: fixedOutcome[ssl.Query, ssl.Result]{}, Whois: fixedOutcome[whois.Query, whois.Result]{err}})
	}
	for name, c := range map[string]struct {
		op   Operation
		code fault.Code // the expected error code; "" means no error
		mark string
		owed string
	}{
		"tool, answered":       {toolOp(nil), "", "", "[]"},
		"tool":                 {toolOp(lookup.Fault(lookup.DNSTimeout, nil)), lookup.DNSTimeout, "", "[]"},
		"tool, prevented":      {toolOp(fmt.Errorf("lookup: %w", preventedErr)), lookup.DNSTimeout, "prevented", "[]"},
		"tool, silent target":  {Headers(fixedOutcome[headers.Query, headers.Result]{silentErr}), lookup.HeadersTimeout, "silent", "[]"},
		"tool, unlisted":       {toolOp(silentErr), fault.InternalError, "", "[]"},
		"tool, its own bug":    {toolOp(fault.New(fault.InternalError, preventedErr)), fault.InternalError, "", "[]"},
		"bundle":               {bundleOp(lookup.Fault(lookup.HostIntelTimeout, nil)), lookup.HostIntelTimeout, "", "[]"},
		"bundle, child's code": {bundleOp(preventedErr), fault.InternalError, "", "[]"},
		"bundle, answered":     {childOp(nil), "", "", "[]"},
		"part, tried":          {childOp(lookup.Fault(lookup.UpstreamUnavailable, nil)), "", "", "[whois]"},
		"part, prevented":      {childOp(preventedErr), "", "prevented", "[whois]"},
		"part, silent target":  {childOp(silentErr), "", "silent", "[whois]"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), c.op.entry.Deadline)
		defer cancel()
		w := storefront.NewRecorder(ctx)
		handler{op: c.op}.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?domain=example.com", nil).WithContext(ctx))
		code, prevented, silent := fault.Code(""), w.Prevented, w.Silent
		if f := w.Fault; f != nil {
			code, prevented, silent = f.Code, f.IsPrevented(), f.IsSilence()
		}
		owed := "[" + w.Header().Get(x402.HeaderOwed) + "]"
		if code != c.code || prevented != (c.mark == "prevented") || silent != (c.mark == "silent") || owed != c.owed || (code == "") != json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %s, %v, owed %s, prevented %v, silent %v; want %q, %q, owed %s", name, &w.Body, w.Fault, owed, prevented, silent, c.code, c.mark, c.owed)
		}
	}
}

// TestMetricsBySource checks that two facilitators are counted separately, each at most once
// for a payment. The log line must name them in the order in which they were asked. If there
// is only one facilitator, it is not counted separately.
func TestMetricsBySource(t *testing.T) {
	const names = "primary.example fallback.example"
	// Each key has the names of the expected metrics. In two keys, a note such as "of one"
	// takes their place. Each value has the classes of the first facilitator's replies, then
	// "|", and then the classes of the second's.
	for want, asked := range map[string]string{
		"":                              "",
		" of one":                       "settled|",
		" of one that refused":          "refused|",
		"PrimaryFailed FallbackSettled": "unknown not_sent|settled",
		"PrimaryFailed FallbackFailed":  "turned_away|unknown",
		"PrimaryFailed":                 "not_sent|refused",
	} {
		var all []x402.Ask
		for i, classes := range strings.Split(asked, "|") {
			for class := range strings.FieldsSeq(classes) {
				all = append(all, x402.Ask{Facilitator: strings.Fields(names)[i], Fallback: i > 0, Class: class, Reason: "why", Took: time.Second})
			}
		}
		res := storefront.Response{Trace: &x402.Trace{Asked: all}}
		var got []string
		for _, m := range new(Platform).requestMetrics(res, "client")[1:] {
			got = append(got, m.Name)
		}
		if want, _, _ := strings.Cut(want, " of"); strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", asked, got, want)
		}
		_, attrs := res.Line(nil, httptest.NewRequest(http.MethodGet, "/", nil), "dns", "id", time.Second)
		line := "facilitators=[map[ms:1000 name:primary.example reason:why settlement:turned_away] " +
			"map[ms:1000 name:fallback.example reason:why settlement:unknown]]"
		if said := strings.Contains(fmt.Sprint(attrs), line); said != (asked == "turned_away|unknown") {
			t.Errorf("%s: %v", asked, attrs)
		}
	}
}

// TestPayerNumber checks that a payer has the same number in every attempt. If there is no
// payer, the number stands for the client's network. There must be so few of these numbers
// that nobody can infer an address from one.
func TestPayerNumber(t *testing.T) {
	for payer, want := range map[string]int{
		"0x00000000000000000000000000000000000000aB": 0xab,
		"0x1111111111111111111111111111111111fedcba": 0xfedcba,
	} {
		if got := payerNumber(payer, "192.0.2.1"); got != want {
			t.Errorf("%s is %x, want %x", payer, got, want)
		}
	}
	networks := map[int]bool{}
	for i := range 2000 {
		client := fmt.Sprintf("192.0.%d.%d", i/250, i%250)
		n := payerNumber("", client)
		if n < 0 || n > 255 || n != payerNumber("none", client) {
			t.Errorf("%s is %d", client, n)
		}
		networks[n] = true
	}
	if len(networks) < 200 {
		t.Errorf("2000 networks have %d numbers", len(networks))
	}
}

// noServerForIO is a client of registries. It knows that the top-level domain io has no server.
type noServerForIO struct {
	fixedOutcome[whois.Query, whois.Result]
}

func (noServerForIO) NoServer(domain string) bool { return strings.HasSuffix(domain, ".io") }

// TestAsked checks what a page shows for a link whose query names a lookup. If the operation
// accepts the query, the page must show the request as the operation understands it. Otherwise
// the page must show the reason for the refusal. In both cases, the page must show what is
// known about the answer in advance, and no other text from the link. The tests of
// pkg/lookup/guard check which names are refused, and the tests of pkg/discovery check the
// page.
func TestAsked(t *testing.T) {
	dnsOp, whoisOp := DNS(fixedOutcome[dns.Query, dns.Result]{}), Whois(noServerForIO{})
	for query, c := range map[string]struct {
		op                                   Operation
		normalQuery, request, refused, known string // the expected fields of discovery.Visit; refused and known need only be parts of the text
		typed                                string // the expected text in the field for the domain; "" means any
	}{
		"domain=WWW.Example.COM.":                     {op: dnsOp, normalQuery: "domain=www.example.com", request: "GET /v1/tools/dns?domain=www.example.com&type=A"},
		"domain=%D0%B0pple.com":                       {op: dnsOp, normalQuery: "domain=xn--pple-43d.com", request: "GET /v1/tools/dns?domain=xn--pple-43d.com&type=A"},
		"domain=a.example.com&type=mx&note=SECURITY":  {op: dnsOp, normalQuery: "domain=a.example.com&type=MX", request: "GET /v1/tools/dns?domain=a.example.com&type=MX"},
		"domain=send+money":                           {op: dnsOp, refused: "which no domain name has"},
		"domain=a.example.com&type=send+money":        {op: dnsOp, refused: "The record type must be one of"},
		"domain=a.example.com&domain=b.example.com":   {op: dnsOp, refused: "domain is repeated"},
		"domian=a.example.com":                        {op: dnsOp, refused: "it is called domain. The form below has the value that you sent.", typed: "a.example.com"},
		"DOMAIN=a.example.com&tpye=MX":                {op: dnsOp, refused: "The form below has", typed: "a.example.com"},
		"domain=b.example.com&domian=a.example.com":   {op: dnsOp, refused: "it is called domain.", typed: "b.example.com"},
		"domain=exa+mple.com":                         {op: dnsOp, refused: "which no domain name has", typed: "exa mple.com"},
		"domain=a.com&x=" + strings.Repeat("x", 2048): {op: dnsOp, refused: "longer than"},
		"":                    {op: dnsOp},
		"domain=&type=nope":   {op: dnsOp},
		"domain=a.example.io": {op: whoisOp, normalQuery: "domain=a.example.io", request: "GET /v1/tools/whois?domain=a.example.io", known: "IANA lists no RDAP server"},
		"domain=a_b.io":       {op: whoisOp, refused: "domain"},
		"domain=example.com":  {op: whoisOp, normalQuery: "domain=example.com", request: "GET /v1/tools/whois?domain=example.com"},
	} {
		t.Run(query, func(t *testing.T) {
			v := c.op.visit(query)
			part := func(got, want string) bool { return (got == "") == (want == "") && strings.Contains(got, want) }
			if v.Query.Encode() != c.normalQuery || v.Request != c.request || !part(v.Refused, c.refused) || !part(v.Known, c.known) || len(query) > 0 && len(v.Typed) == 0 {
				t.Errorf("%+v", v)
			}
			if typed := v.Typed.Get("domain"); c.typed != "" && typed != c.typed {
				t.Errorf("the form has %q, want %q", typed, c.typed)
			}
		})
	}
}

// TestCodesAreListedAtStart checks that a program does not start if an operation can return a
// code that its entry in the catalog lacks.
func TestCodesAreListedAtStart(t *testing.T) {
	for says, code := range map[string]fault.Code{
		"Errors of dns lack a code with status 504": lookup.DNSTimeout, "Errors of dns lack invalid_domain": lookup.InvalidDomain,
		"Errors of dns lack invalid_type": lookup.InvalidType, "Errors of dns lack nxdomain": lookup.NXDomain,
		"Errors of dns lack upstream_unavailable": lookup.UpstreamUnavailable,
	} {
		t.Run(says, func(t *testing.T) {
			op := catalog.DNS()
			op.Errors = slices.DeleteFunc(op.Errors, func(c fault.Code) bool { return c == code })
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, says) {
					t.Errorf("it started: %s", said)
				}
			}()
			newLookup(op, dns.Codes(), dns.ParseQuery, lookup.Looker[dns.Query, dns.Result](nil))
		})
	}
}

// TestRunOfReconcile checks the log line of a reconcile run. It must have a member for each
// number of the run, and a metric for each number that an alarm uses. A run that did not read
// the whole index must count as failed. If there are former terms, the Reconciler must get the
// former payee, so that it also reads the payments to that address. The Reconciler must also
// get the lowest price of all terms, because it would otherwise count a payment of a former,
// lower price as a deposit.
func TestRunOfReconcile(t *testing.T) {
	var s reconcile.Summary
	for i, v := range reflect.ValueOf(&s).Elem().Fields() {
		if v.CanInt() {
			v.SetInt(int64(i.Index[0]))
		} else {
			v.SetBool(true)
		}
	}
	former := &FormerTerms{Terms: x402.Terms{PayTo: "0x1"}, Prices: map[string]string{"dns": "6000", "ping": "1"}}
	r := Reconciler(reconcile.Reconciler{}, former)
	for got, want := range map[string]string{
		fmt.Sprint(runAttrs(s)): "[listed=0 settled_late=1 refused_late=2 still_open=3 cannot_tell=4 undue=5 skipped=6 failed=7 left=8 open=9 " +
			"received=10 deposits=11 found=12 unasked=13 unmatched=14 owed=16 owed_over_an_hour=17 refunds_due=18 silent=19 unproven=20 swept=23 uncounted=21 unread=true unfinished=true]",
		fmt.Sprint(metricsOf(s)): "[{SettledLate Count 1} {RefusedLate Count 2} {StillOpen Count 3} {CannotTell Count 4} {Left Count 8} " +
			"{Open Count 9} {OwedUnclaimed Count 16} {OwedOverAnHour Count 17} {RefundsDue Count 18} {ReconcileFailed Count 28}]",
		fmt.Sprint(metricsOf(reconcile.Summary{Unfinished: true})[9]): "{ReconcileFailed Count 1}",
		fmt.Sprint(r.Former, " ", r.Cheapest):                         "0x1 1",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
