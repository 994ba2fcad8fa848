package dns_test

import (
	"strings"
	"sync"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
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

// TestQuestion: a fresh port, ID and letter case per question, recursion
// desired, one question.
func TestQuestion(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	ports, ids, names := map[string]bool{}, map[uint16]bool{}, map[string]bool{}
	server := resolver(t, func(w miekg.ResponseWriter, q *miekg.Msg) {
		mu.Lock()
		defer mu.Unlock()
		ports[w.RemoteAddr().String()], ids[q.Id], names[q.Question[0].Name] = true, true, true
		if !q.RecursionDesired || q.CheckingDisabled || len(q.Question) != 1 || q.IsEdns0().Do() {
			t.Errorf("question %v", q)
		}
		w.WriteMsg(new(miekg.Msg).SetReply(q))
	})
	c := client(t, server)
	const n = 64
	for range n {
		if _, err := lookup(t, c, "A"); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for name := range names {
		if !strings.EqualFold(name, "example.com.") {
			t.Errorf("asked for %s", name)
		}
	}
	// Ten letters: 64 draws of 1,023 hardly fall on fewer than 32.
	if len(names) < n/2 || len(ids) < n/2 || len(ports) < n/2 {
		t.Errorf("%d questions had %d spellings, %d IDs and %d ports", n, len(names), len(ids), len(ports))
	}
}

// TestQuestionLetters: each letter's case is drawn for itself. Of any two
// letters, both small, both large, and each one alone come up.
func TestQuestionLetters(t *testing.T) {
	t.Parallel()
	const domain = "abcdefghijklmnopqrstuvwxyz.nopqrstuvwxyz.example.com"
	var mu sync.Mutex
	var names []string
	c := client(t, resolver(t, func(w miekg.ResponseWriter, q *miekg.Msg) {
		mu.Lock()
		defer mu.Unlock()
		names = append(names, q.Question[0].Name)
		w.WriteMsg(new(miekg.Msg).SetReply(q))
	}))
	// A given pair lacks one of its four cases with probability 4 × 0.75^200,
	// any of 1,128 with less than 10^-21.
	for range 200 {
		if _, err := c.Lookup(t.Context(), dns.Query{Domain: domain, Type: "A"}); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	large := func(name string, i int) int { return int(^name[i] >> 5 & 1) }
	for i := range domain {
		for j := range i {
			if domain[i] == '.' || domain[j] == '.' {
				continue
			}
			var seen [2][2]bool
			for _, n := range names {
				seen[large(n, i)][large(n, j)] = true
			}
			if seen != [2][2]bool{{true, true}, {true, true}} {
				t.Fatalf("letters %d and %d of %s go together: %v", j, i, domain, seen)
			}
		}
	}
}
