package dns_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/verdicttest"
)

func TestVerdicts(t *testing.T) {
	type row struct {
		typ, rcode string
		records    []dns.Record
		want       string
	}
	address, mx := dns.Address{Address: "192.0.2.1"}, dns.MX{Exchange: "mx1.example.com"}
	testbed.Each(t, map[string]row{
		"one address":   {typ: "A", records: []dns.Record{address}, want: "good A: 192.0.2.1"},
		"two addresses": {typ: "AAAA", records: []dns.Record{address, address}, want: "good AAAA: 2 addresses"},
		"one server":    {typ: "MX", records: []dns.Record{mx}, want: "good MX: 1 mail server"},
		"two servers":   {typ: "MX", records: []dns.Record{dns.MX{Exchange: "."}, mx}, want: "good MX: 2 mail servers"},
		"null MX":       {typ: "MX", records: []dns.Record{dns.MX{Exchange: "."}}, want: " MX: the domain accepts no mail"},
		"texts":         {typ: "TXT", records: []dns.Record{dns.TXT{}, dns.TXT{}}, want: "good TXT: 2 text records"},
		"alias":         {typ: "CNAME", records: []dns.Record{dns.Target{Target: "b.example.net"}}, want: "good CNAME: an alias of b.example.net"},
		"dangling": {typ: "CNAME", rcode: "NXDOMAIN", records: []dns.Record{dns.Target{Target: "b.example.net"}},
			want: "warn CNAME: an alias of b.example.net, which does not exist"},
		"name servers": {typ: "NS", records: []dns.Record{dns.Target{}, dns.Target{}}, want: "good NS: 2 name servers"},
		"authority":    {typ: "SOA", records: []dns.Record{dns.SOA{MName: "ns1.example.com", Serial: 7}}, want: "good SOA: ns1.example.com, serial 7"},
		"none":         {typ: "TXT", records: []dns.Record{}, want: " No TXT records"},
		"broken":       {typ: "A", rcode: "SERVFAIL", records: []dns.Record{}, want: "bad The resolvers could not look example.com up (SERVFAIL)"},
		"too long": {typ: "A", rcode: "YXDOMAIN", records: []dns.Record{},
			want: "bad A DNAME leads example.com to a name that is too long (YXDOMAIN)"},
	}, func(t *testing.T, c row) {
		line, tone := verdicttest.Of(dns.Verdicts(), dns.Result{Domain: "example.com", Type: c.typ, Rcode: c.rcode, Records: c.records}, time.Time{})
		if got := string(tone) + " " + line; got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	})
}
