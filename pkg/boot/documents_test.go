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
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lambdahttp"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// document asks the discovery function for a document, as API Gateway does.
func document(t *testing.T, h lambdahttp.Handler, method, path string, header map[string]string) events.APIGatewayV2HTTPResponse {
	t.Helper()
	e := events.APIGatewayV2HTTPRequest{Version: lambdahttp.Version, RawPath: path, Headers: header}
	e.RequestContext.RequestID, e.RequestContext.DomainName = "id", "api.example.com"
	e.RequestContext.HTTP.Method = method
	return must(h(t.Context(), must(json.Marshal(e))))
}

// Through the gateway, too, each document comes as text or, where the client
// takes it, as gzip in base64, which is the same text with another ETag.
func TestDocumentsThroughTheGateway(t *testing.T) {
	t.Parallel()
	c := must(readDiscovery(env(deployed())))
	log := slog.New(slog.DiscardHandler)
	h := lambdahttp.New(service.Discovery(c.platform(log, time.Now), c.offering(nil), nil), log)
	paths := []string{"/favicon.svg", "/robots.txt"}
	for _, path := range catalog.FreePaths() {
		if path != catalog.PathHealth && path != catalog.PathReady {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			plain := document(t, h, http.MethodGet, path, nil)
			if plain.StatusCode != http.StatusOK || plain.IsBase64Encoded || plain.Headers["content-encoding"] != "" || plain.Body == "" {
				t.Fatalf("plain: %d, base64 %v, %v", plain.StatusCode, plain.IsBase64Encoded, plain.Headers)
			}
			zipped := document(t, h, http.MethodGet, path, map[string]string{"accept-encoding": "gzip, br"})
			if zipped.StatusCode != http.StatusOK || !zipped.IsBase64Encoded || zipped.Headers["content-encoding"] != "gzip" {
				t.Fatalf("gzip: %d, base64 %v, %v", zipped.StatusCode, zipped.IsBase64Encoded, zipped.Headers)
			}
			if text := unzip(zipped.Body); text != plain.Body {
				t.Errorf("gzip holds another text of %d bytes, want %d", len(text), len(plain.Body))
			}
			for _, get := range []events.APIGatewayV2HTTPResponse{plain, zipped} {
				if get.Headers["vary"] != "Accept-Encoding" || get.Headers["etag"] == "" {
					t.Errorf("headers %v", get.Headers)
				}
				asked := map[string]string{"accept-encoding": get.Headers["content-encoding"]}
				head := document(t, h, http.MethodHead, path, asked)
				if diff := cmp.Diff(get.Headers, head.Headers); diff != "" || head.StatusCode != http.StatusOK || head.Body != "" || head.IsBase64Encoded {
					t.Errorf("HEAD: %d with %d bytes (-GET +HEAD):\n%s", head.StatusCode, len(head.Body), diff)
				}
				asked["if-none-match"] = "W/" + get.Headers["etag"]
				same := document(t, h, http.MethodGet, path, asked)
				if same.StatusCode != http.StatusNotModified || same.Body != "" || same.IsBase64Encoded || same.Headers["etag"] != get.Headers["etag"] ||
					same.Headers["vary"] != "Accept-Encoding" || same.Headers["content-encoding"] != "" {
					t.Errorf("again: %d with %d bytes, %v", same.StatusCode, len(same.Body), same.Headers)
				}
			}
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
