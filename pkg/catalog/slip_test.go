package catalog

import "testing"

// A parameter that is misspelt, or called as another operation calls it, is a slip for one
// whose wrong values are refused.
func TestSlip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ op, name, meant string }{
		{"dns", "tpye", "type"}, {"dns", "types", "type"}, {"dns", "TYPE", "type"}, {"dns", "dns_type", "type"}, {"dns", "typé", "type"},
		{"dns", "domain ", "domain"}, {"dns", "type", ""}, {"dns", "port", ""}, {"dns", "tp", ""}, {"dns", "name", ""}, {"dns", "%74ype", ""},
		{"host-intel", "type", "dns_type"}, {"host-intel", "dnstype", "dns_type"}, {"host-intel", "dns-type", "dns_type"},
		{"ssl-check", "prot", "port"}, {"ssl-check", "type", ""}, {"whois", "domian", "domain"}, {"headers", "domains", "domain"},
		{"uptime-check", "doman", "domain"}, {"resolve-redirect", "host", ""}, {"ping", "prob", ""}, {"ping", "domain", ""}, {"ping", "", ""},
	} {
		t.Run(c.op+" "+c.name, func(t *testing.T) {
			op, _ := BySlug(c.op)
			if meant, ok := op.Slip(c.name); meant.Name != c.meant || ok != (c.meant != "") {
				t.Errorf("%v, %q, want %q", ok, meant.Name, c.meant)
			}
		})
	}
}
