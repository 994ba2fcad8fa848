package dns

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	miekg "github.com/miekg/dns"
)

// overTCP asks over a connection of its own. The reply is framed by a length
// of two bytes, so it has at most 64 KiB.
func (c *Client) overTCP(ctx context.Context, server string, q question) (*miekg.Msg, error) {
	conn, done, err := c.open(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer done()
	frame := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(q.wire)), uint16(len(q.wire)))
	if _, err := conn.Write(append(frame, q.wire...)); err != nil {
		return nil, fmt.Errorf("send over tcp: %w", err)
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, fmt.Errorf("receive over tcp: %w", err)
	}
	raw := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, raw); err != nil {
		return nil, fmt.Errorf("receive over tcp: %w", err)
	}
	m, err := q.read(raw)
	if err != nil {
		return nil, fmt.Errorf("receive over tcp: %w", err)
	}
	return m, nil
}

// fallback asks a resolver over TCP, once, while its reply over UDP may still
// be waited for. Nothing of it runs before it begins. Its methods are called by
// one goroutine.
type fallback struct {
	ask     func() (*miekg.Msg, error)
	cancel  context.CancelFunc // ends ask
	stopUDP context.CancelFunc // ends the wait for the reply over UDP
	due     time.Time          // when to begin if nothing has come over UDP
	done    chan struct{}      // nil until it has begun, closed when ask has returned

	// What ask returned, to be read when done is closed.
	msg *miekg.Msg
	err error
	bug *bug
}

// newFallback is due when UDP has been silent for as long as a lost datagram is
// waited for, or for half of the time that ctx leaves: the other half is for
// TCP.
func newFallback(ctx context.Context, stopUDP context.CancelFunc, ask func(context.Context) (*miekg.Msg, error)) *fallback {
	after := resendAfter
	if end, ok := ctx.Deadline(); ok {
		after = min(after, time.Until(end)/2)
	}
	ctx, cancel := context.WithCancel(ctx)
	return &fallback{
		ask:    func() (*miekg.Msg, error) { return ask(ctx) },
		cancel: cancel, stopUDP: stopUDP, due: time.Now().Add(after),
	}
}

// hasten is called when a datagram came that is not the reply. The reply itself
// may be right behind it, so it has a delay.
func (f *fallback) hasten(delay time.Duration) {
	if t := time.Now().Add(delay); t.Before(f.due) {
		f.due = t
	}
}

// beginAt begins if it is due now, and returns when it is to be called again:
// when it is due, but by the given time at the latest.
func (f *fallback) beginAt(now, latest time.Time) time.Time {
	switch {
	case f.done != nil:
	case !now.Before(f.due):
		f.begin()
	case f.due.Before(latest):
		return f.due
	}
	return latest
}

// begin asks in a goroutine of its own, unless it has begun. The wait for UDP
// goes on until a reply has come over TCP.
func (f *fallback) begin() {
	if f.done != nil {
		return
	}
	f.done = make(chan struct{})
	go func() {
		defer close(f.done)
		defer func() {
			if p := recover(); p != nil { // nobody else does, in this goroutine
				f.bug = newBug(p)
				f.stopUDP()
			}
		}()
		if f.msg, f.err = f.ask(); f.err == nil {
			f.stopUDP()
		}
	}()
}

// reply waits for what came over TCP when nothing more comes over UDP, and udp
// is why. When it has not begun, that is the error.
func (f *fallback) reply(udp error) (*miekg.Msg, error) {
	if f.done == nil {
		return nil, udp
	}
	<-f.done
	if f.err != nil {
		return nil, fmt.Errorf("%w; %w", udp, f.err)
	}
	return f.msg, nil
}

// end returns when nothing of it runs any more. It panics if ask did.
func (f *fallback) end() {
	f.cancel()
	if f.done == nil {
		return
	}
	<-f.done
	if f.bug != nil {
		panic(f.bug)
	}
}
