package testbed

import (
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"testing"
)

// givenPorts has the ports that FreeAddr has returned. A test may ask for dozens of ports
// before it listens on the first, so FreeAddr must not return a port twice.
var givenPorts sync.Map

// FreeAddr returns an address of 127.0.0.1 to listen on. Its port is below the kernel's range of
// ephemeral ports, so no outgoing connection can take it by chance.
func FreeAddr(tb testing.TB) string {
	for range 1000 {
		port := 20000 + mathrand.IntN(12000)
		if _, before := givenPorts.LoadOrStore(port, true); before {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	tb.Fatal("no free port from 20000 to 31999")
	return ""
}
