package dns_test

import (
	"strings"
	"sync"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

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
