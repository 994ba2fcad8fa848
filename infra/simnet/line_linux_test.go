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
	mu        sync.Mutex
	lossShare float64
	draw      *rand.Rand
}

// setLossShare makes the line lose a share of the packets from now on. Two lines with the same
// seed lose the same packets.
func (l *line) setLossShare(share float64, seed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lossShare, l.draw = share, rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the losses must be predictable
}

// losesNext decides whether the line loses the next packet.
func (l *line) losesNext() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lossShare > 0 && l.draw.Float64() < l.lossShare
}

// firstResolver describes what is wrong with the first resolver. The zero value means that
// nothing is wrong.
type firstResolver struct {
	mu         sync.Mutex
	isDead     bool
	replyDelay time.Duration
}

func (f *firstResolver) set(isDead bool, replyDelay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isDead, f.replyDelay = isDead, replyDelay
}

// waitToReply reports whether the resolver at an address replies. If its replies are delayed,
// waitToReply returns only after the delay.
func (f *firstResolver) waitToReply(addr net.Addr) bool {
	if addr.String() != net.JoinHostPort(resolverAddrs()[0], "53") {
		return true
	}
	f.mu.Lock()
	dead, delay := f.isDead, f.replyDelay
	f.mu.Unlock()
	if delay > 0 {
		<-time.After(delay)
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
		var one, other line
		one.setLossShare(c.share, 7)
		other.setLossShare(c.share, 7)
		lost := 0
		for i := range packets {
			gone := one.losesNext()
			if gone != other.losesNext() {
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
	if new(line).losesNext() {
		t.Error("a line that was told nothing loses packets")
	}
}
