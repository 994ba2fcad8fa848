package ssl

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestSlow checks peers that never complete the handshake and never close the connection, so a
// lookup that ignored its context would hang. If the peer has sent its certificate, the lookup
// must return the certificate when its time ends. Otherwise it must return ssl_timeout. This
// error must be marked as the host's silence if the time ended, but not if the caller
// cancelled the lookup.
func TestSlow(t *testing.T) {
	der := certificateWith(nil)
	longChain := [][]byte{der, certificateWith(func(p *certParts) { p.tail = tlv(0xa3, make([]byte, 60<<10)) })}
	drip := func(c net.Conn) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for _, err := c.Write([]byte{22, 3, 3, 0x40, 0}); err == nil; _, err = c.Write([]byte{0}) {
			<-tick.C
		}
	}
	var greetings atomic.Int32
	refuseThenHang := func(c net.Conn) {
		if greetings.Add(1)%2 == 1 {
			scriptedServer([]byte{21, 3, 1, 0, 2, 2, 40})(c)
		}
		readUntilClose(c)
	}
	type row struct {
		serve func(net.Conn)
		leaf  bool
	}
	testbed.Each(t, map[string]row{
		"silence":                 {scriptedServer(), false},
		"refusal, then silence":   {refuseThenHang, false},
		"half a record":           {scriptedServer([]byte{22, 3, 3}), false},
		"hello, then silence":     {scriptedServer(helloTLS12()), false},
		"half a certificate":      {haltingServer([][]byte{der}, tls.VersionTLS12, 200, readUntilClose), false},
		"drip":                    {drip, false},
		"after the flight":        {haltingServer([][]byte{der}, tls.VersionTLS12, 0, readUntilClose), true},
		"inside the message":      {haltingServer(longChain, tls.VersionTLS12, 20<<10, readUntilClose), true},
		"inside the message, 1.3": {haltingServer(longChain, tls.VersionTLS13, 20<<10, readUntilClose), true},
		"refused and then silent": {haltingServer([][]byte{append(der, 0)}, tls.VersionTLS12, 0, readUntilClose), true},
	}, func(t *testing.T, c row) {
		w := startPeer(t, c.serve)
		if c.leaf {
			wantLeaf(t, w)
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		r, err := newClient(w.Dialer()).Lookup(ctx, testQuery())
		if testbed.Code(err) != lookup.SSLTimeout || !fault.From(err).IsSilence() {
			t.Errorf("%+v, %v", r, err)
		}
		cancelledCtx, leave := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		if r, err := newClient(w.Dialer()).Lookup(cancelledCtx, testQuery()); testbed.Code(err) != lookup.SSLTimeout || fault.From(err).IsSilence() {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// wantLeaf looks up a host that sends its certificate and then stays silent. The lookup must
// return the certificate when its time ends.
func wantLeaf(t *testing.T, w *testbed.Origins) {
	t.Helper()
	for limit := 500 * time.Millisecond; ; limit *= 2 { // on a busy machine, the first time limit may be too short for the certificate to arrive
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		r, err := newClient(w.Dialer()).Lookup(ctx, testQuery())
		cancel()
		if err == nil && r.Subject == "CN="+testDomain && textOrNull(r.TLSVersion) != "null" {
			return
		}
		if limit > time.Minute {
			t.Errorf("%+v, %v within %s", r, err, limit)
			return
		}
	}
}
