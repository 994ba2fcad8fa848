package simnet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

type row struct {
	name   string // empty: the query
	op     string // slug
	domain string
	more   string // further parameters, encoded
	want   want
}

// want holds values of the answer's body by path, such as hops.0.status or error.code; see same.
type want map[string]any

// fails is an error, and how its message begins.
func fails(code fault.Code, message ...string) want {
	w := want{"error.code": code}
	for _, m := range message {
		w["error.message"] = starts(m)
	}
	return w
}

// asks writes rows of an operation: a name (see full), the answer, and further parameters.
func asks(op string) func(name string, w want, more ...string) row {
	return func(name string, w want, more ...string) row {
		return row{op: op, domain: full(name), want: w, more: strings.Join(more, "&")}
	}
}

// alike are rows of an operation that are answered the same.
func alike(op string, w want, names ...string) []row {
	var rows []row
	for _, name := range names {
		rows = append(rows, asks(op)(name, w))
	}
	return rows
}

// full is a name as it is in the tables: without any kind of dot it is below example.com.
func full(name string) string {
	if strings.ContainsAny(name, ".\u3002\uff0e\uff61") {
		return name
	}
	return name + ".example.com"
}

func (r row) String() string {
	if r.name != "" {
		return r.op + ": " + r.name
	}
	return r.op + ": " + r.domain + " " + r.more
}

func (r row) query() string {
	return strings.TrimSuffix("?domain="+url.QueryEscape(r.domain)+"&"+r.more, "&")
}

func (r row) code() fault.Code {
	code, _ := r.want["error.code"].(fault.Code)
	return code
}

// charges says that money has moved when this is answered.
func (r row) charges() bool {
	info, failed := catalog.CodeOf(r.code())
	return !failed || info.Class == fault.Answer || info.Class == fault.Owed
}

// faults are what is wrong with an answer: its status, and its values.
func (r row) faults(reply x402test.Reply) []string {
	status := http.StatusOK
	if info, failed := catalog.CodeOf(r.code()); failed {
		status = info.Status
	}
	if reply.Status != status {
		return []string{fmt.Sprintf("status %d, want %d %s: %.500s", reply.Status, status, r.code(), reply.Body)}
	}
	var faults []string
	got := valuesOf(reply.Body)
	for _, path := range slices.Sorted(maps.Keys(r.want)) {
		if value, there := got[path]; !there || !same(value, r.want[path]) {
			faults = append(faults, fmt.Sprintf("%s is %v, want %#v: %.700s", path, value, r.want[path], reply.Body))
		}
	}
	return faults
}

// valuesOf are all values in a JSON text by their paths, the whole by "".
func valuesOf(text []byte) map[string]any {
	var whole any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	_ = d.Decode(&whole) // what is not JSON has no values
	all := map[string]any{}
	var add func(path string, v any)
	add = func(path string, v any) {
		all[strings.TrimPrefix(path, ".")] = v
		switch v := v.(type) {
		case map[string]any:
			for name, x := range v {
				add(path+"."+name, x)
			}
		case []any:
			for i, x := range v {
				add(fmt.Sprint(path, ".", i), x)
			}
		}
	}
	add("", whole)
	return all
}

// starts is a wanted text by its beginning, and count an array by its length.
type (
	starts string
	count  int
)

// same compares a value with the one that is wanted; the description knows its type.
func same(got, want any) bool {
	switch want := want.(type) {
	case starts:
		return strings.HasPrefix(fmt.Sprint(got), string(want))
	case count:
		list, ok := got.([]any)
		return ok && len(list) == int(want)
	}
	return fmt.Sprint(got) == fmt.Sprint(want)
}

// ranOut matches an answer of a service a call of which took longer than it may.
var ranOut = regexp.MustCompile(`"charged":null|"code":"(\w+_timeout|ledger_unavailable)"`)

// observed is what the answers have shown so far.
type observed struct {
	mu sync.Mutex
	// codes by operation, verdicts, and fields that were null or
	// not, each as one text.
	facts map[string]bool
	// api is the description that every answer is held to.
	api *clients.OpenAPI
}

func (o *observed) note(parts ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.facts[fmt.Sprint(parts...)] = true
}

var index = regexp.MustCompile(`\.[0-9]+\b`)

// play pays for a row, and holds the answer to it and to the OpenAPI description. It pays again
// where a busy machine may be the reason of another answer.
func (o *observed) play(t *testing.T, s *runner, r row) {
	testbed.Fairly(t, patience, func(tb testing.TB, p *testbed.Pace) { o.playOnce(tb, p, s, r) })
}

func (o *observed) playOnce(t testing.TB, p *testbed.Pace, s *runner, r row) {
	op, known := catalog.BySlug(r.op)
	if !known {
		t.Fatalf("there is no operation %s", r.op)
	}
	reply, err := s.buy(t, op.Path+r.query())
	// A request may not be written within the time that the service gives a new
	// connection. Package net/http does not export this error.
	if err != nil && strings.Contains(err.Error(), "server closed idle connection") || ranOut.Match(reply.Body) && len(r.faults(reply)) > 0 {
		p.Took(patience)
		<-time.After(reply.RetryAfter())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := o.api.Check(http.MethodGet, op.Path, reply); err != nil {
		t.Error(err)
	}
	receipt, err := reply.Receipt()
	if r.charges() != (err == nil && receipt.Success) {
		t.Errorf("receipt %+v (%v) on %d %s", receipt, err, reply.Status, r.code())
	}
	if faults := r.faults(reply); len(faults) > 0 {
		t.Error(strings.Join(faults, "\n"))
		return
	}
	o.note(op.Slug, " answered ", r.code())
	for path, v := range valuesOf(reply.Body) {
		o.note(op.Slug, ".", index.ReplaceAllString(path, ""), " null: ", v == nil)
		if path == "verdict" {
			o.note(v)
		}
	}
}

func bundleRows() []row {
	uptime := func(domain, verdict string, w want) row {
		all := want{"verdict": verdict}
		maps.Copy(all, w)
		return asks("uptime-check")(domain, all)
	}
	intel := asks("host-intel")
	return []row{
		uptime("example.com", "up", want{"dns.records": count(1), "ssl.hostname_match": true, "headers.status": 200}),
		uptime("expired", "degraded", want{"ssl.expired": true, "headers.status": 200}),
		uptime("old", "up", want{"ssl.tls_version": "tlsv1.2", "headers.status": 200}),
		uptime("refused", "down", want{"ssl.error.message": guard.Unresolved, "headers.error.message": guard.Unresolved}),
		uptime("http500", "degraded", want{"headers.status": 500}),
		uptime("mtls13", "down", want{"ssl.hostname_match": true, "headers.error.code": lookup.HandshakeFailed}),
		uptime("gone", "down", want{"dns.error.code": lookup.NXDomain, "ssl.error.code": lookup.NXDomain, "headers.error.code": lookup.NXDomain}),
		uptime("silent", "down", want{"dns.error.code": lookup.DNSTimeout, "ssl.error.code": lookup.SSLTimeout, "headers.error.code": lookup.HeadersTimeout}),
		uptime("loopback", "down", want{"dns.records.0.address": "127.0.0.1", "ssl.error.code": lookup.BlockedAddress, "headers.error.code": lookup.BlockedAddress}),
		intel("example.com", want{"dns.type": "A", "ssl.serial": "0a1b2c", "whois.handle": "1234_DOMAIN_COM-VRSN"}),
		intel("example.com", want{"dns.type": "MX", "dns.records": count(2), "ssl.hostname_match": true, "whois.dnssec": true}, "dns_type=MX"),
		intel("missing.com", want{"dns.error.code": lookup.NXDomain, "ssl.error.code": lookup.NXDomain, "whois.error.code": lookup.NotFound}),
		intel("loopback", want{"dns.records": count(1), "ssl.error.code": lookup.BlockedAddress, "whois.handle": starts("1234_")}),
		intel("example.org", want{"whois.error.code": lookup.WhoisTimeout}),
		intel("silent", want{"dns.error.code": lookup.DNSTimeout, "ssl.error.code": lookup.SSLTimeout, "whois.handle": starts("1234_")}),
		intel("example.com", fails(lookup.InvalidType), "dns_type=ANY"),
	}
}

// tableRows are the tables of what the operations answer; no two alike.
var tableRows = sync.OnceValue(func() []row {
	all := slices.Concat(dnsRows(), sslRows(), headersRows(), redirectRows(), whoisRows(), bundleRows())
	for _, s := range certificateSites() {
		all = append(all, s.rows...)
	}
	for _, op := range catalog.All() {
		if op.Kind != catalog.SmokeTest {
			all = append(all, asks(op.Slug)("10.0.0.1", fails(lookup.InvalidDomain)))
		}
	}
	return all
})
