package service_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/service"
)

// The documents of an origin that is known are made before the first request, and
// only once: a proof that is wrong is left out of them with a warning.
func TestDocumentsAreRenderedAtStart(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		var log bytes.Buffer
		p := platform()
		p.Log = slog.New(slog.NewJSONHandler(&log, nil))
		rendered := func() int { return strings.Count(log.String(), "ownership proof left out") }
		var origins []string
		if known {
			origins = []string{"https://api.example.com"}
		}
		h := service.Discovery(p, service.Offering{Terms: testTerms(), OwnershipProofs: []string{"0x00"}}, nil, origins...)
		before := rendered()
		for range 2 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/catalog", nil))
			if w.Code != http.StatusOK {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		}
		if after := rendered(); (before == 1) != known || after != 1 {
			t.Errorf("origin known %v: rendered %d times at start, %d in all", known, before, after)
		}
	}
}
