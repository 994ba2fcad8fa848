package simnet

import (
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// tap sees every packet of the namespace that opens a TCP connection or carries UDP.
type tap struct {
	fd   int
	mu   sync.Mutex
	seen map[netip.AddrPort][]byte // the head of the last packet to each
}

// opens is a packet filter (BPF) for TCP segments with SYN and without ACK and
// for UDP, over IPv4 and IPv6. It takes the head of such a packet only.
func opens() []syscall.SockFilter {
	const (
		loadByte   = syscall.BPF_LD | syscall.BPF_B | syscall.BPF_ABS
		loadAfterX = syscall.BPF_LD | syscall.BPF_B | syscall.BPF_IND
		headerToX  = syscall.BPF_LDX | syscall.BPF_B | syscall.BPF_MSH
		and        = syscall.BPF_ALU | syscall.BPF_AND | syscall.BPF_K
		equal      = syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K
		give       = syscall.BPF_RET | syscall.BPF_K
		udp, tcp   = 17, 6
	)
	return []syscall.SockFilter{
		{Code: loadByte, K: 0},
		{Code: and, K: 0xf0},
		{Code: equal, K: 0x40, Jf: 6}, // else to IPv6
		{Code: loadByte, K: 9},
		{Code: equal, K: udp, Jt: 11},
		{Code: equal, K: tcp, Jf: 9},
		{Code: headerToX, K: 0},
		{Code: loadAfterX, K: 13},
		{Code: syscall.BPF_JMP | syscall.BPF_JA, K: 4}, // to the flags
		{Code: loadByte, K: 6},                         // IPv6
		{Code: equal, K: udp, Jt: 5},
		{Code: equal, K: tcp, Jf: 3},
		{Code: loadByte, K: 40 + 13},
		{Code: and, K: 0x12}, // the flags SYN and ACK
		{Code: equal, K: 0x02, Jt: 1},
		{Code: give, K: 0},
		{Code: give, K: 128},
	}
}

func newTap(t *testing.T) *tap {
	// Without a protocol the socket gets nothing, so that no packet comes in
	// before the filter is there.
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("tap: %v", err)
	}
	filter := opens()
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := syscall.Syscall6(syscall.SYS_SETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, syscall.SO_ATTACH_FILTER,
		uintptr(unsafe.Pointer(&program)), unsafe.Sizeof(program), 0); errno != 0 {
		t.Fatalf("tap: filter: %v", errno)
	}
	// Room for bursts. Where only root of the machine may ask for that much, the
	// usual room will do, and dropped says if it does not.
	if syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 16<<20) != nil {
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 16<<20)
	}
	const all = 0x0300 // ETH_P_ALL in network order
	if err := syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: all}); err != nil {
		t.Fatalf("tap: %v", err)
	}
	p := &tap{fd: fd, seen: map[netip.AddrPort][]byte{}}
	packets, done := os.NewFile(uintptr(fd), "tap"), make(chan struct{})
	go func() {
		defer close(done)
		p.read(packets)
	}()
	t.Cleanup(func() {
		packets.Close()
		<-done
	})
	return p
}

// read returns when the file is closed.
func (p *tap) read(packets io.Reader) {
	b := make([]byte, 256)
	for {
		n, err := packets.Read(b)
		if err != nil {
			return
		}
		if to, ok := destination(b[:n]); ok {
			p.mu.Lock()
			p.seen[to] = bytes.Clone(b[:n])
			p.mu.Unlock()
		}
	}
}

func destination(b []byte) (to netip.AddrPort, ok bool) {
	var addr netip.Addr
	head := 40
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		head, addr = int(b[0]&0xf)*4, netip.AddrFrom4([4]byte(b[16:20]))
	case len(b) >= 40 && b[0]>>4 == 6:
		addr = netip.AddrFrom16([16]byte(b[24:40]))
	}
	if !addr.IsValid() || len(b) < head+4 {
		return to, false
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[head+2:])), true
}

// all are the places that were called so far, each with a packet.
func (p *tap) all() map[netip.AddrPort][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

// dropped is how many packets the kernel could not give to the tap since it was last asked.
func (p *tap) dropped(t *testing.T) uint32 {
	const statistics = 6 // PACKET_STATISTICS
	var v struct{ packets, drops uint32 }
	size := uint32(unsafe.Sizeof(v))
	if _, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(p.fd), syscall.SOL_PACKET, statistics,
		uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		t.Fatalf("tap: statistics: %v", errno)
	}
	return v.drops
}

// proveTap connects where nobody else would, wants the tap to have seen it, and returns where.
func proveTap(t *testing.T, p *tap) []netip.AddrPort {
	own := []netip.AddrPort{netip.MustParseAddrPort("10.99.99.99:443"), netip.MustParseAddrPort("[fd99::99]:443")}
	for _, to := range own {
		conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", to.String())
		if err == nil {
			conn.Close()
			t.Fatalf("somebody listens on %s", to)
		}
	}
	limit := time.Now().Add(patience)
	for ; p.all()[own[0]] == nil || p.all()[own[1]] == nil; <-time.After(100 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("the tap did not see the connections to %v", own)
		}
	}
	return own
}
