package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What /ready says is printed, and decides.
func TestSmoke(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		body       string
		says, fail string
	}{
		"ready":          {200, `{"status":"ready","checks":{"ledger":{"status":"ok"},"chain":{"status":"warning","message":"no node"}}}`, "chain            warning no node\nledger           ok\n", ""},
		"not ready":      {503, `{"status":"not_ready","checks":{"facilitator":{"status":"failing","code":"facilitator_unauthorized","message":"refused"}}}`, "facilitator      failing refused\n", "not ready: /ready answers 503"},
		"a gateway":      {500, `Internal Server Error`, "", "/ready answers 500, and not as this service does"},
		"for a terminal": {200, `{"checks":{"a\u001b[2J":{"status":"ok\u202e"}}}`, "a?[2J            ok?\n", ""},
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
			var notes strings.Builder
			err := runSmoke(t.Context(), []string{s.URL + "/"}, &notes)
			if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
				t.Errorf("%v, want %q", err, c.fail)
			}
			if notes.String() != c.says {
				t.Errorf("it prints %q, want %q", notes.String(), c.says)
			}
		})
	}
}

func TestSmokeUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"api.example.com"}, {"https://api.example.com/v1"}, {"https://u:p@api.example.com"}, {"https://a", "https://b"}} {
		if err := runSmoke(context.Background(), args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
