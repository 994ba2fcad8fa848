package dns

import (
	"context"
	"errors"
	"fmt"
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
