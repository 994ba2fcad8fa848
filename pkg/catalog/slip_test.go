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

// One edit, and no other name, is a slip.
func TestOneEdit(t *testing.T) {
	t.Parallel()
	const name, letters = "type", "typex"
	edits := map[string]bool{name: true}
	for i := range len(name) + 1 {
		head, tail := name[:i], name[i:]
		for _, c := range letters {
			edits[head+string(c)+tail] = true
			if tail != "" {
				edits[head+string(c)+tail[1:]], edits[head+tail[1:]] = true, true
			}
		}
		if len(tail) > 1 {
			edits[head+tail[1:2]+tail[:1]+tail[2:]] = true
		}
	}
	for names, n := []string{""}, 0; n < 7; n++ {
		var longer []string
		for _, sent := range names {
			if OneEdit(sent, name) != edits[sent] {
				t.Errorf("%s is a slip: %v", sent, !edits[sent])
			}
			for _, c := range letters {
				longer = append(longer, sent+string(c))
			}
		}
		names = longer
	}
}
