package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// A stopped command says what it has seen, and that it is not everything.
func TestStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path, _ := stored(t, fill)
	var out, notes bytes.Buffer
	env := func(name string) string { return map[string]string{"LEDGER_FILE": path}[name] }
	if code := run(ctx, []string{"reconcile"}, env, &out, &notes); code != exitFailed || !strings.Contains(notes.String(), "context canceled") {
		t.Errorf("exit status %d\n%s%s", code, &out, &notes)
	}
}
