package dns

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	miekg "github.com/miekg/dns"
)

// ednsSize is the UDP payload we offer: the largest that crosses the internet
// without fragments (DNS flag day 2020).
const ednsSize = 1232

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

// drawCase sets the case of each letter at random.
func drawCase(name string) string {
	out := []byte(name)
	random := make([]byte, (len(out)+7)/8)
	rand.Read(random) // never fails: the runtime ends the process instead
	for i, c := range out {
		if l := c | 0x20; 'a' <= l && l <= 'z' {
			out[i] = l &^ (random[i/8] >> (i % 8) & 1 << 5)
		}
	}
	return string(out)
}

// read judges bytes that came back. It returns the reply, or an error that is
// errStray or errCut. TC is looked at before the parser's verdict, because a
// truncated reply need not parse.
func (q question) read(raw []byte) (*miekg.Msg, error) {
	const (
		headerSize = 12
		qrOpcode   = 0xf8 // of the third byte; a reply to a query has just QR
		qr         = 0x80
	)
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw) != q.id || raw[2]&qrOpcode != qr {
		return nil, errStray
	}
	m := new(miekg.Msg)
	err := m.Unpack(raw)
	if len(m.Question) == 0 && binary.BigEndian.Uint16(raw[4:]) == 0 || len(raw) == headerSize {
		return q.readBare(m, err)
	}
	if len(m.Question) != 1 || m.Question[0] != (miekg.Question{Name: q.name, Qtype: q.qtype, Qclass: miekg.ClassINET}) {
		return nil, errStray
	}
	switch {
	case m.Truncated:
		return nil, errCut
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errCut, err)
	case len(m.Answer) != int(binary.BigEndian.Uint16(raw[6:])):
		// Cut between two records, which the parser takes for the end.
		return nil, errCut
	}
	return m, nil
}

// readBare judges a reply without a question, the short form in which some
// resolvers refuse. It may end the attempt at this resolver or send us to TCP,
// but it says nothing about the name: with neither the name nor its case in
// it, only the ID and the port keep a forger from saying NXDOMAIN.
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
// version of it.
func rejectsEDNS(m *miekg.Msg) bool {
	return m.Rcode == miekg.RcodeFormatError || m.Rcode == miekg.RcodeBadVers
}
