package guard_test

import (
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/guard"
)

// hostile are values that no grammar takes, by class.
func hostile() map[string][]string {
	long := func(n int) string { return strings.Repeat("a", n) }
	return map[string][]string{
		"empty": {"", " ", ".", "..", "...", "\t", "\u3002", "\u200b", "\u00ad", "\ufeff", "。。"},
		"single label": {"com", "localhost", "LOCALHOST", "localhost.", "intranet", "router", "metadata", "instance-data",
			"kubernetes", "wpad", "a", "xn--p1ai", "рф", "com.", "com。", "ip6-localhost", "broadcasthost", "host-01"},
		"IPv4": {"127.0.0.1", "0.0.0.0", "10.0.0.1", "169.254.169.254", "169.254.170.2", "168.63.129.16", "192.168.0.1",
			"172.16.0.1", "100.100.100.200", "255.255.255.255", "8.8.8.8", "1.1.1.1", "127.0.0.1.", "224.0.0.1"},
		"IPv4 in other notations": {"127.1", "127.0.1", "0", "1", "0x0", "0x7f000001", "0X7F000001", "2130706433", "017700000001",
			"0177.0.0.1", "0177.0.0.01", "0x7f.0.0.1", "0x7f.0x0.0x0.0x1", "0x7f.1", "192.168.257", "192.168.1.256", "1.2.3.4.5",
			"1.2.3", "00127.0.0.1", "127.000.000.001", "127.0.0.0x1", "127.0.0.0x", "0x.0x", "example.0x7f", "example.1",
			"99999999999999999999", "foo.0", "foo.09", "3232235777", "3232235777.", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe",
			"425.510.425.510", "a.b.c.1", "1e3.0", "0000000000.0", "-1.0.0.1", "127.0.0.1.0x", "1.2.3.4.0XaB", "0o177.0.0.1"},
		"IPv4 in Unicode": {"１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "127.0.0.1\u200b",
			"127.0.0.\u00ad1", "１６９．２５４．１６９．２５４", "0ｘ7f.1", "𝟏𝟐𝟕.0.0.1", "₁₂₇.0.0.1", "¹²⁷.0.0.1", "127.0.0.１",
			"२१३", "١٢٧.٠.٠.١", "1\u20607.0.0.1", "127.0.0.1。", "⑴27.0.0.1"},
		"IPv6": {"::", "::1", "[::1]", "[::]", "[::1]:443", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]", "::ffff:7f00:1", "fe80::1",
			"fe80::1%eth0", "[fe80::1%25eth0]", "fd00:ec2::254", "2001:db8::1", "0:0:0:0:0:0:0:1", "64:ff9b::7f00:1", "::127.0.0.1",
			"2002:7f00:1::", "[::1", "::1]", "[]", "[", "]", "1::2::3", "[v1.fe]", "：：1", "2606:4700:4700::1111",
			"0000:0000:0000:0000:0000:0000:0000:0001", "--1.ip6.arpa"},
		"port":   {"example.com:443", "example.com:", ":443", "example.com:80", "127.0.0.1:80", "localhost:22", "example.com：443", "a.com:99999", "[::1]:"},
		"scheme": {"http://example.com", "https://example.com/", "//example.com", "https:example.com", "ftp://example.com", "file:///etc/passwd", "javascript:alert(1)", "gopher://127.0.0.1:6379/_x", "dict://a.com", "data:text/plain,x", "https:\\\\example.com", "http:///example.com", "HTTP://EXAMPLE.COM", "ldap://a.com", "jar:http://a.com!/"},
		"user":   {"user@example.com", "user:pass@example.com", "example.com@127.0.0.1", "@example.com", "example.com@", "a.com＠b.com", "127.0.0.1#@example.com"},
		"path": {"example.com/", "example.com/x", "/example.com", "example.com\\x", "\\\\example.com", "../etc/passwd", "example.com/../x",
			"example.com／x", "example.com?x=1", "?example.com", "example.com#x", "example.com;x", "℀.com", "example.com℅", "a.com?", "a∕b..com"},
		"percent":   {"%31%32%37.0.0.1", "127%2e0%2e0%2e1", "example%2ecom", "example.com%00", "%6c%6f%63%61%6c%68%6f%73%74", "example.com%0d%0aHost:x", "%E3%80%82.com", "％31.com", "a%.com"},
		"injection": {"example.com\r\nHost: x", "example.com\n", "example.com\r", "example.com\t", "\nexample.com", "$(id).example.com", "`id`.example.com", "${jndi:ldap://x}.com", "'or'1'='1.com", "\"a\".com", "<b>.com", "a|b.com", "a&b.com", "{a}.com", "a=b.com", "a+b.com", "a!b.com", "~.com", "^a.com", "a\\.b.com", "a\\046com.com"},
		"space":     {" example.com", "example.com ", "exam ple.com", "example .com", "example.com\u00a0", "\u00a0example.com", "a\u2003b.com", "a\u3000b.com", "a\u2028b.com", "a\u0085b.com"},
		"control":   {"\x00", "example.com\x00", "example.com\x00.evil.com", "exam\x01ple.com", "\x7f.com", "a\x1b[31m.com", "a\x08.com", "a\u0080b.com", "a\ufffeb.com", "a\U000e0001b.com"},
		"invalid UTF-8": {"\xff", "\xc0\xae.com", "\x80example.com", "example\xe9.com", "\xed\xa0\x80.com", "a\xf5\x80\x80\x80.com", "\xc3.com",
			"exam\xc0\xafple.com", "a.\xe3\x80", "\xe2\x80"},
		"bidi": {"exam\u202eple.com", "\u202emoc.elpmaxe", "exam\u2066ple.com", "exam\u200eple.com", "\u200fexample.com", "a\u061cb.com", "1א.com", "אa.com", "א1٢.com", "\u202a.com"},
		"joiner and combining": {"a\u200db.com", "a\u200cb.com", "\u0301a.com", "\u200d.com", "xn--a-ugn.com", "xn--ab-j1t.com",
			"\u0903.com", "क\u200c.com.\u200d"},
		"replacement": {"\ufffd.com", "a\ufffdb.com", "\U0010ffff.com", "\ue000.com", "\U000f0000.com", "\u0378.com"},
		"dots":        {".example.com", "..example.com", "example..com", "example.com..", "example.com...", "a.。.com", "example.com.。", "。example.com", "example．．com", "a.\u200b.com", "a.\u00ad.com", ".a", "a...b"},
		"hyphen":      {"-example.com", "example-.com", "a.-b.com", "a.b-.com", "-.com", "--.com", "example.-com", "example.com-", "-", "a.-"},
		"length": {long(64) + ".com", long(255) + ".com", long(250) + "." + long(2), name253 + "c", strings.Repeat("a.", 126) + "com", long(1024), long(1025), long(1 << 20),
			strings.Repeat("a.", 1<<16) + "com", strings.Repeat("ü", 60) + "." + strings.Repeat("ö", 100) + ".com", strings.Repeat("ü", 1<<16), "a." + long(64),
			strings.Repeat("\u00ad", 600) + "a.com", strings.Repeat(".", 300), strings.Repeat("%", 300), strings.Repeat(long(63)+".", 4) + "com"},
		"punycode": {"xn--.com", "xn--a.com", "xn--a-.com", "xn---.com", "xn--\u00fc.com", "xn--127001.com", "xn--0.com.", "a.xn--", "xn--localhost-.com",
			"xn--example-.com", "xn--a-ecp.ru\u0000", "XN--.COM", "xn--99999999.com", "xn--bcher-kva-.com", "xn--bücher.com", "xn--www-.example.com", "ｘn--.com", "xn--_dmarc-.com", "www.xn--a.com", "www.xn--ab-j1t.com"},
		"internal": {"foo.localhost", "a.b.localhost", "localhost.localdomain", "foo.localdomain", "printer.local", "PRINTER.LOCAL", "printer.local.", "cluster.local",
			"kubernetes.default.svc.cluster.local", "foo.test", "foo.example", "foo.invalid", "facebookcorewwwi.onion", "foo.alt",
			"1.0.0.127.in-addr.arpa", "ip6.arpa", "home.arpa", "router.home.arpa", "ipv4only.arpa", "resolver.arpa", "e164.arpa", "foo.arpa",
			"metadata.google.internal", "foo.internal", "ip-10-0-0-1.ec2.internal", "host.docker.internal", "foo.corp", "foo.home", "foo.mail", "foo.lan",
			"foo.intranet", "foo.private", "foo.domain", "foo.workgroup", "metadata.goog", "METADATA.GOOG.", "foo.metadata.goog", "xn--bcher-kva.local"},
		"internal in Unicode": {"ｌｏｃａｌｈｏｓｔ", "localhoſt", "foo.ｌｏｃａｌ", "foo.locaℓ", "foo。local", "foo.loc\u00adal", "foo.local\u200b", "foo.ⓛⓞⓒⓐⓛ", "metadata.google.ınternal\u200b.internal",
			"foo.lo\u2060cal", "foo.ﬁ.local", "metadata。goog", "foo．internal．", "foo.𝓁𝒶𝓃"},
		"wildcard and list": {"*.example.com", "*", "a.*.com", "a.com,b.com", "a.com b.com", "a.com;b.com", "a.com|b.com", "[a.com]", "(a.com)", "<a.com>"},
	}
}

func TestDomainRefusesHostile(t *testing.T) {
	t.Parallel()
	n := 0
	for class, values := range hostile() {
		n += len(values)
		for _, raw := range values {
			for _, g := range []guard.Grammar{guard.Hostname, guard.DNSName} {
				got, err := guard.Domain(raw, g)
				if err == nil {
					t.Errorf("%s: Domain(%.80q, %d) = %q, want invalid_domain", class, raw, g, got)
					continue
				}
				wantInvalid(t, raw, err, "")
			}
		}
	}
	if n < 300 {
		t.Errorf("the corpus has only %d values", n)
	}
}
