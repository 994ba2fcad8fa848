package simnet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// maxQueue is how many packets are on the way at once; a router's queue is
// shorter.
const maxQueue = 8192

// line carries packets one way, in order, each a fixed time after it came.
type line struct {
	from, to *os.File
	delay    time.Duration
	queue    chan packet
	lost     atomic.Int64 // found the queue full

	mu   sync.Mutex
	sent map[flow]bool
}

type packet struct {
	due time.Time
	b   []byte
}

// flow is one thing that somebody sent out: a question to a resolver, or a
// connection that was opened. What is sent again is the same flow.
type flow struct {
	to       netip.AddrPort
	question string // such as "example.com. A"; empty for a connection
	id       string // tells two alike apart
}

func newLine(from, to *os.File, delay time.Duration) *line {
	return &line{from: from, to: to, delay: delay, queue: make(chan packet, maxQueue), sent: map[flow]bool{}}
}

// carry returns when an end is closed and nothing is on the way any more.
func (l *line) carry() {
	go l.take()
	for p := range l.queue {
		sleepUntil(p.due)
		_, _ = l.to.Write(p.b) // lost when the other end is closed, as on any line
	}
}

func (l *line) take() {
	defer close(l.queue)
	buf := make([]byte, 1<<16)
	for {
		n, err := l.from.Read(buf)
		due := time.Now().Add(l.delay)
		if err != nil {
			return
		}
		b := bytes.Clone(buf[:n])
		l.note(b)
		select {
		case l.queue <- packet{due, b}:
		default:
			l.lost.Add(1)
		}
	}
}

// sleepUntil asks the kernel, whose timers are good to a tenth of a
// millisecond: those of the Go runtime wait in whole milliseconds.
func sleepUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		pause := syscall.NsecToTimespec(left.Nanoseconds())
		_ = syscall.Nanosleep(&pause, nil) // a signal ends it early
	}
}

// note remembers what a packet is about, if it opens something.
func (l *line) note(b []byte) {
	s, ok := segmentOf(b)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.protocol == syscall.IPPROTO_UDP && s.to.Port() == 53 && len(s.body) > 8:
		q := new(dns.Msg)
		if q.Unpack(s.body[8:]) == nil && len(q.Question) == 1 {
			ask := q.Question[0]
			l.sent[flow{s.to, strings.ToLower(ask.Name) + " " + dns.TypeToString[ask.Qtype], fmt.Sprint(q.Id, ask.Name)}] = true
		}
	case s.protocol == syscall.IPPROTO_TCP && len(s.body) > 13 && s.body[13]&0x12 == 0x02: // SYN without ACK
		l.sent[flow{to: s.to, id: fmt.Sprint(binary.BigEndian.Uint16(s.body))}] = true
	}
}

// flows are what was sent out since the last call: the questions to one
// resolver, sorted, and the connections to anybody.
func (l *line) flows(resolver netip.Addr) (questions []string, connections []netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.sent {
		switch {
		case f.question == "":
			connections = append(connections, f.to)
		case f.to.Addr() == resolver:
			questions = append(questions, f.question)
		}
	}
	clear(l.sent)
	slices.Sort(questions)
	return questions, connections
}
