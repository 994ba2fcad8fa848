package e2e

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// zoneText is what the resolver knows. The first record is the SOA of negative
// answers. Addresses are those of RFC 5737 and RFC 3849.
const zoneText = `
$ORIGIN example.com.
$TTL 3600
@            SOA   ns1.Example.com. hostmaster.example.com. 2026110501 7200 900 1209600 300
@            NS    ns1.example.com.
@            NS    NS2.Example.NET.
@       300  A     192.0.2.1
@       300  MX    10 mx1.example.com.
@       300  MX    20 MX2.example.com.
www     300  A     192.0.2.10
www     120  A     192.0.2.11
www     600  AAAA  2001:db8:0:0::10
nomail       MX    0 .
internal  60 A     10.0.0.1
txt     60   TXT   "v=spf1 include:_spf.example.net " "-all"
txt     90   TXT   "<script>alert(1)</script> \"quoted\" back\\slash"
binary       TXT   "\255\254\000tail" "caf\195\169" "half\195" "\169whole"
_dmarc       TXT   "v=DMARC1; p=reject"
shop    300  CNAME cdn.example.net.
cdn.example.net.   60  CNAME Edge.Example.ORG.
edge.example.org. 900  A     198.51.100.7
dangling 300 CNAME gone.example.net.
alias   300  CNAME www.example.com.
xn--bcher-kva 300 A 192.0.2.20
wide         MX    5 mail.example.com.
com. 172800 IN NS   a.gtld-servers.net.
`

// bigTXT does not fit into a datagram: 20 strings of 200 bytes.
func bigTXT() []string {
	list := make([]string, 20)
	for i := range list {
		list[i] = strings.Repeat(string(rune('a'+i)), 200)
	}
	return list
}

func readZone(tb testing.TB) testbed.Zone {
	tb.Helper()
	zone := testbed.ReadZone(tb, zoneText)
	zone.Records["big.example.com."] = []dns.RR{&dns.TXT{
		Hdr: dns.RR_Header{Name: "big.example.com.", Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60},
		Txt: bigTXT(),
	}}
	return zone
}
