package lambdahttp

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// MaxResponse is the largest answer that Lambda carries, in bytes of the
// encoded payload (AWS: Lambda quotas, synchronous invocation, 6 MB).
const MaxResponse = 6 << 20

// surelyFits is a body size below which no encoding of a payload can pass
// MaxResponse: JSON makes at most six bytes of one, and headers are small.
const surelyFits = 768 << 10

var errTooLarge = errors.New("lambdahttp: response is above 6 MB")

// recorder is the http.ResponseWriter of one event. Lambda's HTTP API
// integration has no streaming, so the whole answer is kept.
type recorder struct {
	header   http.Header
	status   int         // 0 until the header is written
	sent     http.Header // the header as it was when it was written
	body     []byte
	tooLarge bool
}

func (w *recorder) Header() http.Header { return w.header }

// WriteHeader keeps the first final status, like net/http. Informational ones
// cannot be carried and are dropped.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("lambdahttp: invalid status %d", status))
	}
	if w.status != 0 || status < 200 {
		return
	}
	w.status, w.sent = status, w.header.Clone()
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if len(w.body)+len(p) > MaxResponse {
		w.tooLarge = true
		return 0, errTooLarge
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

// response is what was recorded, in payload format 2.0.
func (w *recorder) response(method string) (events.APIGatewayV2HTTPResponse, error) {
	var none events.APIGatewayV2HTTPResponse
	if w.tooLarge {
		return none, errTooLarge
	}
	w.WriteHeader(http.StatusOK)
	out := events.APIGatewayV2HTTPResponse{StatusCode: w.status, Headers: make(map[string]string, len(w.sent)+1)}
	if len(w.body) > 0 && w.sent.Get("Content-Type") == "" {
		// As net/http does; the gateway would guess without looking.
		w.sent.Set("Content-Type", http.DetectContentType(w.body))
	}
	line := strings.NewReplacer("\r", " ", "\n", " ")
	for name, values := range w.sent {
		switch name {
		case "Set-Cookie":
			// The one header whose values cannot be joined (RFC 9110 §5.3).
			for _, v := range values {
				out.Cookies = append(out.Cookies, line.Replace(v))
			}
		case "Content-Length":
			// The gateway counts for itself, after decoding.
		default:
			out.Headers[strings.ToLower(name)] = line.Replace(strings.Join(values, ", "))
		}
	}
	if method == http.MethodHead || w.status == http.StatusNoContent || w.status == http.StatusNotModified {
		return out, nil
	}
	// What is encoded is bytes, whatever they look like.
	if w.sent.Get("Content-Encoding") == "" && utf8.Valid(w.body) {
		out.Body = string(w.body)
	} else {
		out.Body, out.IsBase64Encoded = base64.StdEncoding.EncodeToString(w.body), true
	}
	if len(w.body) <= surelyFits {
		return out, nil
	}
	encoded, err := json.Marshal(out)
	if err != nil {
		return none, fmt.Errorf("encode response: %w", err)
	}
	if len(encoded) > MaxResponse {
		return none, errTooLarge
	}
	return out, nil
}
