package dns

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	miekg "github.com/miekg/dns"
)

// ednsSize is the UDP payload we offer: the largest that crosses the internet
// without fragments (DNS flag day 2020).
const ednsSize = 1232

// headerSize is that of every message: ID, flags and four counts.
const headerSize = 12

var (
	errStray = errors.New("not a reply to this question")
	errCut   = errors.New("truncated or damaged reply")
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
	m := miekg.Msg{MsgHdr: miekg.MsgHdr{Id: q.id, RecursionDesired: true}, Question: q.section()}
	if edns {
		m.SetEdns0(ednsSize, false)
	}
	var err error
	if q.wire, err = m.Pack(); err != nil {
		panic(fmt.Sprintf("pack question: %v", err))
	}
	return q
}

func (q question) section() []miekg.Question {
	return []miekg.Question{{Name: q.name, Qtype: q.qtype, Qclass: miekg.ClassINET}}
}

// drawCase sets the case of each letter at random. It draws again when all come
// out small: a resolver that lowers names never gives the right reply then,
// instead of giving it now and then to a question about a short name.
func drawCase(name string) string {
	small := lower(name)
	out, random := []byte(small), make([]byte, len(small))
	for string(out) == small && small != strings.ToUpper(small) {
		rand.Read(random) // never fails: the runtime ends the process instead
		for i, c := range out {
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
// A reply without a question is the short form in which some resolvers refuse. It may
// end the attempt at this resolver, or send us to TCP or away from EDNS, but with
// neither the name nor its case in it, only the ID and the port keep a forger from
// sending it. Nobody refuses with NOERROR or NXDOMAIN, so these do not even end the wait.
func (q question) read(raw []byte) (*miekg.Msg, error) {
	// Of QR and the opcode, a reply to a query has just QR.
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw) != q.id || raw[2]&0xf8 != 0x80 {
		return nil, errStray
	}
	m, complete := parse(raw)
	questions := binary.BigEndian.Uint16(raw[4:])
	bare := questions == 0 || len(raw) == headerSize
	switch {
	case !bare && (questions != 1 || !slices.Equal(m.Question, q.section())):
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
	// The header may count too few, and then the parser does not look at the rest.
	// Resolvers pad within the OPT (RFC 7830).
	if _, complete := parse(raw[:len(raw)-1]); complete {
		return nil, errCut
	}
	return m, nil
}

// parse reads a message. It is complete when it has all the records that its
// header counts, or is just a header: the parser takes a cut between two records for
// the end.
func parse(raw []byte) (m *miekg.Msg, complete bool) {
	m = new(miekg.Msg)
	err := m.Unpack(raw)
	count := func(at int) int { return int(binary.BigEndian.Uint16(raw[at:])) }
	counted := count(6) + count(8) + count(10)
	return m, err == nil && (len(m.Answer)+len(m.Ns)+len(m.Extra) == counted || len(raw) == headerSize)
}
