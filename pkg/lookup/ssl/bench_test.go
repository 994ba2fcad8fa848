package ssl_test

import (
	"crypto/tls"
	"net"
	"testing"
)

// BenchmarkLookup against a peer on loopback: a certificate that crypto/tls
// takes, one that has to be decrypted from the recording, and for comparison
// the bare handshake.
func BenchmarkLookup(b *testing.B) {
	for name, der := range map[string][]byte{"ordinary": with(b, nil), "refused": with(b, func(p *parts) { p.version = unhex("a003020103") })} {
		b.Run(name, func(b *testing.B) {
			p := tlsPeer(b, [][]byte{der}, ecKey(), nil)
			c := client(p)
			for b.Loop() {
				if _, err := c.Lookup(b.Context(), query()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("bare handshake", func(b *testing.B) {
		p := tlsPeer(b, [][]byte{with(b, nil)}, ecKey(), nil)
		for b.Loop() {
			conn, err := net.Dial("tcp", p.addr)
			if err != nil {
				b.Fatal(err)
			}
			s := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: domain, CurvePreferences: []tls.CurveID{tls.X25519}})
			if err := s.HandshakeContext(b.Context()); err != nil {
				b.Fatal(err)
			}
			s.Close()
		}
	})
}
