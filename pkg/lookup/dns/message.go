package dns

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	miekg "github.com/miekg/dns"
)

// ednsSize is the UDP payload we offer: the largest that crosses the internet
// without fragments (DNS flag day 2020).
const ednsSize = 1232

// headerSize is that of every message: ID, flags and four counts.
const headerSize = 12

var (
	// errStray: bytes that do not answer our question, be it junk, a forgery
	// or the answer to somebody else's.
	errStray = errors.New("not a reply to this question")
	// errCut: our reply, but not all of it.
	errCut = errors.New("truncated or damaged reply")
)

// question is one message to one resolver.
type question struct {
	id    uint16
	name  string // as sent, letter case drawn anew for every message
	qtype uint16
	wire  []byte
}

// newQuestion draws an ID and the letter case of the name. Both come back in
// the reply, so a forger has to guess the ID, the port and every letter's case
// (draft-vixie-dnsext-dns0x20).
func newQuestion(name string, qtype uint16, edns bool) (question, error) {
	q := question{id: miekg.Id(), name: drawCase(miekg.Fqdn(name)), qtype: qtype}
	m := miekg.Msg{
		MsgHdr:   miekg.MsgHdr{Id: q.id, RecursionDesired: true},
		Question: []miekg.Question{{Name: q.name, Qtype: qtype, Qclass: miekg.ClassINET}},
	}
	if edns {
		m.SetEdns0(ednsSize, false)
	}
	var err error
	if q.wire, err = m.Pack(); err != nil {
		return question{}, fmt.Errorf("pack question: %w", err)
	}
	return q, nil
}

// drawCase sets the case of each letter at random. It draws again when all come
// out small: a resolver that lowers names never gives the right reply then,
// instead of giving it now and then to a question about a short name.
func drawCase(name string) string {
	small := lower(name)
	if small == strings.ToUpper(small) {
		return name // no letters
	}
	out := []byte(small)
	random := make([]byte, (len(out)+7)/8)
	for string(out) == small {
		rand.Read(random) // never fails: the runtime ends the process instead
		for i, c := range small {
			if 'a' <= c && c <= 'z' && random[i/8]>>(i%8)&1 == 1 {
				out[i] -= 'a' - 'A'
			}
		}
	}
	return string(out)
}

// read judges bytes that came back. It returns the reply, or an error that is
// errStray or errCut. TC is looked at before the parser's verdict, because a
// truncated reply need not parse.
func (q question) read(raw []byte) (*miekg.Msg, error) {
	const (
		qrOpcode = 0xf8 // of the third byte; a reply to a query has just QR
		qr       = 0x80
	)
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw) != q.id || raw[2]&qrOpcode != qr {
		return nil, errStray
	}
	m := new(miekg.Msg)
	err := m.Unpack(raw)
	questions := binary.BigEndian.Uint16(raw[4:])
	if questions == 0 || len(raw) == headerSize {
		return q.readBare(m, err)
	}
	if questions != 1 || len(m.Question) != 1 || m.Question[0] != (miekg.Question{Name: q.name, Qtype: q.qtype, Qclass: miekg.ClassINET}) {
		return nil, errStray
	}
	switch {
	case m.Truncated:
		return nil, errCut
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errCut, err)
	case !whole(raw):
		return nil, errCut
	}
	return m, nil
}

// whole reports whether the records that the header counts fill a message of
// one question that parses. When it was cut between two records, the parser
// takes the cut for the end, and so loses the OPT with half of the rcode. When
// the header counts too few, it does not look at the rest. Resolvers pad within
// the OPT (RFC 7830); what leaves bytes behind are translators that change
// datagrams on their way, and TCP passes them by.
func whole(raw []byte) bool {
	rest := skipName(raw[headerSize:])
	if len(rest) < 4 {
		return false
	}
	rest = rest[4:] // type and class
	records := 0
	for at := 6; at < headerSize; at += 2 {
		records += int(binary.BigEndian.Uint16(raw[at:]))
	}
	for range records {
		const fixed = 10 // type, class, TTL and the length of the data
		if rest = skipName(rest); len(rest) < fixed {
			return false
		}
		end := fixed + int(binary.BigEndian.Uint16(rest[fixed-2:]))
		if len(rest) < end {
			return false
		}
		rest = rest[end:]
	}
	return len(rest) == 0
}

// skipName is what follows a name on the wire, nothing if the name does not
// end.
func skipName(b []byte) []byte {
	for len(b) > 0 {
		n := 1 + int(b[0])
		switch {
		case b[0] == 0:
			return b[1:]
		case b[0] >= 0xc0: // a pointer, which ends it
			return b[min(2, len(b)):]
		}
		b = b[min(n, len(b)):]
	}
	return nil
}

// readBare judges a reply without a question, the short form in which some
// resolvers refuse. It may end the attempt at this resolver, or send us to TCP
// or away from EDNS, but whatever its rcode says is of the resolver and not of
// the name: with neither the name nor its case in it, only the ID and the port
// keep a forger from sending it. Nobody refuses with NOERROR or NXDOMAIN, so
// these do not even end the wait.
func (q question) readBare(m *miekg.Msg, err error) (*miekg.Msg, error) {
	switch {
	case m.Truncated:
		return nil, errCut
	case err != nil, m.Rcode == miekg.RcodeSuccess, m.Rcode == miekg.RcodeNameError:
		return nil, errStray
	}
	return m, nil
}

// rejectsEDNS reports whether a resolver may know nothing of EDNS, or not this
// version of it (RFC 6891 §7; old ones say NOTIMP).
func rejectsEDNS(m *miekg.Msg) bool {
	return m.Rcode == miekg.RcodeFormatError || m.Rcode == miekg.RcodeNotImplemented || m.Rcode == miekg.RcodeBadVers
}
