package facilitator

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// TestHandshakeThatHangsEndsWithTheCall: net/http would let the handshake go on
// for its own time-out; nothing of ours may outlive the call.
func TestHandshakeThatHangsEndsWithTheCall(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	gone := make(chan error, 1)
	p := newPeer(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1)) // the handshake has begun
		end()
		_, err := io.Copy(io.Discard, c)
		gone <- err
	})
	transport := newTransport(nil, nil)
	transport.TLSHandshakeTimeout = time.Hour
	s := newClient(t, Config{URL: "https://" + p.addr, Transport: transport}).Settle(ctx, testPayload(), testRequirements())
	if s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != "timeout" {
		t.Errorf("got %+v", s)
	}
	if err := <-gone; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection outlived the call")
	}
}

func TestTLSResumesItsSession(t *testing.T) {
	t.Parallel()
	var resumed atomic.Int64
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS.DidResume {
			resumed.Add(1)
		}
		_, _ = io.WriteString(w, settled)
	}))
	defer srv.Close()
	f := newClient(t, Config{URL: srv.URL, Transport: newTransport(nil, trusting(srv))})
	for range 3 {
		if s := settle(t, f); s.Class != x402.Moved {
			t.Fatalf("got %+v", s)
		}
	}
	if n := resumed.Load(); n != 2 {
		t.Errorf("%d of 3 handshakes were resumed, want 2", n)
	}
}

func trusting(srv *httptest.Server) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
}

// BenchmarkSettleTLS is what the choice of a new connection per call rests on.
func BenchmarkSettleTLS(b *testing.B) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, settled)
	}))
	defer srv.Close()
	kept := newTransport(nil, trusting(srv))
	kept.DisableKeepAlives = false
	kept.DialContext = (&net.Dialer{}).DialContext
	full := newTransport(nil, trusting(srv))
	full.TLSClientConfig.ClientSessionCache = nil
	for _, row := range []struct {
		name string
		t    *http.Transport
	}{{"new", newTransport(nil, trusting(srv))}, {"new-full-handshake", full}, {"kept", kept}} {
		b.Run(row.name, func(b *testing.B) {
			f, err := New(Config{URL: srv.URL, Transport: row.t})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if s := f.Settle(b.Context(), testPayload(), testRequirements()); s.Class != x402.Moved {
					b.Fatal(s)
				}
			}
			row.t.CloseIdleConnections()
		})
	}
}
