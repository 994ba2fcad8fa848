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

	// resendAfter is when a question over UDP is sent again: datagrams get
	// lost, and with one resolver configured nobody else would notice.
	resendAfter = 2 * time.Second
)

// ask puts the question to one resolver: over UDP, over TCP when the reply was
// cut, and once more without EDNS if the resolver does not take it.
func (c *Client) ask(ctx context.Context, server, name string, qtype uint16) (*miekg.Msg, error) {
	m, err := c.askOnce(ctx, server, name, qtype, true)
	if err == nil && rejectsEDNS(m) {
		m, err = c.askOnce(ctx, server, name, qtype, false)
	}
	return m, err
}

func (c *Client) askOnce(ctx context.Context, server, name string, qtype uint16, edns bool) (*miekg.Msg, error) {
	q, err := newQuestion(name, qtype, edns)
	if err != nil {
		return nil, err
	}
	m, err := c.overUDP(ctx, server, q)
	if errors.Is(err, errCut) {
		m, err = c.overTCP(ctx, server, q)
	}
	return m, err
}

// overUDP sends the question from a socket of its own, and so from a port of
// its own, and waits for the reply until ctx ends. Whatever else arrives is
// passed over.
func (c *Client) overUDP(ctx context.Context, server string, q question) (*miekg.Msg, error) {
	conn, done, err := c.open(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer done()
	buf := make([]byte, udpBuffer)
	for {
		if _, err := conn.Write(q.wire); err != nil {
			return nil, fmt.Errorf("send over udp: %w", err)
		}
		m, err := q.await(conn, buf, time.Now().Add(resendAfter))
		if isTimeout(err) && ctx.Err() == nil {
			continue
		}
		return m, err
	}
}

// await reads datagrams until the reply comes or the time is up.
func (q question) await(conn net.Conn, buf []byte, until time.Time) (*miekg.Msg, error) {
	if err := conn.SetReadDeadline(until); err != nil {
		return nil, fmt.Errorf("receive over udp: %w", err)
	}
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, fmt.Errorf("receive over udp: %w", err)
		}
		m, err := q.read(buf[:n])
		switch {
		case errors.Is(err, errStray):
			continue
		case err == nil && n == len(buf):
			return nil, errCut
		}
		return m, err
	}
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
