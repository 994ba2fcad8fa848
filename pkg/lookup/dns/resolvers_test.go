package dns_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

func TestParseResolvers(t *testing.T) {
	t.Parallel()
	for csv, want := range map[string]string{ // the resolvers, or parts of the error
		"1.1.1.1":                           "1.1.1.1:53",
		" 1.1.1.1:5353 ,\t8.8.8.8":          "1.1.1.1:5353 8.8.8.8:53",
		"2606:4700:4700::1111":              "[2606:4700:4700::1111]:53",
		"[2606:4700:4700::1111]":            "[2606:4700:4700::1111]:53",
		"[2606:4700:4700::1111]:54,::1":     "[2606:4700:4700::1111]:54 [::1]:53",
		"[::ffff:127.0.0.1]:9,1.1.1.1:053":  "127.0.0.1:9 1.1.1.1:53",
		"127.0.0.1:1,127.0.0.1:2,127.0.0.1": "127.0.0.1:1 127.0.0.1:2 127.0.0.1:53",
		"":                                  "entry 1: empty",
		"1.1.1.1,":                          "entry 2: empty",
		"one.one.one.one":                   `entry 1: "one.one.one.one" is not ip or ip:port`,
		"1.1.1.1:x,8.8.8.8,9.9.9":           `entry 1: "1.1.1.1:x" … entry 3: "9.9.9"`,
		"1.1.1.1:0":                         "entry 1: … has port 0",
		"1.1.1.1:65536":                     `entry 1: "1.1.1.1:65536" is not`,
		"[1.1.1.1]":                         `entry 1: "[1.1.1.1]" is not`,
		"1.1.1.1,1.1.1.1:53":                "entry 2: 1.1.1.1:53 is listed twice",
		"0.0.0.0,[::]:53,224.0.0.1":         "entry 1: … entry 2: … entry 3:",
		"https://1.1.1.1/dns-query,":        "entry 1: … entry 2: empty",
		"::1]":                              "entry 1:",
	} {
		got, err := dns.ParseResolvers(csv)
		if !strings.HasPrefix(want, "entry") {
			if strings.Join(got, " ") != want || err != nil {
				t.Errorf("ParseResolvers(%q) = %q, %v, want %s", csv, got, err, want)
			}
			continue
		}
		for part := range strings.SplitSeq(want, " … ") {
			if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
				t.Errorf("ParseResolvers(%q) = %q, %v, want one line with %q", csv, got, err, part)
			}
		}
	}
}

// TestResolverAddress: the result shows the plain IP address.
func TestResolverAddress(t *testing.T) {
	t.Parallel()
	for configured, want := range map[string]string{
		"9.9.9.10:5353": "9.9.9.10", "2620:FE:0::10": "2620:fe::10", "[fe80::1%eth0]:53": "fe80::1", "[::ffff:127.0.0.1]": "127.0.0.1",
	} {
		synctest.Test(t, func(t *testing.T) {
			list, err := dns.ParseResolvers(configured)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			w.list, w.hosts[list[0]] = list, resolver(answer(good))
			if got, err := w.lookup("A"); err != nil || got.Resolver != want {
				t.Errorf("%s: resolver %q, %v, want %q", configured, got.Resolver, err, want)
			}
		})
	}
}
