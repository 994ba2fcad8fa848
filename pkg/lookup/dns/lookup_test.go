package dns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestLookup checks the result or error for each reply of a single resolver.
func TestLookup(t *testing.T) {
	const (
		alias          = "@ 60 IN CNAME b.example.net."
		soa            = "@ 60 IN SOA a. b. 1 2 3 4 5"
		oneRecord      = `"records":[{"address":"192.0.2.1"}]}`
		noRecords      = `"ttl":null,"records":[]}`
		nxdomain       = "nxdomain: The domain name does not exist."
		noUsableAnswer = "upstream_unavailable: " + guard.Unresolved
	)
	proven, unproven := provenNXDomain(), rcode(miekg.RcodeNameError)
	otherSOA := "other.example. 60 IN SOA a. b. 1 2 3 4 5"
	type row struct {
		typ   string
		reply change
		want  string
	}
	rows := map[string]row{
		"A": {typ: "A", reply: answer("@ 300 IN A 192.0.2.1", "@ 200 IN A 192.0.2.2"),
			want: `"ttl":200,"records":[{"address":"192.0.2.1"},{"address":"192.0.2.2"}]}`},
		"AAAA": {typ: "AAAA", reply: answer("@ 5 IN AAAA 2001:DB8:0:0:0::1", "@ 5 IN AAAA ::ffff:192.0.2.1"),
			want: `"ttl":5,"records":[{"address":"2001:db8::1"},{"address":"::ffff:192.0.2.1"}]}`},
		"MX": {typ: "MX", reply: answer("@ 5 IN MX 20 B.Mail.Example.", "@ 5 IN MX 10 a.mail.example."),
			want: `"ttl":5,"records":[{"preference":20,"exchange":"b.mail.example"},{"preference":10,"exchange":"a.mail.example"}]}`},
		"null MX": {typ: "MX", reply: answer("@ 5 IN MX 0 ."), want: `"ttl":5,"records":[{"preference":0,"exchange":"."}]}`},
		"TXT": {typ: "TXT", reply: answer(`@ 5 IN TXT "v=spf1 include:" "_spf.example.com -all"`, `@ 5 IN TXT ""`),
			want: `"ttl":5,"records":[{"text":"v=spf1 include:_spf.example.com -all","strings":["v=spf1 include:","_spf.example.com -all"]},` +
				`{"text":"","strings":[""]}]}`},
		"TXT quotes and UTF-8": {typ: "TXT", reply: answer(`@ 5 IN TXT "a\"b" "caf\195\169" "\195" "\169"`),
			want: `"ttl":5,"records":[{"text":"a\"bcaféé","strings":["a\"b","café","\\195","\\169"]}]}`},
		"TXT bytes and backslashes": {typ: "TXT", reply: answer(`@ 5 IN TXT "\255x" "c:\\dir" "\\195" "\\1" "95"`),
			want: `"ttl":5,"records":[{"text":"\\255xc:\\dir\\092195\\092195","strings":["\\255x","c:\\dir","\\092195","\\1","95"]}]}`},
		"CNAME": {typ: "CNAME", reply: answer("@ 60 IN CNAME WWW.Example.NET."), want: `"ttl":60,"records":[{"target":"www.example.net"}]}`},
		"CNAME is not followed": {typ: "CNAME", reply: answer("@ 60 IN CNAME b.example.net.", "b.example.net. 1 IN CNAME c.example.net."),
			want: `"ttl":60,"records":[{"target":"b.example.net"}]}`},
		"NS": {typ: "NS", reply: answer("@ 60 IN NS NS1.example.com.", "@ 60 IN NS ."),
			want: `"ttl":60,"records":[{"target":"ns1.example.com"},{"target":"."}]}`},
		"an SOA beside nothing": {typ: "SOA", reply: answer(`@ 60 IN SOA NS1.example.com. Host\.Master.example.com. 4294967295 7200 3600 1209600 300`),
			want: `"ttl":60,"records":[{"mname":"ns1.example.com","rname":"host\\.master.example.com","serial":4294967295,` +
				`"refresh":7200,"retry":3600,"expire":1209600,"minimum":300}]}`},
		"escaped names": {typ: "NS", reply: answer(`@ 60 IN NS a\.b\.`, `@ 60 IN NS A\\.`, `@ 60 IN NS a\\\.`, `@ 60 IN NS \200\ \".x.`),
			want: `"ttl":60,"records":[{"target":"a\\.b\\."},{"target":"a\\\\"},{"target":"a\\\\\\."},{"target":"\\200\\ \\\".x"}]}`},
		"only other types": {typ: "A", reply: answer("@ 5 IN AAAA ::1", "@ 5 IN TXT x"), want: noRecords},
		"other owners":     {typ: "A", reply: answer("evil.example.com. 1 IN A 192.0.2.66", "@ 9 IN A 192.0.2.1", "com. 1 IN A 192.0.2.66"), want: `"ttl":9,` + oneRecord},
		"other class":      {typ: "A", reply: answer("@ 1 CH A 192.0.2.66", "@ 9 IN A 192.0.2.1"), want: `"ttl":9,` + oneRecord},
		"alias": {typ: "A", reply: answer("@ 60 IN CNAME A.example.net.", "a.example.NET. 30 IN CNAME b.example.net.", "b.example.net. 90 IN A 192.0.2.1"),
			want: `"ttl":30,` + oneRecord},
		"alias out of order": {typ: "A", reply: answer("b.example. 90 IN A 192.0.2.1", "a.example. 30 IN CNAME b.example.", "@ 60 IN CNAME a.example."),
			want: `"ttl":30,` + oneRecord},
		"alias of others": {typ: "A", reply: answer("@ 60 IN A 192.0.2.1", "other.example. 1 IN CNAME x.example.", "x.example. 1 IN A 192.0.2.66"),
			want: `"ttl":60,` + oneRecord},
		"alias of another class": {typ: "A", reply: answer("@ 60 CH CNAME a.example.net.", "a.example.net. 60 IN A 192.0.2.66"), want: noRecords},
		"two aliases": {typ: "A", reply: answer("@ 60 IN CNAME a.example.", "@ 5 IN CNAME b.", "b. 9 IN A 192.0.2.66", "a.example. 30 IN A 192.0.2.1"),
			want: `"ttl":30,` + oneRecord},
		"alias to itself": {typ: "A", reply: answer("@ 60 IN CNAME example.com."), want: noRecords},
		"DNAME": {typ: "A", reply: answer("com. 1 IN DNAME example.net.", "@ 60 IN CNAME example.example.net.", "example.example.net. 70 IN A 192.0.2.1"),
			want: `"ttl":60,` + oneRecord},
		"TTL with the top bit": {typ: "A", reply: answer("@ 2147483648 IN A 192.0.2.1", "eXaMpLe.CoM. 9 IN A 192.0.2.2"),
			want: `"ttl":0,"records":[{"address":"192.0.2.1"},{"address":"192.0.2.2"}]}`},
		"17 aliases, as dig shows them": {typ: "A", reply: aliases(17), want: `"ttl":60,` + oneRecord},
		"40 aliases, as dig shows them": {typ: "A", reply: aliases(40), want: `"ttl":60,` + oneRecord},
		"aliases that lead back":        {typ: "A", reply: answer("@ 60 IN CNAME a.example.", "a.example. 60 IN CNAME b.example.", "b.example. 60 IN CNAME example.com."), want: noRecords},
		// A DNAME makes this name too long at every resolver, so no other resolver is queried.
		"YXDOMAIN": {typ: "A", reply: combine(rcode(miekg.RcodeYXDomain), answer("com. 60 IN DNAME x.example.")),
			want: `{"domain":"example.com","type":"A","rcode":"YXDOMAIN","resolver":"1.1.1.1",` + noRecords},
		// An authority section does not change an answer. A reply without an answer is not a
		// referral if its authority section is empty or has an SOA.
		"an address, and servers":          {typ: "A", reply: referral(goodRecord), want: `"ttl":60,` + oneRecord},
		"the alias asked for, and servers": {typ: "CNAME", reply: referral(alias), want: `"ttl":60,"records":[{"target":"b.example.net"}]}`},
		"the servers asked for":            {typ: "NS", reply: referral("@ 9 IN NS a.example.com."), want: `"ttl":9,"records":[{"target":"a.example.com"}]}`},
		"SOA and servers":                  {typ: "A", reply: sections(nil, "@ 60 IN NS a.example.com.", soa), want: noRecords},
		"SOA and servers behind an alias":  {typ: "A", reply: sections([]string{alias}, "example.net. 60 IN NS a.example.net.", soa), want: noRecords},
		"neither SOA nor servers":          {typ: "A", reply: sections(nil, "@ 60 IN NSEC b.example.com. TXT"), want: noRecords},
		"no such name":                     {typ: "A", reply: proven, want: nxdomain},
		"no such name, other aliases":      {typ: "A", reply: combine(proven, answer("other.example. 60 IN CNAME gone.example.net.")), want: nxdomain},
		"no such name behind an alias": {typ: "A", reply: combine(unproven, answer(alias), authority("NET. 60 IN SOA a. b. 1 2 3 4 5")),
			want: "nxdomain: The domain name is an alias, and the name it leads to does not exist."},
		"no such name, by the root":  {typ: "A", reply: combine(unproven, authority("com. 60 IN NS a.", ". 60 IN SOA a. b. 1 2 3 4 5")), want: noUsableAnswer},
		"no such name, and two SOAs": {typ: "A", reply: combine(unproven, authority(otherSOA, "com. 60 IN SOA a. b. 1 2 3 4 5")), want: noUsableAnswer},
		"no such name, and no proof": {typ: "A", reply: unproven, want: noUsableAnswer},
		"no such name, and servers":  {typ: "A", reply: combine(unproven, authority("com. 60 IN NS a.gtld-servers.net.")), want: noUsableAnswer},
		"no such name, its own SOA":  {typ: "A", reply: combine(unproven, authority(soa)), want: noUsableAnswer},
		"no such target, the alias asked for": {typ: "CNAME", reply: combine(unproven, answer(alias)),
			want: `{"domain":"example.com","type":"CNAME","rcode":"NXDOMAIN","resolver":"1.1.1.1","ttl":60,"records":[{"target":"b.example.net"}]}`},
		"no such name, and its address":    {typ: "A", reply: combine(unproven, answer(goodRecord)), want: noUsableAnswer},
		"no such name, the SOA of another": {typ: "A", reply: combine(unproven, answer(alias), authority(otherSOA)), want: noUsableAnswer},
		"no such name, the SOA beside it":  {typ: "A", reply: combine(unproven, func(m *miekg.Msg) { m.Extra = parse([]string{soa}) }), want: noUsableAnswer},
	}
	for _, data := range []string{
		"A", "AAAA", "MX", "TXT", "CNAME", "NS", "SOA", "MX 000a", "SOA 00", "SOA 0000", "SOA 000000000001", "SOA 18" + strings.Repeat("61", 24) + "00",
	} {
		typ, hex, _ := strings.Cut(data, " ")
		rows["short "+data] = row{typ, short(typ, hex), noRecords}
	}
	eachInBubble(t, rows, func(t *testing.T, c row) {
		if got := resultText(newWorld(t, withCom(resolver(c.reply)), host{}).lookup(c.typ)); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	})
}

// aliases returns an answer with a chain of n aliases and the address of the last one.
func aliases(n int) change {
	records := []string{"@ 60 IN CNAME n1.example.net."}
	for i := 1; i < n; i++ {
		records = append(records, fmt.Sprintf("n%d.example.net. 60 IN CNAME n%d.example.net.", i, i+1))
	}
	return answer(append(records, fmt.Sprintf("n%d.example.net. 60 IN A 192.0.2.1", n))...)
}

// short returns a reply with a record that has no data, or only the beginning of its data. The
// parser accepts such a record.
func short(typ, data string) change {
	return func(m *miekg.Msg) {
		h := miekg.RR_Header{Name: "example.com.", Rrtype: miekg.StringToType[typ], Class: miekg.ClassINET, Ttl: 1}
		m.Answer = []miekg.RR{&miekg.RFC3597{Rdata: data, Hdr: h}}
	}
}

// TestBounds checks that a result has at most 1,000 records, and fewer if they are long.
// Addresses must return all addresses, because its caller has to check every address.
func TestBounds(t *testing.T) {
	t.Parallel()
	var many, long []string
	for i := range 3000 {
		many = append(many, fmt.Sprintf("@ 60 IN A 10.0.%d.%d", i/256, i%256))
	}
	name := strings.Repeat(strings.Repeat(`\001`, 60)+".", 4)
	for i := range 900 {
		long = append(long, fmt.Sprintf("@ 60 IN MX %d %s", i, name))
	}
	for typ, c := range map[string]struct {
		answer             []string
		records, addresses int
	}{"A": {answer: many, records: 1000, addresses: 3000}, "MX": {answer: long, records: 512 << 10 / (len(name) - 1), addresses: 0}} {
		t.Run(typ, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, host{replyAfter(0, truncate), frameForTCP(replyAfter(0, answer(c.answer...), compress))})
				got, err := w.lookup(typ)
				if err != nil || len(got.Records) != c.records {
					t.Errorf("%s: %d records, %v, want %d", typ, len(got.Records), err, c.records)
				}
				if addrs, err := w.client().Addresses(t.Context(), "example.com"); len(addrs) != c.addresses {
					t.Errorf("%s: %d addresses, %v, want %d", typ, len(addrs), err, c.addresses)
				}
			})
		})
	}
}

// TestProbe checks Probe. com exists and has name servers. A resolver that denies this, or
// that does not keep the letter case of the question, must make Probe fail, because it cannot
// be trusted about other names.
func TestProbe(t *testing.T) {
	const com = "com. 172800 IN NS a.gtld-servers.net."
	bad := func(code int) change { return combine(rcode(code), answer(com)) }
	type row struct {
		says change
		want fault.Code
	}
	eachInBubble(t, map[string]row{
		"com":              {says: answer(com), want: ""},
		"SERVFAIL and NS":  {says: bad(miekg.RcodeServerFailure), want: lookup.UpstreamUnavailable},
		"NXDOMAIN, proven": {says: combine(bad(miekg.RcodeNameError), authority(". 60 IN SOA a. b. 1 2 3 4 5")), want: lookup.UpstreamUnavailable},
		"NXDOMAIN":         {says: bad(miekg.RcodeNameError), want: lookup.UpstreamUnavailable},
		"nothing":          {says: answer(), want: lookup.UpstreamUnavailable},
		"another's":        {says: answer("net. 172800 IN NS a.gtld-servers.net."), want: lookup.UpstreamUnavailable},
		"lower case":       {says: combine(answer(com), func(m *miekg.Msg) { m.Question[0].Name = "com." }), want: lookup.DNSTimeout},
	}, func(t *testing.T, c row) {
		w := newWorld(t, host{}, host{udp: replyAfter(ms, c.says)})
		for range 64 { // many times: if a random spelling could be all lower case, Probe would sometimes trust the resolver of the last case
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := w.client().Probe(ctx); testbed.Code(err) != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
			cancel()
		}
		if asked := w.takeQuestions(); asked[0] != "com. NS" {
			t.Errorf("asked %v", asked)
		}
		w.wantDials()
	})
}

// TestParseResolvers checks the resolvers that ParseResolvers returns, or parts of its error.
func TestParseResolvers(t *testing.T) {
	t.Parallel()
	for csv, want := range map[string]string{
		" 1.1.1.1:5353 ,\t8.8.8.8":          "1.1.1.1:5353 8.8.8.8:53",
		"[2620:FE:0::10]":                   "[2620:fe::10]:53",
		"[2606:4700:4700::1111]:54,::1":     "[2606:4700:4700::1111]:54 [::1]:53",
		"[fe80::1%eth0]:53":                 "[fe80::1%eth0]:53",
		"[::ffff:127.0.0.1]:9,1.1.1.1:053":  "127.0.0.1:9 1.1.1.1:53",
		"127.0.0.1:1,127.0.0.1:2,127.0.0.1": "127.0.0.1:1 127.0.0.1:2 127.0.0.1:53",
		"":                                  `entry 1: "" is not the ip or ip:port of a host`,
		"1.1.1.1,":                          `entry 2: "" is not`,
		"1.1.1.1:x,8.8.8.8,9.9.9":           `entry 1: "1.1.1.1:x" is not … entry 3: "9.9.9"`,
		"1.1.1.1:0":                         `entry 1: "1.1.1.1:0" is not`,
		"1.1.1.1:65536":                     `entry 1: "1.1.1.1:65536" is not`,
		"[1.1.1.1]":                         `entry 1: "[1.1.1.1]" is not`,
		"1.1.1.1,1.1.1.1:53":                "entry 2: 1.1.1.1:53 is listed twice",
		"0.0.0.0,[::]:53,224.0.0.1":         "entry 1: … entry 2: … entry 3:",
		"::1]":                              "entry 1:",
	} {
		t.Run(csv, func(t *testing.T) {
			got, err := dns.ParseResolvers(csv)
			if err == nil {
				dns.New(dns.Config{Resolvers: got}) // New must accept the result
				if s := strings.Join(got, " "); s != want {
					t.Errorf("%s, want %s", s, want)
				}
				return
			}
			for part := range strings.SplitSeq(want, " … ") {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, want one line with %q", err, part)
				}
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	const a, aaaa = "@ 60 IN A 93.184.216.34", "@ 60 IN AAAA 2606:4700::1"
	servfail, nx, refused := rcode(miekg.RcodeServerFailure), provenNXDomain(), rcode(miekg.RcodeRefused)
	yx := combine(rcode(miekg.RcodeYXDomain), answer("com. 60 IN DNAME x.example."))
	none, referred, bare := answer(), referral(), rcode(miekg.RcodeNameError)
	type row struct {
		v4, v6 change
		want   string
		code   fault.Code
		is     error
		says   string
	}
	eachInBubble(t, map[string]row{
		"both":                         {v4: answer(a, "@ 60 IN A 10.0.0.1"), v6: answer(aaaa), want: "93.184.216.34 10.0.0.1 2606:4700::1"},
		"mapped stays mapped":          {v4: answer(a), v6: answer("@ 60 IN AAAA ::ffff:10.0.0.1"), want: "93.184.216.34 ::ffff:10.0.0.1"},
		"IPv4 only":                    {v4: answer(a), v6: none, want: "93.184.216.34"},
		"IPv6 only":                    {v4: none, v6: answer(aaaa), want: "2606:4700::1"},
		"IPv6 fails beside IPv4":       {v4: answer(a), v6: servfail, want: "93.184.216.34"},
		"IPv6 is denied beside IPv4":   {v4: answer(a), v6: nx, want: "93.184.216.34"},
		"IPv6 is referred beside IPv4": {v4: answer(a), v6: referred, want: "93.184.216.34"},
		"IPv4 fails beside IPv6":       {v4: servfail, v6: answer(aaaa), want: "2606:4700::1"},
		"alias": {v4: answer("@ 60 IN CNAME b.test.", "b.test. 60 IN A 93.184.216.34", "c.test. 60 IN A 8.8.8.8"), v6: none,
			want: "93.184.216.34"},
		"nxdomain":                 {v4: nx, v6: nx, code: lookup.NXDomain},
		"nxdomain behind an alias": {v4: combine(rcode(miekg.RcodeNameError), answer("@ 60 IN CNAME b.test."), authority("test. 60 IN SOA a. b. 1 2 3 4 5")), v6: nx, code: lookup.NXDomain, says: "alias"},
		"nxdomain, SERVFAIL":       {v4: servfail, v6: nx, code: lookup.NXDomain},
		"nxdomain, silence":        {v4: refused, v6: nx, code: lookup.NXDomain},
		"nxdomain, unproven":       {v4: bare, v6: bare, is: guard.ErrResolvers},
		"no data, unproven":        {v4: none, v6: bare, is: guard.ErrResolvers},
		"IPv6 only, as curl sees":  {v4: nx, v6: answer(aaaa), want: "2606:4700::1"},
		"no data, IPv4 denied":     {v4: nx, v6: none, code: lookup.ConnectFailed, says: "without A and AAAA"},
		"nxdomain, IPv6 silent":    {v4: nx, v6: refused, code: lookup.NXDomain},
		"IPv6 only, unproven":      {v4: bare, v6: answer(aaaa), want: "2606:4700::1"},
		"yxdomain":                 {v4: yx, v6: yx, code: lookup.ConnectFailed, says: "YXDOMAIN"},
		"no data":                  {v4: none, v6: none, code: lookup.ConnectFailed, says: "without A and AAAA"},
		"no data, false nxdomain":  {v4: none, v6: nx, code: lookup.ConnectFailed, says: "without A and AAAA"},
		"SERVFAIL":                 {v4: servfail, v6: servfail, code: lookup.ConnectFailed, says: "SERVFAIL"},
		"no data, SERVFAIL":        {v4: none, v6: servfail, code: lookup.ConnectFailed, says: "SERVFAIL"},
		"SERVFAIL, refused":        {v4: servfail, v6: refused, code: lookup.ConnectFailed, says: "SERVFAIL"},
		"refused":                  {v4: refused, v6: refused, is: guard.ErrResolvers},
		"referred":                 {v4: referred, v6: referred, is: guard.ErrResolvers},
		"no data, refused":         {v4: none, v6: refused, is: guard.ErrResolvers},
	}, func(t *testing.T, c row) {
		got, err := newWorld(t, withCom(resolver(byFamily(c.v4, c.v6)))).client().Addresses(t.Context(), "example.com")
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

// TestAddressesTime checks what Addresses returns, and after how long. Addresses must return
// when both address families have answered, but at the latest 50 ms after the IPv4 addresses,
// and before its deadline.
func TestAddressesTime(t *testing.T) {
	const noReply = time.Hour
	type row struct {
		v4, v6   time.Duration
		want     string
		wantTime time.Duration
	}
	eachInBubble(t, map[string]row{
		"IPv6 before IPv4":     {v4: 300 * ms, v6: 100 * ms, want: "93.184.216.34 2606:4700::1", wantTime: 300 * ms},
		"IPv6 in its grace":    {v4: 100 * ms, v6: 140 * ms, want: "93.184.216.34 2606:4700::1", wantTime: 140 * ms},
		"IPv6 after its grace": {v4: 100 * ms, v6: 200 * ms, want: "93.184.216.34", wantTime: 150 * ms},
		"IPv6 never":           {v4: 100 * ms, v6: noReply, want: "93.184.216.34", wantTime: 150 * ms},
		"IPv4 never":           {v4: noReply, v6: 100 * ms, want: "2606:4700::1", wantTime: 3950 * ms},
		"never":                {v4: noReply, v6: noReply, want: "", wantTime: 3950 * ms},
	}, func(t *testing.T, c row) {
		w := newWorld(t, host{udp: eachFamily(c.v4, c.v6)})
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		got, err := w.client().Addresses(ctx, "example.com")
		w.wantElapsed(c.wantTime)
		if text := strings.Trim(fmt.Sprint(got), "[]"); text != c.want {
			t.Errorf("%s, %v; want %s", text, err, c.want)
		}
		if c.want == "" && !errors.Is(err, guard.ErrResolvers) {
			t.Errorf("%v, want ErrResolvers", err)
		}
	})
}

// eachFamily returns the script of a resolver that answers for IPv4 after the time v4 and for
// IPv6 after the time v6.
func eachFamily(v4, v6 time.Duration) script {
	return func(n int, q []byte) []message {
		if unpackQuery(q).Question[0].Qtype == miekg.TypeAAAA {
			return replyAfter(v6, answer("@ 60 IN AAAA 2606:4700::1"))(n, q)
		}
		return replyAfter(v4, answer("@ 60 IN A 93.184.216.34"))(n, q)
	}
}
