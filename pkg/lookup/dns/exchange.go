package dns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	miekg "github.com/miekg/dns"
)

const (
	// ednsSize is the UDP payload size that a question offers. It is the largest size that
	// crosses the internet without fragments (DNS flag day 2020). udpBuffer is larger than
	// ednsSize, because some resolvers ignore the offer. If a reply fills the whole buffer,
	// the kernel may have cut it.
	ednsSize  = 1232
	udpBuffer = 4096

	// headerSize is the size of the header of every message: ID, flags and four counts.
	headerSize = 12

	// resendAfter is how long a question waits for a reply over UDP. Then it is sent again
	// over UDP, and over TCP as well, because datagrams get lost.
	resendAfter = 2 * time.Second
)

var (
	errStray = errors.New("not a reply to this question")
	errCut   = errors.New("truncated or damaged reply")
)

// query sends one question over UDP and, if necessary, over TCP, and returns the first reply.
// It tries TCP in three cases: at once after a truncated reply over UDP, hedgeDelay after a
// datagram that is not the reply, and after UDP has been silent for resendAfter or for half of
// the remaining time. In the last two cases it still accepts a reply over UDP.
func (c *Client) query(ctx context.Context, server string, q question) (*miekg.Msg, error) {
	g := newCrew(ctx)
	defer g.end()
	tcpDelay := resendAfter
	if end, ok := ctx.Deadline(); ok {
		tcpDelay = min(tcpDelay, time.Until(end)/2)
	}
	tcpDue := time.Now().Add(tcpDelay)
	tcpTimer := time.NewTimer(tcpDelay) // fires when TCP is due
	defer tcpTimer.Stop()
	onStray := sync.OnceFunc(func() { tcpTimer.Reset(min(time.Until(tcpDue), hedgeDelay)) })
	type received struct {
		msg *miekg.Msg
		err error
	}
	replies := make(chan received, 2)
	overUDP := func(conn net.Conn) (*miekg.Msg, error) { return q.overUDP(g, conn, onStray) }
	g.start(func() {
		m, err := c.withConnection(g, "udp", server, overUDP)
		replies <- received{m, err}
	})
	g.start(func() {
		select {
		case <-tcpTimer.C:
			m, err := c.withConnection(g, "tcp", server, q.overTCP)
			replies <- received{m, err}
		case <-g.Done():
		}
	})
	var errs []error
	for len(errs) < 2 {
		select {
		case r := <-replies:
			if r.err == nil {
				return r.msg, nil
			}
			errs = append(errs, r.err)
			switch {
			case errors.Is(r.err, errCut):
				tcpTimer.Reset(0)
			case tcpTimer.Stop(): // UDP failed before TCP was due
				return nil, r.err
			}
		case <-g.Done():
			return nil, errors.Join(append(errs, g.Err())...)
		}
	}
	return nil, errors.Join(errs...)
}

// withConnection dials a resolver and calls talk with the connection. Both dialling and talk
// fail when ctx ends.
func (c *Client) withConnection(ctx context.Context, network, server string, talk func(net.Conn) (*miekg.Msg, error)) (*miekg.Msg, error) {
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

// question is one message to one resolver.
type question struct {
	id    uint16
	name  string // as sent, with the letter case chosen for this message
	qtype uint16
	wire  []byte
}

// newQuestion returns a question with a random ID and a random letter case of the name. A
// forger has to guess the ID and the letter case in addition to the port
// (draft-vixie-dnsext-dns0x20). newQuestion panics unless name is a domain name.
func newQuestion(name string, qtype uint16, edns bool) question {
	q := question{
		id:    miekg.Id(),
		name:  drawCase(miekg.Fqdn(name)),
		qtype: qtype,
	}
	m := miekg.Msg{
		MsgHdr:   miekg.MsgHdr{Id: q.id, RecursionDesired: true},
		Question: q.questionSection(),
	}
	if edns {
		m.SetEdns0(ednsSize, false)
	}
	wire, err := m.Pack()
	if err != nil {
		panic(fmt.Sprintf("pack question: %v", err))
	}
	q.wire = wire
	return q
}

func (q question) questionSection() []miekg.Question {
	return []miekg.Question{{Name: q.name, Qtype: q.qtype, Qclass: miekg.ClassINET}}
}

// drawCase sets the case of each letter at random. If all letters come out lower case, it
// draws again. Otherwise a resolver that converts names to lower case would sometimes send a
// matching reply for a short name.
func drawCase(name string) string {
	small := lowerName(name)
	out := []byte(small)
	random := make([]byte, len(small))
	for string(out) == small && small != strings.ToUpper(small) {
		rand.Read(random) // never returns an error
		for i, c := range out {
			if 'a' <= c && c <= 'z' && random[i]&1 == 1 {
				out[i] -= 'a' - 'A'
			}
		}
	}
	return string(out)
}

// overUDP sends the question and waits for the reply until ctx ends. conn must be a new
// socket, because a forger should have to guess its port for each question. For each datagram
// that is not the reply, overUDP calls onStray and goes on waiting.
func (q question) overUDP(ctx context.Context, conn net.Conn, onStray func()) (*miekg.Msg, error) {
	buf := make([]byte, udpBuffer)
	var resend time.Time
	for ctx.Err() == nil {
		if now := time.Now(); !now.Before(resend) {
			if _, err := conn.Write(q.wire); err != nil {
				return nil, err
			}
			resend = now.Add(resendAfter)
			_ = conn.SetReadDeadline(resend) // if this fails, Read fails as well
			continue                         // check ctx again: if it has just ended, SetReadDeadline has overwritten the deadline of withConnection
		}
		n, err := conn.Read(buf)
		if err == nil {
			m, err := q.parseReply(buf[:n])
			if err == nil && n == len(buf) {
				return nil, errCut
			}
			if !errors.Is(err, errStray) {
				return m, err
			}
			onStray()
		} else if netErr, ok := errors.AsType[net.Error](err); !ok || !netErr.Timeout() {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

// overTCP sends the question and reads the reply over a connection that carries nothing else.
// A prefix of two bytes gives the length of the reply, so the reply has at most 64 KiB.
func (q question) overTCP(conn net.Conn) (*miekg.Msg, error) {
	framed := miekg.Conn{Conn: conn}
	if _, err := framed.Write(q.wire); err != nil {
		return nil, err
	}
	raw, err := framed.ReadMsgHeader(nil)
	if err != nil {
		return nil, err
	}
	return q.parseReply(raw)
}

// parseReply parses received bytes. It returns the reply, errStray or errCut. It checks the TC
// bit before it reports an error of the parser, because a truncated reply may not parse.
//
// Some resolvers refuse a question with a short reply that does not repeat the question.
// parseReply accepts such a reply, unless its code is NOERROR or NXDOMAIN: resolvers never
// refuse with these codes, and a forger could send the reply without guessing the letter case
// of the name.
func (q question) parseReply(raw []byte) (*miekg.Msg, error) {
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw) != q.id {
		return nil, errStray
	}
	const flags = 0xf8 // QR and the opcode; in a reply to a query, QR is set and the opcode is 0
	if raw[2]&flags != 0x80 {
		return nil, errStray
	}
	m, complete := parse(raw)
	questions := binary.BigEndian.Uint16(raw[4:])
	bare := questions == 0 || len(raw) == headerSize
	switch {
	case !bare && (questions != 1 || !slices.Equal(m.Question, q.questionSection())):
		return nil, errStray
	case m.Truncated:
		return nil, errCut
	case bare && (!complete || m.Rcode == miekg.RcodeSuccess || m.Rcode == miekg.RcodeNameError):
		return nil, errStray
	case bare:
		return m, nil
	case !complete:
		return nil, errCut
	}
	// The counts in the header may be too low, and then the parser ignores the rest of the
	// message. Resolvers put padding within the OPT record (RFC 7830), so a proper reply ends
	// with its last record.
	if _, complete := parse(raw[:len(raw)-1]); complete {
		return nil, errCut
	}
	return m, nil
}

// parse parses a message. The result complete is true if the message has as many records as
// its header counts, or if it is only a header. parse compares the counts, because a message
// that was cut between two records parses without an error.
func parse(raw []byte) (m *miekg.Msg, complete bool) {
	m = new(miekg.Msg)
	if err := m.Unpack(raw); err != nil {
		return m, false
	}
	if len(raw) == headerSize {
		return m, true
	}
	count := func(at int) int { return int(binary.BigEndian.Uint16(raw[at:])) }
	announced := count(6) + count(8) + count(10)
	return m, len(m.Answer)+len(m.Ns)+len(m.Extra) == announced
}
