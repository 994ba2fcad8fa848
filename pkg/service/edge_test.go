package service

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// broken is a path with a bug.
type broken struct{}

func (broken) methods(*http.Request) []string       { return []string{http.MethodGet} }
func (broken) serve(*http.Request, string) response { panic("bug") }

// The answer after a panic does not say whether money had moved before it.
func TestPanic(t *testing.T) {
	e := edge{name: "broken", next: broken{}, platform: Platform{
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Origin:    func(*http.Request) string { return "https://api.example.com" },
		RequestID: func(*http.Request) string { return "id" },
	}}
	for signature, want := range map[string]string{"": `"charged":false`, "x": `"charged":null`} {
		r := httptest.NewRequest(http.MethodGet, "/v1/tools/dns", nil)
		if signature != "" {
			r.Header.Set(x402.HeaderSignature, signature)
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "bug") {
			t.Errorf("signature %q: %d %s, want %s", signature, w.Code, w.Body, want)
		}
	}
}
