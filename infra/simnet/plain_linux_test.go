package simnet

import (
	"net"
	"testing"
)

// openPlain listens on port 80 of a host's addresses.
func (n *internet) openPlain(t *testing.T, h host) {
	t.Helper()
	if h.plain == nil {
		return
	}
	talk := h.plain(n.ca, h.name)
	for _, a := range h.addrs {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(a, "80"))
		if err != nil {
			t.Fatalf("%s: %v", h.name, err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					talk(conn)
				}()
			}
		}()
	}
}

// bareHTTP is an origin without TLS.
func bareHTTP(p page) server {
	return raw(func(_ *authority, _ string, conn net.Conn) {
		answer(conn, p)
	})
}
