package dns_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
)

// refer sends the client to the servers of com, as a server does that does not
// recurse, after the given answers.
func refer(records ...string) change {
	return sections(records, "com. 172800 IN NS a.gtld-servers.net.", "com. 172800 IN NS b.gtld-servers.net.")
}

// sections has an answer and an authority section, glue and EDNS.
func sections(records []string, ns ...string) change {
	answer, authority := answer(records...), authority(ns...)
	glue := parse([]string{"a.gtld-servers.net. 172800 IN A 192.5.6.30"})
	return func(m *miekg.Msg) {
		answer(m)
		authority(m)
		m.Extra = glue
		withEDNS(m)
	}
}

// TestReferral: servers to ask instead are no answer, and the next resolver is
// asked at once.
func TestReferral(t *testing.T) {
	const alias = "example.com. 60 IN CNAME b.example.net."
	type row struct {
		typ   string
		reply change
	}
	origintest.Each(t, map[string]row{
		"nothing":                        {"A", refer()},
		"an alias":                       {"A", refer(alias)},
		"an alias and another's address": {"A", refer(alias, "c.example.net. 60 IN A 192.0.2.66")},
		"another type":                   {"A", refer("example.com. 60 IN TXT x")},
		"another class":                  {"A", refer("example.com. 60 CH A 192.0.2.66")},
		"the name's own servers":         {"NS", sections(nil, "example.com. 172800 IN NS a.example.com.")},
		"an alias after the target's":    {"CNAME", refer("b.example.net. 60 IN CNAME c.example.net.")},
	}, func(t *testing.T, c row) {
		refers := resolver(t, c.reply)
		wantCode(t, fault.UpstreamUnavailable, c.typ, refers, resolver(t, c.reply))
		other := answer(good)
		if c.typ != "A" {
			other = answer(good, "example.com. 60 IN NS x.", "example.com. 60 IN CNAME x.")
		}
		got, err := lookup(t, client(t, refers, resolver(t, other)), c.typ)
		if err != nil || len(got.Records) != 1 {
			t.Errorf("with another resolver: %+v, %v, want its record", got, err)
		}
		got, err = lookup(t, client(t, refers, resolver(t, rcode(miekg.RcodeServerFailure))), c.typ)
		if err != nil || got.Rcode != "SERVFAIL" {
			t.Errorf("with SERVFAIL: %+v, %v, want that", got, err)
		}
	})
}

// questions asks a resolver so often, and returns what it heard and the
// addresses that it was asked from.
func questions(t *testing.T, domain string, n int) (heard []*miekg.Msg, from map[string]bool) {
	t.Helper()
	var mu sync.Mutex
	from = map[string]bool{}
	works := server(t, func(q []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, unpacked(q))
		return says()(q)
	}, nil)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			from[conn.LocalAddr().String()] = true
		}
		return conn, err
	}
	c := dns.New(dns.Config{Resolvers: []string{works}, Dial: dial})
	for range n {
		if _, err := c.Lookup(t.Context(), dns.Query{Domain: domain, Type: "A"}); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return heard, from
}

// TestQuestion: a fresh port, ID and letter case per question, recursion
// desired, one question.
func TestQuestion(t *testing.T) {
	t.Parallel()
	const n = 64
	heard, ports := questions(t, "example.com", n)
	ids, names := map[uint16]bool{}, map[string]bool{}
	for _, q := range heard {
		if !q.RecursionDesired || q.CheckingDisabled || len(q.Question) != 1 || q.IsEdns0().Do() ||
			!strings.EqualFold(q.Question[0].Name, "example.com.") {
			t.Errorf("question %v", q)
		}
		ids[q.Id], names[q.Question[0].Name] = true, true
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
	// A given pair lacks one of its four cases with probability 4 × 0.75^200,
	// any of 1,128 with less than 10^-21.
	heard, _ := questions(t, domain, 200)
	large := func(name string, i int) int { return int(^name[i] >> 5 & 1) }
	for i := range domain {
		for j := range i {
			if domain[i] == '.' || domain[j] == '.' {
				continue
			}
			var seen [2][2]bool
			for _, q := range heard {
				name := q.Question[0].Name
				seen[large(name, i)][large(name, j)] = true
			}
			if seen != [2][2]bool{{true, true}, {true, true}} {
				t.Fatalf("letters %d and %d of %s go together: %v", j, i, domain, seen)
			}
		}
	}
}
