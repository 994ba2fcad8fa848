package clients

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestDocuments holds everything that one service publishes against public
// validators and against each other. Each validator is also shown a document that is
// broken on purpose, so that it is seen to fail.
func TestDocuments(t *testing.T) {
	t.Parallel()
	s := start(t, x402test.Honest)
	for name, check := range map[string]func(*testing.T, service){
		"OpenAPI": checkOpenAPI, "live answers": checkLiveAnswers, "agentcash": checkAgentcash, "HTML": checkHTML,
		"anchors": checkAnchors, "prices": checkPrices, "price sources": checkPriceSources, "extensions": checkExtensions, "robots": checkRobots,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, s)
		})
	}
}

// ask makes one request, follows no redirect, and reads the answer whole.
func (s service) ask(t *testing.T, method, path, accept string) Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	client := http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		t.Fatal(err)
	}
	return Answer{Method: method, Path: path, Status: res.StatusCode, Header: res.Header, Body: body}
}

// document is a free document.
func (s service) document(t *testing.T, path string) []byte {
	t.Helper()
	a := s.ask(t, http.MethodGet, path, "")
	if a.Status != http.StatusOK {
		t.Fatalf("%s: %d %.300s", path, a.Status, a.Body)
	}
	return a.Body
}

// decoded is JSON as Go values.
func decoded[T any](t *testing.T, raw []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %.300s", err, raw)
	}
	return v
}

// broken is a document with something replaced, everywhere. It fails the test
// when there is nothing to replace: a validator would be shown a good one.
func broken(t *testing.T, doc []byte, old, other string) []byte {
	t.Helper()
	if !bytes.Contains(doc, []byte(old)) {
		t.Errorf("the document has no %q to break", old)
	}
	return bytes.ReplaceAll(doc, []byte(old), []byte(other))
}

// wantOne wants a validator to complain, and about this.
func wantOne(t *testing.T, complaints []string, about string) {
	t.Helper()
	for _, c := range complaints {
		if strings.Contains(c, about) {
			return
		}
	}
	t.Errorf("complains of %q, want something about %q", complaints, about)
}

// wantNone wants a validator to be content.
func wantNone(t *testing.T, complaints []string) {
	t.Helper()
	for _, c := range complaints {
		t.Error(c)
	}
}
