package cloud

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// maxHead is the gateway's limit for the request line and the headers together, in bytes (AWS:
// quotas for HTTP APIs).
const maxHead = 10240

// serve handles a request like an HTTP API with the $default stage. If the function fails,
// crashes or exceeds Lambda's time limit, the client gets a 500. The function continues when its
// client hangs up.
func (h *Host) serve(w http.ResponseWriter, r *http.Request) {
	id := rand.Text()
	w.Header().Set("Apigw-Requestid", id)
	if headSize(r) > maxHead {
		refuse(w, http.StatusRequestHeaderFieldsTooLarge)
		return
	}
	key, function := h.route(r)
	if function == "" {
		refuse(w, http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has hung up
	}
	event, err := json.Marshal(h.event(r, key, id, body))
	if err != nil {
		refuse(w, http.StatusInternalServerError)
		return
	}
	payload, _, err := h.Call(function, event)
	if err != nil {
		payload = nil
	}
	respond(w, payload)
}

// route returns the most specific route that matches a request, and the route's function. A
// method with a path is most specific, then ANY with a path, then $default.
func (h *Host) route(r *http.Request) (key, function string) {
	for _, key := range []string{r.Method + " " + r.URL.Path, "ANY " + r.URL.Path, "$default"} {
		if name, ok := h.routes[key]; ok {
			return key, name
		}
	}
	return "", ""
}

// headSize returns the size that the request line and the headers have in HTTP/1.1, in bytes.
func headSize(r *http.Request) int {
	n := len(r.Method+r.RequestURI+r.Proto+r.Host) + len("  \r\nHost: \r\n")
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name+v) + len(": \r\n")
		}
	}
	return n
}

// event returns a request in payload format 2.0 (AWS: Create AWS Lambda proxy integrations for
// HTTP APIs), with the members that a function reads. The path is decoded, the names of headers
// are in lower case, repeated headers are joined with commas, and cookies are in the member
// cookies.
func (h *Host) event(r *http.Request, key, id string, body []byte) events.APIGatewayV2HTTPRequest {
	source, _, _ := net.SplitHostPort(r.RemoteAddr) // cannot fail in a server
	if h.deployment.Source != nil {
		source = h.deployment.Source()
	}
	e := events.APIGatewayV2HTTPRequest{
		Version:        "2.0",
		RouteKey:       key,
		RawPath:        r.URL.Path,
		RawQueryString: r.URL.RawQuery,
		Headers:        map[string]string{"host": r.Host, "x-forwarded-port": "443", "x-forwarded-proto": "https"},
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey:   key,
			Stage:      "$default",
			RequestID:  id,
			DomainName: Domain,
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method:    r.Method,
				Path:      r.URL.Path,
				Protocol:  r.Proto,
				SourceIP:  source,
				UserAgent: r.UserAgent(),
			},
		},
	}
	for name, values := range r.Header {
		if lower := strings.ToLower(name); !isHopByHop(lower) && lower != "cookie" {
			e.Headers[lower] = strings.Join(values, ",")
		}
	}
	for _, cookie := range r.Cookies() {
		e.Cookies = append(e.Cookies, cookie.String())
	}
	e.Headers["x-forwarded-for"] = strings.TrimPrefix(e.Headers["x-forwarded-for"]+", "+source, ", ")
	if e.Body = string(body); !utf8.Valid(body) {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return e
}

// isHopByHop reports whether a header is only for one connection (RFC 9110 section 7.6.1).
// The name of the header is in lower case.
func isHopByHop(lower string) bool {
	return slices.Contains([]string{
		"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
	}, lower)
}

// respond writes the response that a function returned.
func respond(w http.ResponseWriter, payload []byte) {
	var answer events.APIGatewayV2HTTPResponse
	err := json.Unmarshal(payload, &answer)
	body := []byte(answer.Body)
	if err == nil && answer.IsBase64Encoded {
		body, err = base64.StdEncoding.DecodeString(answer.Body)
	}
	if err != nil || answer.StatusCode < 200 || answer.StatusCode > 599 {
		refuse(w, http.StatusInternalServerError)
		return
	}
	for name, value := range answer.Headers {
		if lower := strings.ToLower(name); lower != "content-length" && !isHopByHop(lower) {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(body) // fails if the client has hung up
}

// refuse writes an error response that the gateway itself makes.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": http.StatusText(status)})
}
