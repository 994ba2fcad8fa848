package dns_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// want is a result's JSON after the resolver; every field of spec §2.1 is
// compared byte by byte.
func wantJSON(t *testing.T, typ string, got dns.Result, want string) {
	t.Helper()
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want = `{"domain":"example.com","type":"` + typ + `",` + want + `}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

func TestLookupRecords(t *testing.T) {
	t.Parallel()
	const head = `"rcode":"NOERROR","resolver":"127.0.0.1",`
	for _, c := range []struct {
		name, typ string
		answer    []string
		want      string
	}{
		{"A", "A", []string{"example.com. 300 IN A 192.0.2.1", "example.com. 200 IN A 192.0.2.2"},
			`"ttl":200,"records":[{"address":"192.0.2.1"},{"address":"192.0.2.2"}]`},
		{"private A", "A", []string{"example.com. 0 IN A 10.0.0.1"},
			`"ttl":0,"records":[{"address":"10.0.0.1"}]`},
		{"AAAA", "AAAA", []string{"example.com. 5 IN AAAA 2001:DB8:0:0:0::1", "example.com. 5 IN AAAA ::ffff:192.0.2.1"},
			`"ttl":5,"records":[{"address":"2001:db8::1"},{"address":"::ffff:192.0.2.1"}]`},
		{"MX", "MX", []string{"example.com. 5 IN MX 20 B.Mail.Example.", "example.com. 5 IN MX 10 a.mail.example."},
			`"ttl":5,"records":[{"preference":20,"exchange":"b.mail.example"},{"preference":10,"exchange":"a.mail.example"}]`},
		{"null MX", "MX", []string{"example.com. 5 IN MX 0 ."},
			`"ttl":5,"records":[{"preference":0,"exchange":"."}]`},
		{"TXT", "TXT", []string{`example.com. 5 IN TXT "v=spf1 include:" "_spf.example.com -all"`, `example.com. 5 IN TXT ""`},
			`"ttl":5,"records":[{"text":"v=spf1 include:_spf.example.com -all","strings":["v=spf1 include:","_spf.example.com -all"]},{"text":"","strings":[""]}]`},
		{"TXT quotes and UTF-8", "TXT", []string{`example.com. 5 IN TXT "a\"b" "caf\195\169" "\195" "\169"`},
			`"ttl":5,"records":[{"text":"a\"bcaféé","strings":["a\"b","café","\\195","\\169"]}]`},
		{"TXT bytes and backslashes", "TXT", []string{`example.com. 5 IN TXT "\255x" "c:\\dir" "\\195" "\\1" "95"`},
			`"ttl":5,"records":[{"text":"\\255xc:\\dir\\092195\\092195","strings":["\\255x","c:\\dir","\\092195","\\1","95"]}]`},
		{"TXT control", "TXT", []string{`example.com. 5 IN TXT "a\000b\010c\127"`},
			`"ttl":5,"records":[{"text":"a\u0000b\nc` + "\x7f" + `","strings":["a\u0000b\nc` + "\x7f" + `"]}]`},
		{"CNAME", "CNAME", []string{"example.com. 60 IN CNAME WWW.Example.NET."},
			`"ttl":60,"records":[{"target":"www.example.net"}]`},
		{"CNAME is not followed", "CNAME", []string{"example.com. 60 IN CNAME b.example.net.", "b.example.net. 1 IN CNAME c.example.net."},
			`"ttl":60,"records":[{"target":"b.example.net"}]`},
		{"NS", "NS", []string{"example.com. 60 IN NS NS1.example.com.", "example.com. 60 IN NS ."},
			`"ttl":60,"records":[{"target":"ns1.example.com"},{"target":"."}]`},
		{"SOA", "SOA", []string{`example.com. 60 IN SOA NS1.example.com. Host\.Master.example.com. 4294967295 7200 3600 1209600 300`},
			`"ttl":60,"records":[{"mname":"ns1.example.com","rname":"host\\.master.example.com","serial":4294967295,"refresh":7200,"retry":3600,"expire":1209600,"minimum":300}]`},
		{"escaped names", "NS", []string{`example.com. 60 IN NS a\.b\.`, `example.com. 60 IN NS A\\.`, `example.com. 60 IN NS \200\ \".x.`},
			`"ttl":60,"records":[{"target":"a\\.b\\."},{"target":"a\\\\"},{"target":"\\200\\ \\\".x"}]`},
		{"NODATA", "A", nil, `"ttl":null,"records":[]`},
		{"only other types", "A", []string{"example.com. 5 IN AAAA ::1", "example.com. 5 IN TXT x", "example.com. 5 IN RRSIG A 8 2 5 20300101000000 20200101000000 1 example.com. AAAA"},
			`"ttl":null,"records":[]`},
		{"other owners", "A", []string{"evil.example.com. 1 IN A 192.0.2.66", "example.com. 9 IN A 192.0.2.1", "com. 1 IN A 192.0.2.66"},
			`"ttl":9,"records":[{"address":"192.0.2.1"}]`},
		{"other class", "A", []string{"example.com. 1 CH A 192.0.2.66", "example.com. 9 IN A 192.0.2.1"},
			`"ttl":9,"records":[{"address":"192.0.2.1"}]`},
		{"owner in another case", "A", []string{"eXaMpLe.CoM. 9 IN A 192.0.2.1"},
			`"ttl":9,"records":[{"address":"192.0.2.1"}]`},
		{"alias", "A", []string{"example.com. 60 IN CNAME A.example.net.", "a.example.NET. 30 IN CNAME b.example.net.", "b.example.net. 90 IN A 192.0.2.1"},
			`"ttl":30,"records":[{"address":"192.0.2.1"}]`},
		{"alias out of order", "A", []string{"b.example.net. 90 IN A 192.0.2.1", "a.example.net. 30 IN CNAME b.example.net.", "example.com. 60 IN CNAME a.example.net."},
			`"ttl":30,"records":[{"address":"192.0.2.1"}]`},
		{"alias of others", "A", []string{"example.com. 60 IN A 192.0.2.1", "other.example. 1 IN CNAME x.example.", "x.example. 1 IN A 192.0.2.66"},
			`"ttl":60,"records":[{"address":"192.0.2.1"}]`},
		{"alias to nothing", "A", []string{"example.com. 60 IN CNAME a.example.net."},
			`"ttl":null,"records":[]`},
		{"alias of another class", "A", []string{"example.com. 60 CH CNAME a.example.net.", "a.example.net. 60 IN A 192.0.2.66"},
			`"ttl":null,"records":[]`},
		{"two aliases", "A", []string{"example.com. 60 IN CNAME a.example.net.", "example.com. 5 IN CNAME b.example.net.", "b.example.net. 9 IN A 192.0.2.66", "a.example.net. 30 IN A 192.0.2.1"},
			`"ttl":30,"records":[{"address":"192.0.2.1"}]`},
		{"alias loop", "A", []string{"example.com. 60 IN CNAME a.example.net.", "a.example.net. 5 IN CNAME example.com.", "a.example.net. 60 IN A 192.0.2.1"},
			`"ttl":5,"records":[{"address":"192.0.2.1"}]`},
		{"alias to itself", "A", []string{"example.com. 60 IN CNAME example.com."},
			`"ttl":null,"records":[]`},
		{"DNAME", "A", []string{"com. 1 IN DNAME example.net.", "example.com. 60 IN CNAME example.example.net.", "example.example.net. 70 IN A 192.0.2.1"},
			`"ttl":60,"records":[{"address":"192.0.2.1"}]`},
		{"TTL with the top bit", "A", []string{"example.com. 2147483648 IN A 192.0.2.1", "example.com. 9 IN A 192.0.2.2"},
			`"ttl":0,"records":[{"address":"192.0.2.1"},{"address":"192.0.2.2"}]`},
		{"largest TTL", "A", []string{"example.com. 2147483647 IN A 192.0.2.1"},
			`"ttl":2147483647,"records":[{"address":"192.0.2.1"}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := lookup(t, client(t, resolver(t, answer(t, c.answer...))), c.typ)
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, c.typ, got, head+c.want)
		})
	}
}

// TestLookupLongChain follows 16 aliases and not 17.
func TestLookupLongChain(t *testing.T) {
	t.Parallel()
	for aliases, n := range map[int]int{16: 1, 17: 0} {
		rrs := []string{"example.com. 60 IN CNAME n1.example.net."}
		for i := 1; i < aliases; i++ {
			rrs = append(rrs, fmt.Sprintf("n%d.example.net. 60 IN CNAME n%d.example.net.", i, i+1))
		}
		rrs = append(rrs, fmt.Sprintf("n%d.example.net. 60 IN A 192.0.2.1", aliases))
		got, err := lookup(t, client(t, resolver(t, answer(t, rrs...))), "A")
		if err != nil || len(got.Records) != n {
			t.Errorf("%d aliases: %+v, %v, want %d records", aliases, got, err, n)
		}
	}
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
		server := raw(t, func(q []byte) [][]byte {
			return [][]byte{reply(t, q, func(m *miekg.Msg) {
				m.Answer = []miekg.RR{&miekg.RFC3597{Rdata: c.data, Hdr: miekg.RR_Header{
					Name: "example.com.", Rrtype: miekg.StringToType[c.typ], Class: miekg.ClassINET, Ttl: 1,
				}}}
			})}
		}, nil)
		got, err := lookup(t, client(t, server), c.typ)
		if err != nil {
			t.Errorf("%s %s: %v", c.typ, c.data, err)
			continue
		}
		wantJSON(t, c.typ, got, `"rcode":"NOERROR","resolver":"127.0.0.1","ttl":null,"records":[]`)
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
		h := func(w miekg.ResponseWriter, q *miekg.Msg) {
			m := new(miekg.Msg).SetReply(q)
			m.Truncated = w.LocalAddr().Network() == "udp"
			if m.Compress = true; !m.Truncated {
				m.Answer = parse(t, c.answer...)
			}
			w.WriteMsg(m)
		}
		got, err := lookup(t, client(t, resolver(t, h)), c.typ)
		if err != nil || len(got.Records) != c.records {
			t.Errorf("%s: %d records, %v, want %d", c.typ, len(got.Records), err, c.records)
		}
	}
}

func TestLookupNXDomain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer  []string
		message string
	}{
		{nil, "The domain name does not exist."},
		{[]string{"example.com. 60 IN CNAME gone.example.net."}, "The domain name is an alias, and the name it leads to does not exist."},
		{[]string{"other.example. 60 IN CNAME gone.example.net."}, "The domain name does not exist."},
	} {
		_, err := lookup(t, client(t, resolver(t, rcode(t, miekg.RcodeNameError, c.answer...)), dead(t)), "A")
		if code(err) != fault.NXDomain || fault.From(err).Public() != c.message {
			t.Errorf("%v: %v, want nxdomain: %s", c.answer, err, c.message)
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
	c := dns.New(dns.Config{Resolvers: []string{resolver(b, answer(b, good))}})
	q := dns.Query{Domain: "example.com", Type: "A"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Lookup(b.Context(), q); err != nil {
			b.Fatal(err)
		}
	}
}

// com is what a resolver that works says to a probe.
const com = "com. 172800 IN NS a.gtld-servers.net."

func TestProbe(t *testing.T) {
	t.Parallel()
	asked := make(chan miekg.Question, 1)
	records := parse(t, com)
	works := resolver(t, func(w miekg.ResponseWriter, q *miekg.Msg) {
		asked <- q.Question[0]
		m := new(miekg.Msg).SetReply(q)
		m.Answer = records
		w.WriteMsg(m)
	})
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
	t.Parallel()
	for name, h := range map[string]miekg.HandlerFunc{
		"SERVFAIL":        rcode(t, miekg.RcodeServerFailure),
		"SERVFAIL and NS": rcode(t, miekg.RcodeServerFailure, com),
		"REFUSED":         rcode(t, miekg.RcodeRefused),
		"NXDOMAIN":        rcode(t, miekg.RcodeNameError, com),
		"YXDOMAIN":        rcode(t, miekg.RcodeYXDomain, com),
		"nothing":         answer(t),
		"another's":       answer(t, "net. 172800 IN NS a.gtld-servers.net."),
		"another type":    answer(t, "com. 60 IN A 192.0.2.1"),
		"a referral":      sections(t, nil, ". 518400 IN NS a.root-servers.net."),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := client(t, dead(t), resolver(t, h)).Probe(t.Context()); code(err) != fault.UpstreamUnavailable {
				t.Errorf("%v, want upstream_unavailable", err)
			}
		})
	}
}

// TestLowerCasing: with a resolver that does not echo the letter case no
// lookup is answered, and the probe says so, every time, however short the
// name.
func TestLowerCasing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNet{t: t, begin: time.Now(), scripts: map[string]script{"1.1.1.1:53": func(_ int, q []byte) (time.Duration, []byte) {
			return ms, reply(t, q, func(m *miekg.Msg) { m.Question[0].Name = strings.ToLower(m.Question[0].Name) }, com, "t.co. 60 IN A 192.0.2.1")
		}}}
		c := dns.New(dns.Config{Resolvers: []string{"1.1.1.1:53"}, Dial: f.dial})
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
		f.check(nil)
	})
}
