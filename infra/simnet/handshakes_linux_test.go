package simnet

import (
	"bytes"
	"encoding/binary"
	"net"
)

// sends answers the first bytes with bytes, and waits for the client to leave.
func sends(out ...[]byte) server {
	return raw(func(_ *authority, _ string, conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<14))
		for _, b := range out {
			_, _ = conn.Write(b)
		}
		swallow(conn)
	})
}

// helloTLS12 is a ServerHello of TLS 1.2 with a suite that everybody offers.
func helloTLS12() []byte {
	hello := append([]byte{3, 3}, make([]byte, 32+1)...) // random, no session
	return handshakeRecord(2, append(hello, 0xc0, 0x2b, 0))
}

// leafRecord is the Certificate message of TLS 1.2 with one certificate.
func leafRecord(leaf []byte) []byte {
	chain := append(length24(len(leaf)), leaf...)
	return handshakeRecord(11, append(length24(len(chain)), chain...))
}

// cutsAfterLeaf shows its certificate over TLS 1.2 and then does something else
// than going on.
func cutsAfterLeaf(end func(net.Conn)) server {
	return raw(func(ca *authority, name string, conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<14))
		_, _ = conn.Write(append(helloTLS12(), leafRecord(ca.Leaf(name).Certificate[0])...))
		end(conn)
	})
}

func resetNow(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// floods sends a Certificate message that never ends.
func floods() server {
	return raw(func(_ *authority, _ string, conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<14))
		head := append(helloTLS12(), 22, 3, 3, 0, 10, 11, 3, 0xff, 0xff, 3, 0xff, 0xfc, 3, 0xff, 0xf9)
		_, err := conn.Write(head)
		filler := append(binary.BigEndian.AppendUint16([]byte{22, 3, 3}, 1<<14), bytes.Repeat([]byte{0}, 1<<14)...)
		for err == nil {
			_, err = conn.Write(filler)
		}
	})
}

// dripsTLS sends the largest record slowly.
func dripsTLS() server {
	return raw(func(_ *authority, _ string, conn net.Conn) {
		dripOut(conn, string(append([]byte{22, 3, 3, 0x40, 0}, make([]byte, 1<<14)...)))
	})
}
