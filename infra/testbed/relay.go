package testbed

import (
	"bytes"
	"context"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"testing"
)

// Relay is an http.Handler in front of a server, whose handler is To. The function Do gets each
// request. It can let the server answer, change the answer, drop it or hold it back.
type Relay struct {
	To http.Handler
	Do func(*Relayed)
}

// Relayed is one request that a Relay got. Its body has been read, and can be read again.
type Relayed struct {
	http.ResponseWriter
	*http.Request
	Sent []byte // the body of the request

	server http.Handler
}

// ServeHTTP implements http.Handler.
func (r Relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the client has hung up
	}
	q.Body = io.NopCloser(bytes.NewReader(body))
	r.Do(&Relayed{
		ResponseWriter: w,
		Request:        q,
		Sent:           body,
		server:         r.To,
	})
}

// Answer lets the server answer. The server finishes its work even if the client no longer
// waits.
func (r *Relayed) Answer() *httptest.ResponseRecorder {
	q := r.Request.Clone(context.WithoutCancel(r.Context()))
	q.Body = io.NopCloser(bytes.NewReader(r.Sent))
	answer := httptest.NewRecorder()
	r.server.ServeHTTP(answer, q)
	return answer
}

// Send sends the client an answer. Of the body, it sends at most maxBody bytes. If the body is
// longer, Send then resets the connection.
func (r *Relayed) Send(answer *httptest.ResponseRecorder, maxBody int) {
	body := answer.Body.Bytes()
	maps.Copy(r.ResponseWriter.Header(), answer.Header())
	if r.Method != http.MethodHead && mayHaveBody(answer.Code) {
		r.ResponseWriter.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	r.WriteHeader(answer.Code)
	_, _ = r.ResponseWriter.Write(body[:min(maxBody, len(body))]) // fails if the client has hung up
	if maxBody < len(body) {
		_ = http.NewResponseController(r.ResponseWriter).Flush()
		r.Drop()
	}
}

// mayHaveBody reports whether an answer with this status can have a body.
func mayHaveBody(status int) bool {
	switch status {
	case http.StatusNoContent, http.StatusNotModified:
		return false
	}
	return status >= http.StatusOK
}

// Pass lets the server answer, and sends the complete answer to the client.
func (r *Relayed) Pass() {
	answer := r.Answer()
	r.Send(answer, answer.Body.Len())
}

// Drop resets the connection, like a network failure.
func (r *Relayed) Drop() {
	connection, _, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // makes Close send RST
	}
	_ = connection.Close()
}

// Hold waits, without an answer, until the client gives up.
func (r *Relayed) Hold() { <-r.Context().Done() }

// ProxyTo returns a handler that forwards requests to a URL. If the server at this URL does
// not answer, the handler closes the client's connection.
func ProxyTo(tb testing.TB, to string) http.Handler {
	u := Must(url.Parse(to))
	return &httputil.ReverseProxy{
		Transport:    &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(u) },
	}
}

// Serve serves a handler until the test ends, and returns its URL. Every request has a new
// connection. If a connection were used for several requests and broke, a browser would repeat
// the request by itself.
func Serve(tb testing.TB, h http.Handler) string {
	server := httptest.NewUnstartedServer(h)
	server.Config.SetKeepAlivesEnabled(false)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
