package simnet

import (
	"fmt"
	"net/netip"
	"slices"
)

// specialAddrs are addresses that are not public, at and around the ends of
// their ranges, those of metadata services, and those of the corpora.
func specialAddrs() []string {
	out := ownAddrs()
	for _, s := range specimens(kindAddress) {
		if !slices.Contains(out, s.value) {
			out = append(out, s.value)
		}
	}
	return out
}

// ownAddrs are typed from the IANA special-purpose registries.
func ownAddrs() []string {
	return []string{
		"0.0.0.0", "0.1.2.3", "0.255.255.255", "10.0.0.0", "10.0.0.3", "10.255.255.255", "100.64.0.0", "100.100.100.200", "100.127.255.255",
		"127.0.0.0", "127.0.0.2", "127.1.2.3", "127.255.255.255", "168.63.129.16", "169.254.0.0", "169.254.0.23", "169.254.169.123",
		"169.254.169.253", "169.254.170.2", "169.254.170.23", "169.254.255.255", "172.16.0.0", "172.20.1.1", "172.31.255.255",
		"192.0.0.0", "192.0.0.8", "192.0.0.192", "192.0.0.255", "192.0.2.0", "192.0.2.255", "192.31.196.1", "192.52.193.1", "192.88.99.1",
		"192.168.0.0", "192.168.1.1", "192.168.255.255", "192.175.48.1", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1",
		"224.0.0.0", "224.0.0.251", "239.255.255.250", "239.255.255.255", "240.0.0.0", "250.1.2.3", "255.255.255.254", "255.255.255.255",
		"::", "::1", "::2", "::7f00:1", "::8.8.8.8", "::ffff:0.0.0.0", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
		"::ffff:8.8.8.8", "::ffff:93.184.216.34", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::808:808",
		"64:ff9b:1::1", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "100::", "100::1", "100::ffff:ffff:ffff:ffff", "100:0:0:1::1", "2001::",
		"2001::1", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "2001:1::1", "2001:1::2", "2001:1::3", "2001:2::1", "2001:3::1", "2001:4:112::1",
		"2001:10::1", "2001:1f:ffff::1", "2001:20::1", "2001:2f::1", "2001:30::1", "2001:3f::1", "2001:1ff:ffff::1", "2001:db8::",
		"2001:db8::1", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2002::", "2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1",
		"2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2620:4f:8000::", "2620:4f:8000::1", "3fff::", "3fff::1", "3fff:fff:ffff::1", "4000::1",
		"5f00::", "5f00::1", "5f00:ffff::1", "8000::1", "fc00::", "fc00::1", "fd00::2", "fd00:c1::a9fe:a9fe", "fd00:ec2::23",
		"fd00:ec2::253", "fd00:ec2::254", "fd20:ce::254", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe80::", "fe80::1", "febf::1",
		"fec0::1", "feff::1", "ff00::", "ff01::1", "ff02::1", "ff02::fb", "ff05::2", "ff0e::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	}
}

// The ways to a special address.
const (
	wayDirect   = "direct"
	wayAlias    = "alias"
	wayMixed    = "mixed"
	wayRedirect = "redirect"
	wayTurning  = "turning" // public when asked first
	wayRDAP     = "rdap"    // its registry redirects to it
)

func ways() []string {
	return []string{wayDirect, wayAlias, wayMixed, wayRedirect, wayTurning, wayRDAP}
}

// corpusName is the host that leads to a special address in one way.
func corpusName(way string, i int) string { return fmt.Sprintf("%s%d.hostile.example.com", way, i) }

// corpusHosts lead to every special address in every way.
func corpusHosts() []host {
	var out []host
	for i, a := range specialAddrs() {
		beside := "93.184.3.1" // public and closed, first in the answer
		if netip.MustParseAddr(a).Is6() {
			beside = "2606:2800:220:1::8"
		}
		out = append(out,
			host{name: corpusName(wayDirect, i), addrs: []string{a}},
			host{name: corpusName(wayAlias, i), alias: corpusName(wayDirect, i)},
			host{name: corpusName(wayMixed, i), addrs: []string{beside, a}},
			host{name: corpusName(wayRedirect, i), serve: web(to("https://" + corpusName(wayDirect, i) + "/"))},
			host{name: corpusName(wayTurning, i), later: []string{a}, serve: web(chain(1))},
		)
	}
	return out
}

// rdapName is the domain whose registry redirects to a special address.
func rdapName(i int) string { return fmt.Sprintf("%s%d.com", wayRDAP, i) }

// corpusRedirects are what the registry of com answers about those.
func corpusRedirects(at string) map[string]string {
	out := map[string]string{}
	for i := range specialAddrs() {
		out[at+rdapName(i)] = body(302, "", "Location: https://"+corpusName(wayDirect, i)+"/domain/"+rdapName(i))
	}
	return out
}
