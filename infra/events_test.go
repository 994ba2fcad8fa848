package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestEventsThroughBuiltFunctions builds every function as it is deployed,
// configures it by the template, and sends it its event: a priced one answers
// its offer, a free one its document.
func TestEventsThroughBuiltFunctions(t *testing.T) {
	t.Parallel()
	cfg, err := lambdahost.FromTemplate(templatePath, testbed.Functions(t), testParams(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	cfg.Logs = &logs
	h, err := lambdahost.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		h.Close()
		if t.Failed() {
			t.Logf("the functions logged:\n%s", &logs)
		}
	}()
	for slug := range routesBySlug() {
		if slug == scheduled {
			continue // needs a ledger; see TestReconcileFunction
		}
		event, err := os.ReadFile(filepath.Join("../events", slug+".json"))
		if err != nil {
			t.Fatal(err)
		}
		result, err := h.Call(t.Context(), logicalID(slug), event)
		if err != nil {
			t.Errorf("%s: %v", slug, err)
			continue
		}
		var resp events.APIGatewayV2HTTPResponse
		if err := json.Unmarshal(result.Payload, &resp); err != nil {
			t.Errorf("%s: %v", slug, err)
			continue
		}
		want := http.StatusOK
		if _, priced := catalog.BySlug(slug); priced {
			want = http.StatusPaymentRequired
			if resp.Headers["payment-required"] == "" {
				t.Errorf("%s: no PAYMENT-REQUIRED", slug)
			}
		}
		if body := plainBody(t, resp); resp.StatusCode != want || !json.Valid(body) {
			t.Errorf("%s: status %d, want %d: %.200s", slug, resp.StatusCode, want, body)
		}
		t.Logf("%s: init %v, first answer %v", slug, result.Init, result.First)
	}
}

// plainBody is the body of an answer as a client of the gateway reads it.
func plainBody(t *testing.T, r events.APIGatewayV2HTTPResponse) []byte {
	t.Helper()
	if !r.IsBase64Encoded {
		return []byte(r.Body)
	}
	raw, err := base64.StdEncoding.DecodeString(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if r.Headers["content-encoding"] != "gzip" {
		return raw
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
