package main

import (
	"strings"
	"testing"
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
