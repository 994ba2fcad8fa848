package facilitator

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	gone := make(chan struct{})
	p := newPeer(t, func(_ int64, c net.Conn) {
		untilGone(c)
		close(gone)
	})
	f := newClient(t, Config{URL: "https://" + p.addr})
	start := time.Now()
	s := f.Settle(within(t, 150*time.Millisecond), testPayload(), testRequirements())
	if s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || s.Reason != "timeout" {
		t.Errorf("got %+v", s)
	}
	<-gone
	if took := time.Since(start); took > tlsTimeout/2 {
		t.Errorf("the connection lived for %s", took)
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
