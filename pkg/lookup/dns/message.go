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
// (draft-vixie-dnsext-dns0x20). It panics unless name is a domain name.
func newQuestion(name string, qtype uint16, edns bool) question {
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
		panic(fmt.Sprintf("pack question: %v", err))
	}
	return q
}

// drawCase sets the case of each letter at random. It draws again when all come
// out small: a resolver that lowers names never gives the right reply then,
// instead of giving it now and then to a question about a short name.
func drawCase(name string) string {
	small := lower(name)
	if small == strings.ToUpper(small) {
		return name // no letters
	}
	out, random := []byte(small), make([]byte, len(small))
	for string(out) == small {
		rand.Read(random) // never fails: the runtime ends the process instead
		for i, c := range small {
			if 'a' <= c && c <= 'z' && random[i]&1 == 1 {
				out[i] -= 'a' - 'A'
			}
		}
	}
	return string(out)
}

// read judges bytes that came back. It returns the reply, or an error that is
// errStray or errCut. TC is looked at before the parser's verdict, because a
// truncated reply need not parse.
//
// A reply without a question is the short form in which some resolvers refuse.
// It may end the attempt at this resolver, or send us to TCP or away from EDNS,
// but whatever its rcode says is of the resolver and not of the name: with
// neither the name nor its case in it, only the ID and the port keep a forger
// from sending it. Nobody refuses with NOERROR or NXDOMAIN, so these do not even
// end the wait.
func (q question) read(raw []byte) (*miekg.Msg, error) {
	const (
		qrOpcode = 0xf8 // of the third byte; a reply to a query has just QR
		qr       = 0x80
	)
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw) != q.id || raw[2]&qrOpcode != qr {
		return nil, errStray
	}
	m, complete := parse(raw)
	questions := binary.BigEndian.Uint16(raw[4:])
	bare := questions == 0 || len(raw) == headerSize
	if !bare && (questions != 1 || len(m.Question) != 1 || m.Question[0] != miekg.Question{Name: q.name, Qtype: q.qtype, Qclass: miekg.ClassINET}) {
		return nil, errStray
	}
	switch {
	case m.Truncated:
		return nil, errCut
	case bare && (!complete || m.Rcode == miekg.RcodeSuccess || m.Rcode == miekg.RcodeNameError):
		return nil, errStray
	case bare:
		return m, nil
	case !complete:
		return nil, errCut
	}
	// The header may count too few, and then the parser does not look at the
	// rest. Resolvers pad within the OPT (RFC 7830); what leaves bytes behind are
	// translators that change datagrams on their way, and TCP passes them by.
	if _, complete := parse(raw[:len(raw)-1]); complete {
		return nil, errCut
	}
	return m, nil
}

// parse reads a message. It is complete when it has all the records that its
// header counts, or is just a header: when it was cut between two records, the
// parser takes the cut for the end, and so loses the OPT with half of the rcode.
func parse(raw []byte) (m *miekg.Msg, complete bool) {
	m = new(miekg.Msg)
	err := m.Unpack(raw)
	counted := 0
	for at := 6; at < headerSize; at += 2 {
		counted += int(binary.BigEndian.Uint16(raw[at:]))
	}
	records := len(m.Answer) + len(m.Ns) + len(m.Extra)
	return m, err == nil && (records == counted || len(raw) == headerSize)
}

// rejectsEDNS reports whether a resolver may know nothing of EDNS, or not this
// version of it (RFC 6891 §7; old ones say NOTIMP).
func rejectsEDNS(m *miekg.Msg) bool {
	return m.Rcode == miekg.RcodeFormatError || m.Rcode == miekg.RcodeNotImplemented || m.Rcode == miekg.RcodeBadVers
}
