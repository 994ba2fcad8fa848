package dns_test

import (
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

// refer sends the client to the servers of com, as a server does that does not
// recurse, after the given answers.
func refer(t testing.TB, records ...string) miekg.HandlerFunc {
	t.Helper()
	return sections(t, records, "com. 172800 IN NS a.gtld-servers.net.", "com. 172800 IN NS b.gtld-servers.net.")
}

// sections replies with an answer and an authority section, glue and EDNS.
func sections(t testing.TB, records []string, ns ...string) miekg.HandlerFunc {
	t.Helper()
	answer, authority := parse(t, records...), parse(t, ns...)
	glue := parse(t, "a.gtld-servers.net. 172800 IN A 192.5.6.30")
	return func(w miekg.ResponseWriter, q *miekg.Msg) {
		m := new(miekg.Msg).SetReply(q)
		m.Answer, m.Ns, m.Extra = answer, authority, glue
		m.SetEdns0(1232, false)
		w.WriteMsg(m)
	}
}

// TestReferral: servers to ask instead are no answer, and the next resolver is
// asked at once.
func TestReferral(t *testing.T) {
	t.Parallel()
	const alias = "example.com. 60 IN CNAME b.example.net."
	for _, c := range []struct {
		name, typ string
		h         miekg.HandlerFunc
	}{
		{"nothing", "A", refer(t)},
		{"an alias", "A", refer(t, alias)},
		{"an alias and another's address", "A", refer(t, alias, "c.example.net. 60 IN A 192.0.2.66")},
		{"another type", "A", refer(t, "example.com. 60 IN TXT x")},
		{"another class", "A", refer(t, "example.com. 60 CH A 192.0.2.66")},
		{"the name's own servers", "NS", sections(t, nil, "example.com. 172800 IN NS a.example.com.")},
		{"an alias after the target's", "CNAME", refer(t, "b.example.net. 60 IN CNAME c.example.net.")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got, err := lookup(t, client(t, resolver(t, c.h), resolver(t, c.h)), c.typ); code(err) != fault.UpstreamUnavailable {
				t.Errorf("from all: %+v, %v, want upstream_unavailable", got, err)
			}
			second := answer(t, good, "example.com. 60 IN NS x.", "example.com. 60 IN CNAME x.")
			if c.typ == "A" {
				second = answer(t, good)
			}
			got, err := lookup(t, client(t, resolver(t, c.h), resolver(t, second)), c.typ)
			if err != nil || len(got.Records) != 1 {
				t.Errorf("with another resolver: %+v, %v, want its record", got, err)
			}
			got, err = lookup(t, client(t, resolver(t, c.h), resolver(t, rcode(t, miekg.RcodeServerFailure))), c.typ)
			if err != nil || got.Rcode != "SERVFAIL" {
				t.Errorf("with SERVFAIL: %+v, %v, want that", got, err)
			}
		})
	}
}

// TestNoReferral: an authority section beside an answer, or with an SOA, or
// none, changes nothing. The second resolver is not there.
func TestNoReferral(t *testing.T) {
	t.Parallel()
	const alias, soa = "example.com. 60 IN CNAME b.example.net.", "example.com. 60 IN SOA a. b. 1 2 3 4 5"
	const head = `"rcode":"NOERROR","resolver":"127.0.0.1",`
	const none = head + `"ttl":null,"records":[]`
	for _, c := range []struct {
		name, typ string
		h         miekg.HandlerFunc
		want      string
	}{
		{"an address", "A", refer(t, good), head + `"ttl":60,"records":[{"address":"192.0.2.1"}]`},
		{"an address behind an alias", "A", refer(t, alias, "b.example.net. 60 IN A 192.0.2.1"), head + `"ttl":60,"records":[{"address":"192.0.2.1"}]`},
		{"the alias asked for", "CNAME", refer(t, alias), head + `"ttl":60,"records":[{"target":"b.example.net"}]`},
		{"the servers asked for", "NS", refer(t, "example.com. 9 IN NS a.example.com."), head + `"ttl":9,"records":[{"target":"a.example.com"}]`},
		{"no records", "A", sections(t, nil, soa), none},
		{"no records, and servers", "A", sections(t, nil, "example.com. 60 IN NS a.example.com.", soa), none},
		{"an alias without records", "A", sections(t, []string{alias}, "example.net. 60 IN NS a.example.net.", soa), none},
		{"an empty authority section", "A", sections(t, nil), none},
		{"neither", "A", sections(t, nil, "example.com. 60 IN NSEC b.example.com. TXT"), none},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := lookup(t, client(t, resolver(t, c.h), dead(t)), c.typ)
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, c.typ, got, c.want)
		})
	}
	nx := func(w miekg.ResponseWriter, q *miekg.Msg) {
		m := new(miekg.Msg).SetRcode(q, miekg.RcodeNameError)
		m.Ns = parse(t, "com. 60 IN NS a.gtld-servers.net.")
		w.WriteMsg(m)
	}
	if _, err := lookup(t, client(t, resolver(t, nx), dead(t)), "A"); code(err) != fault.NXDomain {
		t.Errorf("NXDOMAIN with servers: %v, want nxdomain", err)
	}
}

// TestYXDomain: a name that a DNAME makes too long is so at every resolver.
func TestYXDomain(t *testing.T) {
	t.Parallel()
	h := rcode(t, miekg.RcodeYXDomain, "com. 60 IN DNAME x.example.")
	got, err := lookup(t, client(t, resolver(t, h), resolver(t, answer(t, good))), "A")
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, "A", got, `"rcode":"YXDOMAIN","resolver":"127.0.0.1","ttl":null,"records":[]`)
}
