package clients

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	signatureHeader = "PAYMENT-SIGNATURE"
	keyHeader       = "Idempotency-Key"
)

// gateway stands in front of a service, as API Gateway does, and keeps the
// signatures and the keys that it sees. A service that does not answer is a lost connection.
type gateway struct {
	url    string
	client *http.Client

	mu         sync.Mutex
	service    string
	mishaps    []mishap
	signatures []string // different ones, in the order of their first use
	keys       []string // the same
	paid       int      // requests with one
}

// mishap is what a client gets in place of the service's answer to a paid
// request, which the service has given.
type mishap func(g *gateway, w http.ResponseWriter, r *http.Request)

// newGateway starts one. The first paid requests go as mishaps say, the others
// well.
func newGateway(t *testing.T, s service, mishaps ...mishap) *gateway {
	t.Helper()
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	g := &gateway{service: s.url, mishaps: mishaps, client: &http.Client{Transport: transport, Timeout: patience}}
	g.url = listen(t, g.ServeHTTP)
	return g
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	service, next := g.take(r.Header.Get(signatureHeader), r.Header.Get(keyHeader))
	status, header, body := g.ask(r, service)
	if next != nil {
		next(g, w, r)
		return
	}
	for name, values := range header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

// take notes a request and says what becomes of it.
func (g *gateway) take(signature, key string) (service string, next mishap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if signature == "" {
		return g.service, nil
	}
	g.paid++
	if !slices.Contains(g.signatures, signature) {
		g.signatures = append(g.signatures, signature)
	}
	if !slices.Contains(g.keys, key) {
		g.keys = append(g.keys, key)
	}
	if len(g.mishaps) > 0 {
		next, g.mishaps = g.mishaps[0], g.mishaps[1:]
	}
	return g.service, next
}

// ask passes a request on.
func (g *gateway) ask(r *http.Request, service string) (status int, header http.Header, body []byte) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, service+r.URL.RequestURI(), nil)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	res, err := g.client.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return res.StatusCode, res.Header, body
}

// one holds a program to what makes its requests one purchase: the same
// signature, or the same key with a signature of each attempt. It returns the
// first signature.
func (g *gateway) one(t *testing.T, p program) string {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	signatures := 1
	if p.id == "retries" {
		signatures = g.paid
	}
	if len(g.signatures) != signatures || len(g.keys) != 1 || (g.keys[0] == "") != (p.id == "signed") {
		t.Fatalf("%s: %d signatures in %d requests, keys %q", p.id, len(g.signatures), g.paid, g.keys)
	}
	return g.signatures[0]
}

func (g *gateway) requests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.paid
}

// says is an answer as it is given, with Retry-After when after is not empty.
func says(status int, after, body string) mishap {
	return func(_ *gateway, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the client may be gone
	}
}

// lost is a connection that ends without an answer.
func lost(*gateway, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// cut is an answer that ends in the middle.
func cut(_ *gateway, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, `{"domain":"exam`)
	panic(http.ErrAbortHandler)
}

// offered is the offer once more: the payment is not accepted.
func offered(g *gateway, w http.ResponseWriter, r *http.Request) {
	bare := r.Clone(r.Context())
	bare.Header.Del(signatureHeader)
	g.ServeHTTP(w, bare)
}

// silent gives no answer while the client waits for one. It closes held when
// it has the request.
func silent(held chan<- struct{}) mishap {
	return func(_ *gateway, _ http.ResponseWriter, r *http.Request) {
		close(held)
		select {
		case <-r.Context().Done():
		case <-time.After(patience):
		}
	}
}
