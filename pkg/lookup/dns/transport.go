package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	miekg "github.com/miekg/dns"
)

const (
	// udpBuffer takes replies of resolvers that pay no attention to the size
	// we offer. One that fills it may have been cut by the kernel.
	udpBuffer = 4096

	// resendAfter is when a question over UDP is sent again, and asked over TCP
	// as well: datagrams get lost, and with one resolver configured nobody else
	// would notice.
	resendAfter = 2 * time.Second
)

// ask puts the question to one resolver: over UDP, over TCP when that does not
// bring a whole reply, and once more without EDNS if the resolver does not take
// it. It opens at most two connections over TCP, one after the other.
func (c *Client) ask(ctx context.Context, server, name string, qtype uint16) (*miekg.Msg, error) {
	m, err := c.askOnce(ctx, server, name, qtype, true)
	if err == nil && rejectsEDNS(m) {
		m, err = c.askOnce(ctx, server, name, qtype, false)
	}
	return m, err
}

// askOnce sends one question over UDP and, if need be, over TCP, and returns the
// reply that comes first. Over TCP it is asked at once when the reply over UDP
// was cut, soon after one that does not match, and after a silence; in the
// latter two cases UDP is still waited for, in case that TCP is blocked.
func (c *Client) askOnce(ctx context.Context, server, name string, qtype uint16, edns bool) (*miekg.Msg, error) {
	q, err := newQuestion(name, qtype, edns)
	if err != nil {
		return nil, err
	}
	udp, stop := context.WithCancel(ctx)
	defer stop()
	tcp := newFallback(ctx, stop, func(ctx context.Context) (*miekg.Msg, error) { return c.overTCP(ctx, server, q) })
	defer tcp.end()
	m, err := c.overUDP(udp, server, q, tcp)
	if err == nil {
		return m, nil
	}
	if errors.Is(err, errCut) {
		tcp.begin()
	}
	return tcp.reply(err)
}

// overUDP sends the question from a socket of its own, and so from a port of
// its own, and waits for the reply until ctx ends. Whatever else arrives is
// passed over. It begins tcp when that is due.
func (c *Client) overUDP(ctx context.Context, server string, q question, tcp *fallback) (*miekg.Msg, error) {
	conn, done, err := c.open(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer done()
	buf := make([]byte, udpBuffer)
	var resend time.Time
	for {
		now := time.Now()
		if !now.Before(resend) {
			if _, err := conn.Write(q.wire); err != nil {
				return nil, fmt.Errorf("send over udp: %w", err)
			}
			resend = now.Add(resendAfter)
		}
		m, err := q.receive(conn, buf, tcp.beginAt(now, resend))
		switch {
		case errors.Is(err, errStray):
			tcp.hasten(c.hedge)
		case !isTimeout(err) || ctx.Err() != nil:
			return m, err
		}
	}
}

// receive reads one datagram. It returns errStray for one that is not the reply,
// and a time-out when none has come until then.
func (q question) receive(conn net.Conn, buf []byte, until time.Time) (*miekg.Msg, error) {
	if err := conn.SetReadDeadline(until); err != nil {
		return nil, fmt.Errorf("receive over udp: %w", err)
	}
	n, err := conn.Read(buf)
	if err != nil {
		return nil, fmt.Errorf("receive over udp: %w", err)
	}
	m, err := q.read(buf[:n])
	if err == nil && n == len(buf) {
		return nil, errCut
	}
	return m, err
}

// open dials a resolver and closes the connection when ctx ends, which ends
// any read or write at once. done closes it too, and returns only when nothing
// of it is left; it panics if closing did.
func (c *Client) open(ctx context.Context, network, server string) (conn net.Conn, done func(), err error) {
	conn, err = c.dial(ctx, network, server)
	if err != nil {
		return nil, nil, fmt.Errorf("dial %s: %w", network, err)
	}
	closed := make(chan *bug, 1)
	stop := context.AfterFunc(ctx, func() {
		defer func() {
			if p := recover(); p != nil { // nobody else does, in this goroutine
				closed <- newBug(p)
			}
			close(closed)
		}()
		conn.Close()
	})
	return conn, func() {
		if stop() {
			conn.Close()
			return
		}
		if b := <-closed; b != nil {
			panic(b)
		}
	}, nil
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

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
