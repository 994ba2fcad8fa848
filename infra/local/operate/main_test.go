package main

import (
	"strings"
	"testing"
)

// Each command is reached by its name, and what is none is told which there are.
func TestCommands(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nothing":        {nil, exitUsage, "usage: operate reconcile|restore|smoke"},
		"another":        {[]string{"settle"}, exitUsage, "usage: operate reconcile|restore|smoke"},
		"reconcile":      {[]string{"reconcile", "-force"}, exitUsage, "-refund"},
		"restore":        {[]string{"restore"}, exitFailed, "LEDGER_TABLE is not set"},
		"restore's help": {[]string{"restore", "-h"}, 0, "-drill"},
		"smoke":          {[]string{"smoke"}, exitFailed, "usage: make smoke ORIGIN="},
	} {
		var out, notes strings.Builder
		code := run(t.Context(), c.args, func(string) string { return "" }, &out, &notes)
		if code != c.code || !strings.Contains(notes.String(), c.says) || out.Len() != 0 {
			t.Errorf("%s: exit status %d, %q and %q; want %d and %q", name, code, &out, &notes, c.code, c.says)
		}
	}
}
