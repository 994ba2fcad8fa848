package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A page that had its own name resolve to this machine gets no tools.
func TestAtHome(t *testing.T) {
	here, everywhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8402}, &net.TCPAddr{IP: net.IPv4zero, Port: 8402}
	for _, c := range []struct {
		listening    net.Addr
		base, path   string
		host, origin string
		status       int
	}{
		{here, "http://127.0.0.1:8402", "/mcp", "127.0.0.1:8402", "", 200},
		{here, "http://127.0.0.1:8402", "/mcp", "localhost:8402", "http://localhost:6274", 200},
		{here, "http://127.0.0.1:8402", "/mcp", "[::1]:8402", "http://[::1]:1", 200},
		{here, "http://127.0.0.1:8402", "/mcp", "LOCALHOST", "", 200},
		{here, "http://127.0.0.1:8402", "/mcp", "evil.example.com", "", 403},
		{here, "http://127.0.0.1:8402", "/mcp", "evil.example.com:8402", "http://evil.example.com:8402", 403},
		{here, "http://127.0.0.1:8402", "/mcp", "127.0.0.1:8402", "https://evil.example.com", 403},
		{here, "http://127.0.0.1:8402", "/mcp", "127.0.0.1:8402", "null", 403},
		{here, "http://127.0.0.1:8402", "/mcp", "127.0.0.1.evil.example.com", "", 403},
		{here, "http://127.0.0.1:8402", "/docs", "evil.example.com", "https://evil.example.com", 200},
		{here, "https://api.example.com", "/mcp", "api.example.com", "https://api.example.com", 200}, // behind a proxy here
		{everywhere, "http://127.0.0.1:8402", "/mcp", "my-machine.example.com", "https://evil.example.com", 200},
	} {
		h := atHome(c.listening, c.base, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest(http.MethodPost, c.path, nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}
