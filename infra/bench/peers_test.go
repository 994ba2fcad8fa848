package main

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// Each line is answered by one line with every peer of its operation, whatever
// its outcome, and lookups at once end with every error.
func TestServe(t *testing.T) {
	says := func(d time.Duration, err error) look {
		return func(_ context.Context, domain string) (time.Duration, error) {
			if domain != "example.com" {
				return 0, errors.New("asked for " + domain)
			}
			return d, err
		}
	}
	all := map[string][]peer{"dns": {
		{"quick", says(1500*time.Microsecond, nil)},
		{"absent", says(0, &exec.Error{Name: "dig", Err: exec.ErrNotFound})},
		{"broken", together(says(0, errors.New("no answer")), says(0, nil), says(0, errors.New("no time")))},
	}}
	var out strings.Builder
	if err := serve(all, strings.NewReader("dns example.com\nping example.com\n"), &out); err != nil {
		t.Fatal(err)
	}
	const want = `[{"peer":"quick","ms":1.5,"error":""},{"peer":"absent","ms":0,"error":"not installed"},{"peer":"broken","ms":0,"error":"failed: no answer\nno time"}]
[]
`
	if out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
	if err := serve(all, strings.NewReader("dns\n"), &out); err == nil {
		t.Error("a line without a domain was taken")
	}
}

// Peers are of operations that there are.
func TestPeers(t *testing.T) {
	for slug := range peers("1.1.1.1", "http://127.0.0.1:1/rdap/dns.json") {
		if _, known := catalog.BySlug(slug); !known {
			t.Errorf("there is no operation %s", slug)
		}
	}
}
