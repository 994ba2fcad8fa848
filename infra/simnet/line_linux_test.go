package simnet

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// line is one direction of the connection between the namespaces. It may lose packets. The
// zero value loses none.
type line struct {
	mu    sync.Mutex
	share float64
	draw  *rand.Rand
}

// lose makes the line lose a share of the packets from now on. Two lines with the same seed
// lose the same packets.
func (l *line) lose(share float64, seed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share, l.draw = share, rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the losses must be predictable
}

// loses decides whether the line loses the next packet.
func (l *line) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.share > 0 && l.draw.Float64() < l.share
}

// firstResolver describes what is wrong with the first resolver. The zero value means that
// nothing is wrong.
type firstResolver struct {
	mu   sync.Mutex
	dead bool
	late time.Duration
}

func (f *firstResolver) become(dead bool, late time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead, f.late = dead, late
}

// replies reports whether the resolver at an address replies. If the resolver is slow, replies
// returns only after the delay.
func (f *firstResolver) replies(at net.Addr) bool {
	if at.String() != net.JoinHostPort(resolverAddrs()[0], "53") {
		return true
	}
	f.mu.Lock()
	dead, late := f.dead, f.late
	f.mu.Unlock()
	if late > 0 {
		<-time.After(late)
	}
	return !dead
}

// TestLine checks that two lines with the same seed lose the same packets, and that the lost
// share is about the wanted one.
func TestLine(t *testing.T) {
	t.Parallel()
	const packets = 10_000
	for _, c := range []struct {
		share       float64
		least, most int
	}{{0, 0, 0}, {0.02, 150, 250}, {0.05, 425, 575}, {1, packets, packets}} {
		var one, same line
		one.lose(c.share, 7)
		same.lose(c.share, 7)
		lost := 0
		for i := range packets {
			gone := one.loses()
			if gone != same.loses() {
				t.Fatalf("of packet %d the lines say different things", i)
			}
			if gone {
				lost++
			}
		}
		if lost < c.least || lost > c.most {
			t.Errorf("%g of %d packets: %d were lost", c.share, packets, lost)
		}
	}
	if new(line).loses() {
		t.Error("a line that was told nothing loses packets")
	}
}
