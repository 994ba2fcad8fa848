package gameday

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// patience is how long a scenario waits for what must happen.
const patience = 60 * time.Second

// door is a server at a fixed address that can be shut, so that connections to
// it are refused, and opened again. Addresses of the namespace below the
// ephemeral ports are nobody else's.
type door struct {
	addr    string
	handler http.Handler

	mu     sync.Mutex
	server *http.Server // nil when it is shut
}

// openDoor serves at an address until the test ends.
func openDoor(t *testing.T, addr string, h http.Handler) *door {
	t.Helper()
	d := &door{addr: addr, handler: h}
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.shut)
	return d
}

func (d *door) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		return nil
	}
	listener, err := net.Listen("tcp", d.addr)
	if err != nil {
		return err
	}
	d.server = &http.Server{Handler: d.handler, ReadHeaderTimeout: patience}
	go func() { _ = d.server.Serve(listener) }() // ends with an error when it is shut
	return nil
}

// shut ends every connection too.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		_ = d.server.Close()
		d.server = nil
	}
}
