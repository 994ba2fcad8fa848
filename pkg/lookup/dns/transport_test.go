package dns_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

// headerOnly returns a function that makes a reply of nothing but the header.
func headerOnly(code int) func(q []byte) []byte {
	return func(q []byte) []byte { return reply(q, rcode(code))[:12] }
}

// addPadding adds n bytes of padding to a reply (RFC 7830).
func addPadding(n int) change {
	return func(m *miekg.Msg) {
		withEDNS(m)
		m.IsEdns0().Option = []miekg.EDNS0{&miekg.EDNS0_PADDING{Padding: make([]byte, n)}}
	}
}

// cutEnd returns a message without its last n bytes.
func cutEnd(n int, b []byte) []byte { return b[:len(b)-n] }

// treatment tells how the client treats a datagram.
type treatment string

const (
	ignored    treatment = "stray" // not the reply: the client waits for the next datagram
	incomplete treatment = "cut"   // the reply, but incomplete: the client asks the same resolver over TCP
	accepted   treatment = "whole" // the complete reply: the client uses its answer, whatever else the reply contains
)

// TestDatagrams checks how the client treats a datagram. The resolver sends two stray
// datagrams, then the datagram under test, which has an answer, and then the right reply. The
// resolver also answers over TCP. The address in the result shows which of the answers the
// client used.
func TestDatagrams(t *testing.T) {
	one := func(changes ...change) func([]byte) []byte {
		return func(q []byte) []byte { return reply(q, append(changes, answer(forgedRecord))...) }
	}
	name := func(f func(string) string) change {
		return func(m *miekg.Msg) { m.Question[0].Name = f(m.Question[0].Name) }
	}
	other := name(func(string) string { return "a." })
	// counts returns a function that makes a reply with a changed count in its header. at is
	// the index of the lower byte of the count, and n is the new value of that byte.
	counts := func(at int, n byte, changes ...change) func([]byte) []byte {
		return func(q []byte) []byte {
			b := reply(q, append([]change{answer(forgedRecord)}, changes...)...)
			b[at] = n
			return b
		}
	}
	type row struct {
		fate  treatment
		bytes func(q []byte) []byte
	}
	eachInBubble(t, map[string]row{
		"empty":           {fate: ignored, bytes: func([]byte) []byte { return nil }},
		"cut header":      {fate: ignored, bytes: func(q []byte) []byte { return reply(q, answer(forgedRecord))[:11] }},
		"endless pointer": {fate: ignored, bytes: func(q []byte) []byte { return append(reply(q)[:12], 0xc0, 12, 0, 1, 0, 1) }},
		"no QR":           {fate: ignored, bytes: one(func(m *miekg.Msg) { m.Response = false })},
		"wrong ID":        {fate: ignored, bytes: one(otherID)},
		"opcode NOTIFY":   {fate: ignored, bytes: one(func(m *miekg.Msg) { m.Opcode = miekg.OpcodeNotify })},
		"other name":      {fate: ignored, bytes: one(name(func(string) string { return "example.net." }))},
		"other case":      {fate: ignored, bytes: one(name(func(s string) string { return string(s[0]^0x20) + s[1:] }))},
		"other type":      {fate: ignored, bytes: one(func(m *miekg.Msg) { m.Question[0].Qtype = miekg.TypeAAAA })},
		"other class":     {fate: ignored, bytes: one(func(m *miekg.Msg) { m.Question[0].Qclass = miekg.ClassCHAOS })},
		"two questions":   {fate: ignored, bytes: one(func(m *miekg.Msg) { m.Question = append(m.Question, m.Question[0]) })},
		"two counted":     {fate: ignored, bytes: counts(5, 2)},
		"no question":     {fate: ignored, bytes: one(noQuestion)},
		"REFUSED, damaged": {fate: ignored, bytes: func(q []byte) []byte {
			return cutEnd(1, reply(q, rcode(miekg.RcodeRefused), noQuestion, answer(forgedRecord)))
		}},
		"bare NOERROR":       {fate: ignored, bytes: headerOnly(miekg.RcodeSuccess)},
		"TC, other question": {fate: ignored, bytes: one(truncate, other)},

		"TC":                  {fate: incomplete, bytes: one(truncate)},
		"TC and damaged":      {fate: incomplete, bytes: func(q []byte) []byte { return cutEnd(3, reply(q, truncate, answer(forgedRecord))) }},
		"TC without question": {fate: incomplete, bytes: func(q []byte) []byte { return reply(q, truncate)[:12] }},
		"cut in a record":     {fate: incomplete, bytes: func(q []byte) []byte { return cutEnd(3, reply(q, answer(forgedRecord))) }},
		"answers too many":    {fate: incomplete, bytes: counts(7, 9)},
		"answers too few":     {fate: incomplete, bytes: counts(7, 0)},
		"authority too few":   {fate: incomplete, bytes: counts(9, 0, answer(), authority(forgedRecord))},
		"additional too few":  {fate: incomplete, bytes: counts(11, 0, withEDNS)},
		"one byte more":       {fate: incomplete, bytes: func(q []byte) []byte { return append(reply(q, withEDNS, answer(forgedRecord)), 0) }},
		// Without the OPT record, which has the upper half of the rcode, the reply looks like
		// NOERROR.
		"cut before the OPT": {fate: incomplete, bytes: func(q []byte) []byte { return cutEnd(11, reply(q, withEDNS, rcode(miekg.RcodeBadVers))) }},
		// The reply exactly fills the buffer of 4,096 bytes. A longer reply would look the
		// same, because its end would be lost unnoticed.
		"cut by the buffer": {fate: incomplete, bytes: func(q []byte) []byte {
			return reply(q, answer(forgedRecord), addPadding(4096-len(reply(q, answer(forgedRecord), addPadding(0)))))
		}},

		"EDNS":          {fate: accepted, bytes: one(withEDNS)},
		"TSIG":          {fate: accepted, bytes: one(withEDNS, func(m *miekg.Msg) { m.SetTsig("key.", miekg.HmacSHA256, 300, 1) })},
		"unknown types": {fate: accepted, bytes: one(authority(`@ 60 IN TYPE65400 \# 4 01020304`, `@ 60 IN TYPE65401 \# 0`))},
		"all sections":  {fate: accepted, bytes: one(compress, sections(nil, "@ 60 IN NS a.example.com.", "@ 60 IN NS b.example.com."))},
	}, func(t *testing.T, c row) {
		w := newWorld(t, host{
			udp: func(n int, q []byte) []message {
				before := []func([]byte) []byte{one(otherID), one(otherID)}
				return sendAtOnce(append(before, c.bytes, func(q []byte) []byte { return reply(q, answer(goodRecord)) })...)(n, q)
			},
			tcp: frameForTCP(replyAfter(0, answer("@ 60 IN A 192.0.2.53"))),
		})
		got, err := w.lookup("A")
		wantAddress(t, got, err, map[treatment]string{ignored: "192.0.2.1", incomplete: "192.0.2.53", accepted: "192.0.2.66"}[c.fate])
		if asked := len(w.dials) == 2; asked != (c.fate == incomplete) {
			t.Errorf("dialled %q", w.dials)
		}
	})
}

// TestPassedOver checks replies that say nothing about the name: a reply about the resolver
// itself, a referral to other servers, and bytes over TCP that are not a reply. The next
// resolver must be queried at once. If all resolvers send such replies, the lookup must return
// upstream_unavailable.
func TestPassedOver(t *testing.T) {
	const alias = "@ 60 IN CNAME b.example.net."
	udp := func(typ string, changes ...change) row { return row{typ, host{udp: replyAfter(0, changes...)}} }
	only := func(message func([]byte) []byte) row { return row{"A", host{udp: sendAtOnce(message)}} }
	tcp := func(s script) row { return row{"A", host{replyAfter(0, truncate), s}} }
	bytes := func(b ...byte) script { return sendAtOnce(func([]byte) []byte { return b }) }
	eachInBubble(t, map[string]row{
		"REFUSED":                   udp("A", rcode(miekg.RcodeRefused), answer(forgedRecord)),
		"FORMERR":                   udp("A", rcode(miekg.RcodeFormatError), answer(forgedRecord)),
		"bare REFUSED":              only(headerOnly(miekg.RcodeRefused)),
		"bare SERVFAIL":             only(headerOnly(miekg.RcodeServerFailure)),
		"bare REFUSED, OPT counted": only(func(q []byte) []byte { return reply(q, withEDNS, rcode(miekg.RcodeRefused))[:12] }),
		"bare YXDOMAIN":             only(headerOnly(miekg.RcodeYXDomain)),
		"SERVFAIL without question": udp("A", rcode(miekg.RcodeServerFailure), noQuestion, answer(forgedRecord)),

		"a referral":                      udp("A", referral()),
		"a referral behind an alias":      udp("A", referral(alias)),
		"a referral and another's":        udp("A", referral(alias, "c.example.net. 60 IN A 192.0.2.66")),
		"a referral and another type":     udp("A", referral("@ 60 IN TXT x")),
		"a referral and another class":    udp("A", referral("@ 60 CH A 192.0.2.66")),
		"a referral to the name's own":    udp("NS", sections(nil, "@ 172800 IN NS a.example.com.")),
		"a referral and a target's alias": udp("CNAME", referral("b.example.net. 60 IN CNAME c.example.net.")),

		"TCP: closed":        tcp(sendAtOnce()),
		"TCP: half a length": tcp(bytes(0)),
		"TCP: empty frame":   tcp(bytes(0, 0)),
		"TCP: short frame":   tcp(sendAtOnce(func(q []byte) []byte { return append([]byte{0xff, 0xff}, reply(q, answer(forgedRecord))...) })),
		"TCP: wrong ID":      tcp(frameForTCP(replyAfter(0, otherID, answer(forgedRecord)))),
		"TCP: still TC":      tcp(frameForTCP(replyAfter(0, truncate, answer(forgedRecord)))),
		"TCP: damaged":       tcp(frameForTCP(sendAtOnce(func(q []byte) []byte { return cutEnd(1, reply(q, answer(forgedRecord))) }))),
		"TCP: one byte more": tcp(frameForTCP(sendAtOnce(func(q []byte) []byte { return append(reply(q, answer(forgedRecord)), 0) }))),
	}, func(t *testing.T, c row) {
		if got, err := newWorld(t, c.host, c.host, host{}).lookup(c.typ); testbed.Code(err) != lookup.UpstreamUnavailable {
			t.Errorf("alone: %+v, %v, want upstream_unavailable", got, err)
		}
		w := newWorld(t, c.host, resolver(answer(goodRecord, "@ 60 IN NS x.", "@ 60 IN CNAME x.")))
		if got, err := w.lookup(c.typ); err != nil || len(got.Records) != 1 || got.Resolver != "8.8.8.8" {
			t.Errorf("with another: %+v, %v, want its record", got, err)
		}
		w.wantElapsed(0)
	})
}

// row is a record type to query, and the resolver that is queried.
type row struct {
	typ  string
	host host
}

// TestEDNS checks that the question offers a UDP payload of 1,232 bytes, and is sent again
// without EDNS to a resolver that refuses EDNS over UDP or TCP.
func TestEDNS(t *testing.T) {
	formerr := replyAfter(0, rcode(miekg.RcodeFormatError))
	old := func(refuses script) script {
		return func(n int, q []byte) []message {
			if unpackQuery(q).IsEdns0() == nil {
				return replyGood(0)(n, q)
			}
			return refuses(n, q)
		}
	}
	eachInBubble(t, map[string]host{
		"FORMERR":                  {udp: old(formerr)},
		"FORMERR, header only":     {udp: old(sendAtOnce(headerOnly(miekg.RcodeFormatError)))},
		"FORMERR without question": {udp: old(replyAfter(0, rcode(miekg.RcodeFormatError), noQuestion))},
		"NOTIMP":                   {udp: old(replyAfter(0, rcode(miekg.RcodeNotImplemented)))},
		"BADVERS":                  {udp: old(replyAfter(0, withEDNS, rcode(miekg.RcodeBadVers)))},
		"FORMERR over TCP":         {udp: replyAfter(0, truncate), tcp: frameForTCP(old(formerr))},
	}, func(t *testing.T, h host) {
		w := newWorld(t, h, host{})
		got, err := w.lookup("A")
		wantAddress(t, got, err, "192.0.2.1")
		var sizes []int
		for _, m := range w.received {
			if sizes = append(sizes, 0); m.IsEdns0() != nil {
				sizes[len(sizes)-1] = int(m.IsEdns0().UDPSize())
			}
		}
		if s := fmt.Sprint(slices.Compact(sizes)); s != "[1232 0]" {
			t.Errorf("EDNS sizes %s, want 1232 and then none", s)
		}
	})
}

// TestQuestion checks that each question has a new connection, a random ID and random letter
// cases, and asks for recursion. The case of each letter must be independent: each pair of
// neighbours must show all four combinations.
func TestQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const domain = "abcdefghijklmnopqrstuvwxyz.example.com"
		// With 200 questions, the probability that a given pair lacks one of its four
		// combinations is at most 4 × 0.75^200.
		const n = 200
		w := newWorld(t, host{udp: replyAfter(0)})
		for range n {
			if _, err := w.client().Lookup(t.Context(), dns.Query{Domain: domain, Type: "A"}); err != nil {
				t.Fatal(err)
			}
		}
		ids, pairs := map[uint16]bool{}, map[string]bool{}
		for _, q := range w.received {
			if ids[q.Id] = true; !q.RecursionDesired || q.CheckingDisabled || len(q.Question) != 1 || q.IsEdns0().Do() ||
				!strings.EqualFold(q.Question[0].Name, domain+".") {
				t.Errorf("question %v", q)
			}
			for i := range 25 {
				pairs[q.Question[0].Name[i:i+2]] = true
			}
		}
		if len(ids) < n/2 || len(w.dials) != n || len(pairs) != 4*25 {
			t.Errorf("%d questions had %d IDs, %d connections and %d pairs of letters, want 100", n, len(ids), len(w.dials), len(pairs))
		}
	})
}
