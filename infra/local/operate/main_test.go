package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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

// What /ready says is printed, and decides.
func TestSmoke(t *testing.T) {
	t.Parallel()
	const unseen = "The ledger's table was not looked at: LEDGER_TABLE names none.\n"
	for name, c := range map[string]struct {
		status     int
		body       string
		says, fail string
	}{
		"ready":          {200, `{"status":"ready","checks":{"ledger":{"status":"ok"},"chain":{"status":"warning","message":"no node"}}}`, "chain            warning no node\nledger           ok\n" + unseen, ""},
		"not ready":      {503, `{"status":"not_ready","checks":{"facilitator":{"status":"failing","code":"facilitator_unauthorized","message":"refused"}}}`, "facilitator      failing refused\n", "not ready: /ready answers 503"},
		"a gateway":      {500, `Internal Server Error`, "", "/ready answers 500, and not as this service does"},
		"for a terminal": {200, `{"checks":{"a\u001b[2J":{"status":"ok\u202e"}}}`, "a?[2J            ok?\n" + unseen, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/ready" {
					t.Errorf("it asks for %s", r.URL.Path)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer s.Close()
			code := 0
			if c.fail != "" {
				code = exitFailed
			}
			out, notes := operate(t, code, nil, "smoke", s.URL+"/")
			if rest, ok := strings.CutPrefix(notes, c.says); !ok || !strings.HasPrefix(rest, c.fail) || c.fail == "" && rest != "" || out != "" {
				t.Errorf("it prints %q and %q, want %q and %q", out, notes, c.says, c.fail)
			}
		})
	}
}
