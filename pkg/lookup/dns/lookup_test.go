package dns_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

// TestLookupRecords: what a server replies, and the result. No other server is
// there to be asked.
func TestLookupRecords(t *testing.T) {
	const (
		alias = "example.com. 60 IN CNAME b.example.net."
		soa   = "example.com. 60 IN SOA a. b. 1 2 3 4 5"
		none  = `"ttl":null,"records":[]`
	)
	type row struct {
		typ   string
		reply change
		want  string
	}
	origintest.Each(t, map[string]row{
		"A": {"A", answer("example.com. 300 IN A 192.0.2.1", "example.com. 200 IN A 192.0.2.2"),
			`"ttl":200,"records":[{"address":"192.0.2.1"},{"address":"192.0.2.2"}]`},
		"private A": {"A", answer("example.com. 0 IN A 10.0.0.1"),
			`"ttl":0,"records":[{"address":"10.0.0.1"}]`},
		"AAAA": {"AAAA", answer("example.com. 5 IN AAAA 2001:DB8:0:0:0::1", "example.com. 5 IN AAAA ::ffff:192.0.2.1"),
			`"ttl":5,"records":[{"address":"2001:db8::1"},{"address":"::ffff:192.0.2.1"}]`},
		"MX": {"MX", answer("example.com. 5 IN MX 20 B.Mail.Example.", "example.com. 5 IN MX 10 a.mail.example."),
			`"ttl":5,"records":[{"preference":20,"exchange":"b.mail.example"},{"preference":10,"exchange":"a.mail.example"}]`},
		"null MX": {"MX", answer("example.com. 5 IN MX 0 ."),
			`"ttl":5,"records":[{"preference":0,"exchange":"."}]`},
		"TXT": {"TXT", answer(`example.com. 5 IN TXT "v=spf1 include:" "_spf.example.com -all"`, `example.com. 5 IN TXT ""`),
			`"ttl":5,"records":[{"text":"v=spf1 include:_spf.example.com -all","strings":["v=spf1 include:","_spf.example.com -all"]},{"text":"","strings":[""]}]`},
		"TXT quotes and UTF-8": {"TXT", answer(`example.com. 5 IN TXT "a\"b" "caf\195\169" "\195" "\169"`),
			`"ttl":5,"records":[{"text":"a\"bcaféé","strings":["a\"b","café","\\195","\\169"]}]`},
		"TXT bytes and backslashes": {"TXT", answer(`example.com. 5 IN TXT "\255x" "c:\\dir" "\\195" "\\1" "95"`),
			`"ttl":5,"records":[{"text":"\\255xc:\\dir\\092195\\092195","strings":["\\255x","c:\\dir","\\092195","\\1","95"]}]`},
		"TXT control": {"TXT", answer(`example.com. 5 IN TXT "a\000b\010c\127"`),
			`"ttl":5,"records":[{"text":"a\u0000b\nc` + "\x7f" + `","strings":["a\u0000b\nc` + "\x7f" + `"]}]`},
		"CNAME": {"CNAME", answer("example.com. 60 IN CNAME WWW.Example.NET."),
			`"ttl":60,"records":[{"target":"www.example.net"}]`},
		"CNAME is not followed": {"CNAME", answer("example.com. 60 IN CNAME b.example.net.", "b.example.net. 1 IN CNAME c.example.net."),
			`"ttl":60,"records":[{"target":"b.example.net"}]`},
		"NS": {"NS", answer("example.com. 60 IN NS NS1.example.com.", "example.com. 60 IN NS ."),
			`"ttl":60,"records":[{"target":"ns1.example.com"},{"target":"."}]`},
		"an SOA beside nothing": {"SOA", answer(`example.com. 60 IN SOA NS1.example.com. Host\.Master.example.com. 4294967295 7200 3600 1209600 300`),
			`"ttl":60,"records":[{"mname":"ns1.example.com","rname":"host\\.master.example.com","serial":4294967295,"refresh":7200,"retry":3600,"expire":1209600,"minimum":300}]`},
		"escaped names": {"NS", answer(`example.com. 60 IN NS a\.b\.`, `example.com. 60 IN NS A\\.`, `example.com. 60 IN NS \200\ \".x.`),
			`"ttl":60,"records":[{"target":"a\\.b\\."},{"target":"a\\\\"},{"target":"\\200\\ \\\".x"}]`},
		"NODATA": {"A", answer(), `"ttl":null,"records":[]`},
		"only other types": {"A", answer("example.com. 5 IN AAAA ::1", "example.com. 5 IN TXT x", "example.com. 5 IN RRSIG A 8 2 5 20300101000000 20200101000000 1 example.com. AAAA"),
			`"ttl":null,"records":[]`},
		"other owners": {"A", answer("evil.example.com. 1 IN A 192.0.2.66", "example.com. 9 IN A 192.0.2.1", "com. 1 IN A 192.0.2.66"),
			`"ttl":9,"records":[{"address":"192.0.2.1"}]`},
		"other class": {"A", answer("example.com. 1 CH A 192.0.2.66", "example.com. 9 IN A 192.0.2.1"),
			`"ttl":9,"records":[{"address":"192.0.2.1"}]`},
		"owner in another case": {"A", answer("eXaMpLe.CoM. 9 IN A 192.0.2.1"),
			`"ttl":9,"records":[{"address":"192.0.2.1"}]`},
		"alias": {"A", answer("example.com. 60 IN CNAME A.example.net.", "a.example.NET. 30 IN CNAME b.example.net.", "b.example.net. 90 IN A 192.0.2.1"),
			`"ttl":30,"records":[{"address":"192.0.2.1"}]`},
		"alias out of order": {"A", answer("b.example.net. 90 IN A 192.0.2.1", "a.example.net. 30 IN CNAME b.example.net.", "example.com. 60 IN CNAME a.example.net."),
			`"ttl":30,"records":[{"address":"192.0.2.1"}]`},
		"alias of others": {"A", answer("example.com. 60 IN A 192.0.2.1", "other.example. 1 IN CNAME x.example.", "x.example. 1 IN A 192.0.2.66"),
			`"ttl":60,"records":[{"address":"192.0.2.1"}]`},
		"alias to nothing": {"A", answer("example.com. 60 IN CNAME a.example.net."),
			`"ttl":null,"records":[]`},
		"alias of another class": {"A", answer("example.com. 60 CH CNAME a.example.net.", "a.example.net. 60 IN A 192.0.2.66"),
			`"ttl":null,"records":[]`},
		"two aliases": {"A", answer("example.com. 60 IN CNAME a.example.net.", "example.com. 5 IN CNAME b.example.net.", "b.example.net. 9 IN A 192.0.2.66", "a.example.net. 30 IN A 192.0.2.1"),
			`"ttl":30,"records":[{"address":"192.0.2.1"}]`},
		"alias loop": {"A", answer("example.com. 60 IN CNAME a.example.net.", "a.example.net. 5 IN CNAME example.com.", "a.example.net. 60 IN A 192.0.2.1"),
			`"ttl":5,"records":[{"address":"192.0.2.1"}]`},
		"alias to itself": {"A", answer("example.com. 60 IN CNAME example.com."),
			`"ttl":null,"records":[]`},
		"DNAME": {"A", answer("com. 1 IN DNAME example.net.", "example.com. 60 IN CNAME example.example.net.", "example.example.net. 70 IN A 192.0.2.1"),
			`"ttl":60,"records":[{"address":"192.0.2.1"}]`},
		"TTL with the top bit": {"A", answer("example.com. 2147483648 IN A 192.0.2.1", "example.com. 9 IN A 192.0.2.2"),
			`"ttl":0,"records":[{"address":"192.0.2.1"},{"address":"192.0.2.2"}]`},
		"largest TTL": {"A", answer("example.com. 2147483647 IN A 192.0.2.1"),
			`"ttl":2147483647,"records":[{"address":"192.0.2.1"}]`},
		"16 aliases": {"A", aliases(16), `"ttl":60,"records":[{"address":"192.0.2.1"}]`},
		"17 aliases": {"A", aliases(17), none},
		// A name that a DNAME makes too long is so at every resolver.
		"YXDOMAIN": {"A", both(rcode(miekg.RcodeYXDomain), answer("com. 60 IN DNAME x.example.")),
			`"rcode":"YXDOMAIN","resolver":"127.0.0.1",` + none},
		// An authority section beside an answer, or with an SOA, or none, changes nothing.
		"an address, and servers": {"A", refer(good), `"ttl":60,"records":[{"address":"192.0.2.1"}]`},
		"an address behind an alias, and servers": {"A", refer(alias, "b.example.net. 60 IN A 192.0.2.1"),
			`"ttl":60,"records":[{"address":"192.0.2.1"}]`},
		"the alias asked for, and servers": {"CNAME", refer(alias), `"ttl":60,"records":[{"target":"b.example.net"}]`},
		"the servers asked for": {"NS", refer("example.com. 9 IN NS a.example.com."),
			`"ttl":9,"records":[{"target":"a.example.com"}]`},
		"no records, and SOA":             {"A", sections(nil, soa), none},
		"SOA and servers":                 {"A", sections(nil, "example.com. 60 IN NS a.example.com.", soa), none},
		"SOA and servers behind an alias": {"A", sections([]string{alias}, "example.net. 60 IN NS a.example.net.", soa), none},
		"an empty authority section":      {"A", sections(nil), none},
		"neither SOA nor servers":         {"A", sections(nil, "example.com. 60 IN NSEC b.example.com. TXT"), none},
	}, func(t *testing.T, c row) {
		wantJSON(t, c.typ, c.want, resolver(t, c.reply), dead(t))
	})
}

// aliases lead to an address, one to the next.
func aliases(n int) change {
	records := []string{"example.com. 60 IN CNAME n1.example.net."}
	for i := 1; i < n; i++ {
		records = append(records, fmt.Sprintf("n%d.example.net. 60 IN CNAME n%d.example.net.", i, i+1))
	}
	return answer(append(records, fmt.Sprintf("n%d.example.net. 60 IN A 192.0.2.1", n))...)
}

// TestLookupShortData passes over records with no data or only the first part
// of it, which the parser takes.
func TestLookupShortData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ typ, data string }{
		{"A", ""}, {"AAAA", ""}, {"MX", ""}, {"TXT", ""}, {"CNAME", ""}, {"NS", ""}, {"SOA", ""},
		{"MX", "000a"},
		{"SOA", "00"},
		{"SOA", "0000"},
		{"SOA", "000000000001"},
		{"SOA", "18" + strings.Repeat("61", 24) + "00"},
	} {
		wantJSON(t, c.typ, `"ttl":null,"records":[]`, resolver(t, func(m *miekg.Msg) {
			m.Answer = []miekg.RR{&miekg.RFC3597{Rdata: c.data, Hdr: miekg.RR_Header{
				Name: "example.com.", Rrtype: miekg.StringToType[c.typ], Class: miekg.ClassINET, Ttl: 1,
			}}}
		}))
	}
}

// TestLookupBounds cuts an absurd answer at 1,000 records, and earlier when
// they are long.
func TestLookupBounds(t *testing.T) {
	t.Parallel()
	var many, long []string
	for i := range 3000 {
		many = append(many, fmt.Sprintf("example.com. 60 IN A 10.0.%d.%d", i/256, i%256))
	}
	name := strings.Repeat(strings.Repeat(`\001`, 60)+".", 4)
	for i := range 900 {
		long = append(long, fmt.Sprintf("example.com. 60 IN MX %d %s", i, name))
	}
	for _, c := range []struct {
		typ     string
		answer  []string
		records int
	}{
		{"A", many, 1000},
		{"MX", long, 512 << 10 / (len(name) - 1)},
	} {
		got, err := lookup(t, client(t, server(t, says(truncate), saysOverTCP(answer(c.answer...), compress))), c.typ)
		if err != nil || len(got.Records) != c.records {
			t.Errorf("%s: %d records, %v, want %d", c.typ, len(got.Records), err, c.records)
		}
	}
}

func TestLookupNXDomain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply   change
		message string
	}{
		{answer(), "The domain name does not exist."},
		{answer("example.com. 60 IN CNAME gone.example.net."),
			"The domain name is an alias, and the name it leads to does not exist."},
		{answer("other.example. 60 IN CNAME gone.example.net."), "The domain name does not exist."},
		{authority("com. 60 IN NS a.gtld-servers.net."), "The domain name does not exist."},
	} {
		_, err := lookup(t, client(t, resolver(t, rcode(miekg.RcodeNameError), c.reply), dead(t)), "A")
		if code(err) != fault.NXDomain || fault.From(err).Public() != c.message {
			t.Errorf("%v, want nxdomain: %s", err, c.message)
		}
	}
}

func TestLookupRefusesForeignQueries(t *testing.T) {
	t.Parallel()
	c := client(t, dead(t))
	for _, k := range []struct {
		q    dns.Query
		want fault.Code
	}{
		{dns.Query{Domain: "example.com"}, fault.InvalidType},
		{dns.Query{Domain: "example.com", Type: "mx"}, fault.InvalidType},
		{dns.Query{Domain: "example.com", Type: "ANY"}, fault.InvalidType},
		{dns.Query{Domain: strings.Repeat("a", 64) + ".com", Type: "A"}, fault.InvalidDomain},
		{dns.Query{Domain: "a..b", Type: "A"}, fault.InvalidDomain},
	} {
		if _, err := c.Lookup(t.Context(), k.q); code(err) != k.want {
			t.Errorf("%+v: %v, want %s", k.q, err, k.want)
		}
	}
}

func TestNewPanics(t *testing.T) {
	t.Parallel()
	for _, resolvers := range [][]string{nil, {}, {"1.1.1.1"}, {"one.example:53"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New took the resolvers %q", resolvers)
				}
			}()
			dns.New(dns.Config{Resolvers: resolvers})
		}()
	}
}

// BenchmarkLookup is a whole lookup against a server on loopback.
func BenchmarkLookup(b *testing.B) {
	c := dns.New(dns.Config{Resolvers: []string{resolver(b, answer(good))}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Lookup(b.Context(), query("A")); err != nil {
			b.Fatal(err)
		}
	}
}

// com is what a resolver that works says to a probe.
const com = "com. 172800 IN NS a.gtld-servers.net."

func TestProbe(t *testing.T) {
	t.Parallel()
	asked := make(chan miekg.Question, 1)
	works := resolver(t, answer(com), func(m *miekg.Msg) { asked <- m.Question[0] })
	if err := client(t, dead(t), works).Probe(t.Context()); err != nil {
		t.Errorf("with one resolver up: %v", err)
	}
	if q := <-asked; !strings.EqualFold(q.Name, "com.") || q.Name == "com." || q.Qtype != miekg.TypeNS {
		t.Errorf("asked for %+v", q)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client(t, works).Probe(ctx); code(err) != fault.DNSTimeout {
		t.Errorf("cancelled: %v, want dns_timeout", err)
	}
}

// TestProbeFails: com exists and has name servers. Who says something else
// would be believed about other names, too.
func TestProbeFails(t *testing.T) {
	bad := func(code int) change { return both(rcode(code), answer(com)) }
	origintest.Each(t, map[string]change{
		"SERVFAIL":        rcode(miekg.RcodeServerFailure),
		"SERVFAIL and NS": bad(miekg.RcodeServerFailure),
		"REFUSED":         rcode(miekg.RcodeRefused),
		"NXDOMAIN":        bad(miekg.RcodeNameError),
		"YXDOMAIN":        bad(miekg.RcodeYXDomain),
		"nothing":         answer(),
		"another's":       answer("net. 172800 IN NS a.gtld-servers.net."),
		"another type":    answer("com. 60 IN A 192.0.2.1"),
		"a referral":      sections(nil, ". 518400 IN NS a.root-servers.net."),
	}, func(t *testing.T, h change) {
		if err := client(t, dead(t), resolver(t, h)).Probe(t.Context()); code(err) != fault.UpstreamUnavailable {
			t.Errorf("%v, want upstream_unavailable", err)
		}
	})
}

// TestLowerCasing: with a resolver that does not echo the letter case no
// lookup is answered, and the probe says so, every time, however short the
// name.
func TestLowerCasing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t, map[string]script{first: after(ms, answer(com, "t.co. 60 IN A 192.0.2.1"),
			func(m *miekg.Msg) { m.Question[0].Name = strings.ToLower(m.Question[0].Name) })})
		c := f.client(first)
		for range 64 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := c.Probe(ctx); code(err) != fault.DNSTimeout {
				t.Errorf("probe: %v, want dns_timeout", err)
			}
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			if _, err := c.Lookup(ctx, dns.Query{Domain: "t.co", Type: "A"}); code(err) != fault.DNSTimeout {
				t.Errorf("lookup: %v, want dns_timeout", err)
			}
			cancel()
		}
		f.check()
	})
}
