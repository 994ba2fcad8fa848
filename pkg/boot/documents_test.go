package boot

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// document asks the discovery function for a document, as API Gateway does.
func document(t *testing.T, h EventHandler, path string, header map[string]string) events.APIGatewayV2HTTPResponse {
	t.Helper()
	e := events.APIGatewayV2HTTPRequest{Version: eventVersion, RawPath: path, Headers: header}
	e.RequestContext.RequestID, e.RequestContext.DomainName = "id", "api.example.com"
	e.RequestContext.HTTP.Method = http.MethodGet
	return must(h(t.Context(), must(json.Marshal(e))))
}

// Through the gateway, too, each document comes as text or, where the client
// takes it, as gzip in base64, which is the same text with another ETag. What HEAD
// and a conditional request are answered is held by package discovery and by the tests of NewEventHandler.
func TestDocumentsThroughTheGateway(t *testing.T) {
	t.Parallel()
	c := must(readDiscovery(env(deployed())))
	log := slog.New(slog.DiscardHandler)
	h := NewEventHandler(service.Discovery(c.platform(log, time.Now), c.offering(nil), nil), log)
	paths := []string{"/favicon.svg", "/robots.txt"}
	for _, path := range catalog.FreePaths() {
		if path != catalog.PathHealth && path != catalog.PathReady {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			plain := document(t, h, path, nil)
			zipped := document(t, h, path, map[string]string{"accept-encoding": "gzip, br"})
			for encoding, got := range map[string]events.APIGatewayV2HTTPResponse{"": plain, "gzip": zipped} {
				if got.StatusCode != http.StatusOK || got.IsBase64Encoded != (encoding != "") || got.Body == "" ||
					got.Headers["content-encoding"] != encoding || got.Headers["vary"] != "Accept-Encoding" || got.Headers["etag"] == "" {
					t.Fatalf("%q: %d, base64 %v, %v", encoding, got.StatusCode, got.IsBase64Encoded, got.Headers)
				}
			}
			same(t, "what gzip holds", unzip(zipped.Body), plain.Body)
			if plain.Headers["etag"] == zipped.Headers["etag"] {
				t.Errorf("both have the ETag %s", plain.Headers["etag"])
			}
		})
	}
}

func unzip(body string) string {
	z := must(gzip.NewReader(bytes.NewReader(must(base64.StdEncoding.DecodeString(body)))))
	return string(must(io.ReadAll(z)))
}
