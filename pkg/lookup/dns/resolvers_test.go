package dns_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

func TestParseResolvers(t *testing.T) {
	t.Parallel()
	for csv, want := range map[string][]string{
		"1.1.1.1":                           {"1.1.1.1:53"},
		"1.1.1.1,8.8.8.8,9.9.9.10":          {"1.1.1.1:53", "8.8.8.8:53", "9.9.9.10:53"},
		" 1.1.1.1:5353 ,\t8.8.8.8":          {"1.1.1.1:5353", "8.8.8.8:53"},
		"2606:4700:4700::1111":              {"[2606:4700:4700::1111]:53"},
		"[2606:4700:4700::1111]":            {"[2606:4700:4700::1111]:53"},
		"[2606:4700:4700::1111]:54,::1":     {"[2606:4700:4700::1111]:54", "[::1]:53"},
		"::ffff:127.0.0.1":                  {"127.0.0.1:53"},
		"127.0.0.1:1,127.0.0.1:2,127.0.0.1": {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:53"},
	} {
		got, err := dns.ParseResolvers(csv)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("ParseResolvers(%q): %v %s", csv, err, diff)
		}
	}
}

func TestParseResolversNamesEveryFault(t *testing.T) {
	t.Parallel()
	for csv, parts := range map[string][]string{
		"":                           {"entry 1: empty"},
		"1.1.1.1,":                   {"entry 2: empty"},
		"one.one.one.one":            {`entry 1: "one.one.one.one" is not ip or ip:port`},
		"1.1.1.1:x,8.8.8.8,9.9.9":    {`entry 1: "1.1.1.1:x"`, `entry 3: "9.9.9"`},
		"1.1.1.1:0":                  {"port 0"},
		"1.1.1.1:65536":              {`"1.1.1.1:65536" is not`},
		"[1.1.1.1]":                  {`"[1.1.1.1]" is not`},
		"1.1.1.1,1.1.1.1:53":         {"entry 2: 1.1.1.1:53 is listed twice"},
		"0.0.0.0,[::]:53,224.0.0.1":  {"entry 1:", "entry 2:", "entry 3:"},
		"https://1.1.1.1/dns-query,": {"entry 1:", "entry 2: empty"},
		"::1]":                       {"entry 1:"},
	} {
		got, err := dns.ParseResolvers(csv)
		if err == nil {
			t.Errorf("ParseResolvers(%q) = %q, want an error", csv, got)
			continue
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) || strings.Contains(err.Error(), "\n") {
				t.Errorf("ParseResolvers(%q): %q, want one line with %q", csv, err, p)
			}
		}
	}
}

// FuzzParseResolvers: what is accepted is accepted again as it was written
// out, and a Client takes it.
func FuzzParseResolvers(f *testing.F) {
	for _, s := range []string{"", "1.1.1.1,8.8.8.8", "[::1]:53,::1", "fe80::1%lo", "::ffff:1.2.3.4", "[::ffff:1.2.3.4]:9", "1.1.1.1:053", "[fe80::1%a,b]:1", "[::]:0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, csv string) {
		got, err := dns.ParseResolvers(csv)
		if err != nil {
			return
		}
		dns.New(dns.Config{Resolvers: got})
		again, err := dns.ParseResolvers(strings.Join(got, ","))
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Errorf("ParseResolvers(%q) = %q, again: %v %s", csv, got, err, diff)
		}
	})
}
