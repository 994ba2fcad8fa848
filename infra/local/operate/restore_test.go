package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// What cannot be right is said before anything is asked of AWS. infra/samcheck runs
// the drill on a server that can restore.
func TestRestoreUsage(t *testing.T) {
	t.Parallel()
	env := func(pairs map[string]string) func(string) string {
		return func(name string) string { return pairs[name] }
	}
	table := map[string]string{"LEDGER_TABLE": "ledger", "AWS_REGION": "us-east-1"}
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		says string
	}{
		"no table":       {nil, []string{"-to", "copy"}, "LEDGER_TABLE is not set"},
		"no name":        {table, nil, "-to must name"},
		"the same name":  {table, []string{"-to", "ledger"}, "-to must name"},
		"no time":        {table, []string{"-to", "copy", "-at", "yesterday"}, "is no time such as"},
		"something else": {table, []string{"-to", "copy", "now"}, `"now" is not expected`},
		"no credentials": {table, []string{"-to", "copy"}, "AWS_ACCESS_KEY_ID"},
	} {
		if err := runRestore(context.Background(), c.args, env(c.env), io.Discard, io.Discard, time.Millisecond); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
