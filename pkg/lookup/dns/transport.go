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

// ask puts the question to one resolver, and once more without EDNS if the
// resolver does not take it.
func (c *Client) ask(ctx context.Context, server, name string, qtype uint16) (*miekg.Msg, error) {
	m, err := c.askOnce(ctx, server, newQuestion(name, qtype, true))
	if err == nil && rejectsEDNS(m) {
		m, err = c.askOnce(ctx, server, newQuestion(name, qtype, false))
	}
	return m, err
}

// askOnce sends one question over UDP and, if need be, over TCP, and returns the
// reply that comes first. Over TCP it is asked at once when the reply over UDP
// was cut; hedgeDelay after a datagram that is not the reply, which may be right
// behind it; and when UDP has been silent for as long as a lost datagram is
// waited for, or for half of the time that is left: the other half is for TCP.
// In the latter two cases UDP is still waited for, in case that TCP is blocked.
func (c *Client) askOnce(ctx context.Context, server string, q question) (*miekg.Msg, error) {
	g := newCrew(ctx)
	defer g.end()
	type received struct {
		msg *miekg.Msg
		err error
	}
	replies, waiting := make(chan received, 2), 0
	begin := func(over func() (*miekg.Msg, error)) {
		waiting++
		g.start(func() {
			m, err := over()
			replies <- received{m, err}
		})
	}
	stray := make(chan struct{})
	begin(func() (*miekg.Msg, error) { return c.overUDP(g, server, q, sync.OnceFunc(func() { close(stray) })) })
	tcp := sync.OnceFunc(func() { begin(func() (*miekg.Msg, error) { return c.overTCP(g, server, q) }) })

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

// open dials a resolver. The connection is closed when the crew's context ends,
// which ends any read or write at once.
func (c *Client) open(g *crew, network, server string) (net.Conn, error) {
	conn, err := c.dial(g, network, server)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", network, err)
	}
	g.start(func() {
		<-g.Done()
		conn.Close()
	})
	return conn, nil
}

// overUDP sends the question from a socket that nothing else uses, and so from a
// port drawn for it, and waits for the reply until g ends. It calls stray for
// each datagram that is not the reply, and waits on.
func (c *Client) overUDP(g *crew, server string, q question, stray func()) (*miekg.Msg, error) {
	conn, err := c.open(g, "udp", server)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, udpBuffer)
	var resend time.Time
	for {
		if now := time.Now(); !now.Before(resend) {
			if _, err := conn.Write(q.wire); err != nil {
				return nil, fmt.Errorf("send over udp: %w", err)
			}
			resend = now.Add(resendAfter)
			if err := conn.SetReadDeadline(resend); err != nil {
				return nil, fmt.Errorf("receive over udp: %w", err)
			}
		}
		n, err := conn.Read(buf)
		switch {
		case err == nil:
			m, err := q.read(buf[:n])
			if err == nil && n == len(buf) {
				return nil, errCut
			}
			if !errors.Is(err, errStray) {
				return m, err
			}
			stray()
		case !isTimeout(err) || g.Err() != nil:
			return nil, fmt.Errorf("receive over udp: %w", err)
		}
	}
}

// overTCP asks over a connection that carries nothing else. The reply is framed
// by a length of two bytes, so it has at most 64 KiB.
func (c *Client) overTCP(g *crew, server string, q question) (*miekg.Msg, error) {
	conn, err := c.open(g, "tcp", server)
	if err != nil {
		return nil, err
	}
	framed := miekg.Conn{Conn: conn}
	if _, err := framed.Write(q.wire); err != nil {
		return nil, fmt.Errorf("send over tcp: %w", err)
	}
	raw, err := framed.ReadMsgHeader(nil)
	if err != nil {
		return nil, fmt.Errorf("receive over tcp: %w", err)
	}
	return q.read(raw)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
