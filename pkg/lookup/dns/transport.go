package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
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

// ask sends one question over UDP and, if need be, over TCP, and returns the
// reply that comes first. Over TCP it is asked at once when the reply over UDP
// was cut; hedgeDelay after a datagram that is not the reply, which may be right
// behind it; and when UDP has been silent for as long as a lost datagram is
// waited for, or for half of the time that is left: the other half is for TCP.
// In the latter two cases UDP is still waited for, in case that TCP is blocked.
func (c *Client) ask(ctx context.Context, server string, q question) (*miekg.Msg, error) {
	g := newCrew(ctx)
	defer g.end()
	type received struct {
		msg *miekg.Msg
		err error
	}
	replies, waiting := make(chan received, 2), 0
	begin := func(network string, over func(net.Conn) (*miekg.Msg, error)) {
		waiting++
		g.start(func() {
			m, err := c.connected(g, network, server, over)
			replies <- received{m, err}
		})
	}
	stray := make(chan struct{})
	foreign := sync.OnceFunc(func() { close(stray) })
	begin("udp", func(conn net.Conn) (*miekg.Msg, error) { return q.overUDP(g, conn, foreign) })
	tcp := sync.OnceFunc(func() { begin("tcp", q.overTCP) })

	after := resendAfter
	if end, ok := ctx.Deadline(); ok {
		after = min(after, time.Until(end)/2)
	}
	due := time.Now().Add(after)
	timer := time.NewTimer(after)
	defer timer.Stop()
	var failed []error
	for waiting > 0 {
		select {
		case <-stray:
			stray = nil
			timer.Reset(min(time.Until(due), hedgeDelay))
		case <-timer.C:
			tcp()
		case r := <-replies:
			if r.err == nil {
				return r.msg, nil
			}
			waiting--
			failed = append(failed, r.err)
			if errors.Is(r.err, errCut) {
				tcp()
			}
		case <-g.Done():
			return nil, errors.Join(append(failed, g.Err())...)
		}
	}
	return nil, errors.Join(failed...)
}

// connected dials a resolver and talks to it. When the context ends, any read or write
// does.
func (c *Client) connected(ctx context.Context, network, server string, talk func(net.Conn) (*miekg.Msg, error)) (*miekg.Msg, error) {
	conn, err := c.dial(ctx, network, server)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", network, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	m, err := talk(conn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", network, err)
	}
	return m, nil
}

// overUDP sends the question from a socket that nothing else uses, and so from a
// port drawn for it, and waits for the reply until ctx ends. It calls foreign for
// each datagram that is not the reply, and waits on.
func (q question) overUDP(ctx context.Context, conn net.Conn, foreign func()) (*miekg.Msg, error) {
	buf := make([]byte, udpBuffer)
	var resend time.Time
	for ctx.Err() == nil {
		if now := time.Now(); !now.Before(resend) {
			if _, err := conn.Write(q.wire); err != nil {
				return nil, err
			}
			resend = now.Add(resendAfter)
			if err := conn.SetReadDeadline(resend); err != nil {
				return nil, err
			}
			continue // unless the context has ended, and its deadline was just replaced
		}
		n, err := conn.Read(buf)
		if err == nil {
			m, err := q.read(buf[:n])
			if err == nil && n == len(buf) {
				return nil, errCut
			}
			if !errors.Is(err, errStray) {
				return m, err
			}
			foreign()
		} else if !isTimeout(err) {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

// overTCP asks over a connection that carries nothing else. The reply is framed
// by a length of two bytes, so it has at most 64 KiB.
func (q question) overTCP(conn net.Conn) (*miekg.Msg, error) {
	framed := miekg.Conn{Conn: conn}
	if _, err := framed.Write(q.wire); err != nil {
		return nil, err
	}
	raw, err := framed.ReadMsgHeader(nil)
	if err != nil {
		return nil, err
	}
	return q.read(raw)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
