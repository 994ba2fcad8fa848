package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// Each command is reached by its name, and what is none is told which there are.
func TestCommands(t *testing.T) {
	t.Parallel()
	getenv := func(name string) string {
		return map[string]string{"RECEIPT_PUBLIC_KEYS": "the-list-so-far"}[name]
	}
	for name, c := range map[string]struct {
		args        []string
		code        int
		prints, why string
	}{
		"nothing":     {nil, exitUsage, "", "usage: keys receipt-key|sign-origin"},
		"another":     {[]string{"sign"}, exitUsage, "", "usage: keys receipt-key|sign-origin"},
		"receipt-key": {[]string{"receipt-key"}, 0, ",the-list-so-far\n", "RECEIPT_KEY signs receipts"},
		"sign-origin": {[]string{"sign-origin", "-pay-to", "0x1"}, exitUsage, "", "usage: make sign-origin ORIGIN="},
		"its help":    {[]string{"sign-origin", "-h"}, 0, "", "usage: make sign-origin ORIGIN="},
	} {
		var out, notes strings.Builder
		code := run(c.args, getenv, &out, &notes)
		if code != c.code || !strings.HasSuffix(out.String(), c.prints) || (out.Len() == 0) != (c.prints == "") || !strings.Contains(notes.String(), c.why) {
			t.Errorf("%s: exit status %d, %q and %q", name, code, &out, &notes)
		}
	}
}

// The two lines go together, and a key is put before those that there are.
func TestReceiptKey(t *testing.T) {
	t.Parallel()
	published := ""
	for n := 1; n <= 2; n++ {
		var out, notes strings.Builder
		if err := makeReceiptKey(rand.Reader, published, &out, &notes); err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`^RECEIPT_KEY=(\S{43})\nRECEIPT_PUBLIC_KEYS=(\S+)\n$`).FindStringSubmatch(out.String())
		if m == nil || strings.Contains(notes.String(), m[1]) {
			t.Fatalf("printed %q and %q", out.String(), notes.String())
		}
		if published != "" && m[2][43:] != ","+published {
			t.Errorf("the list is %s, was %s", m[2], published)
		}
		published = m[2]
		private, err := receipt.ParseKey(m[1])
		if err != nil {
			t.Fatal(err)
		}
		var keys []ed25519.PublicKey
		for _, text := range strings.Split(published, ",") {
			key, err := receipt.ParsePublic(text)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
		if _, err := receipt.NewSigner(private, keys); err != nil || len(keys) != n {
			t.Errorf("%d keys, %v", len(keys), err)
		}
	}
}

func TestNoRandom(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := makeReceiptKey(strings.NewReader("short"), "", &out, io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) || out.String() != "" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
