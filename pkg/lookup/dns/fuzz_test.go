package dns

import (
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// fuzzedQuestion returns the question whose replies are fuzzed. Its ID and letter case are
// fixed, so that the fuzzer can match them.
func fuzzedQuestion(typ string) question {
	return question{id: 0x1234, name: "eXample.cOm.", qtype: miekg.StringToType[typ]}
}

// supportedTypes returns the record types that have a reader.
func supportedTypes() (all []string) {
	for qtype := range readers() {
		all = append(all, miekg.TypeToString[qtype])
	}
	slices.Sort(all)
	return all
}

// FuzzReply parses arbitrary bytes as a reply. If the bytes parse, it checks the header of the
// reply and the form of the result.
func FuzzReply(f *testing.F) {
	for i, typ := range supportedTypes() {
		for _, b := range replySeeds(fuzzedQuestion(typ)) {
			f.Add(b, uint8(i))
		}
	}
	f.Add([]byte{0x12}, uint8(0)) // shorter than a header
	f.Fuzz(func(t *testing.T, raw []byte, n uint8) {
		typ := supportedTypes()[int(n)%len(supportedTypes())]
		q := fuzzedQuestion(typ)
		m, err := q.parseReply(raw)
		if err != nil {
			if m != nil {
				t.Error("a reply beside an error")
			}
			return
		}
		checkReply(t, raw, m, q, typ)
	})
}

// checkReply checks the header of an accepted reply, and the form of the result that it yields.
func checkReply(t *testing.T, raw []byte, m *miekg.Msg, q question, typ string) {
	t.Helper()
	if len(raw) < 12 || binary.BigEndian.Uint16(raw) != q.id || raw[2]>>3 != 0x10 || m.Truncated {
		t.Errorf("took %x for a reply", raw[:min(12, len(raw))])
	}
	r := newReply(m, netip.MustParseAddr("192.0.2.53"), "example.com", q.qtype)
	if r.outcome != usableAnswer && r.outcome != servfailReply {
		return
	}
	got, err := r.result(Query{Domain: "example.com", Type: typ})
	if m.Rcode == miekg.RcodeNameError && !r.deniesAliasTarget() {
		if f := fault.From(err); f.Code != lookup.NXDomain || len(m.Question) != 1 || len(m.Ns) == 0 {
			t.Errorf("NXDOMAIN gave %v, questions %v, authority %v", err, m.Question, m.Ns)
		}
		return
	}
	if err != nil {
		t.Fatalf("rcode %d: %v", m.Rcode, err)
	}
	checkResult(t, typ, got)
}

// checkResult checks the properties that every result must have.
func checkResult(t *testing.T, typ string, got Result) {
	t.Helper()
	b, err := json.Marshal(got)
	if err != nil || !json.Valid(b) || !utf8.Valid(b) || len(b) > 8<<20 {
		t.Fatalf("%d bytes of JSON, %v: %.200q", len(b), err, b)
	}
	if (got.TTL == nil) != (len(got.Records) == 0) || got.TTL != nil && *got.TTL > 1<<31-1 {
		t.Errorf("ttl %v with %d records", got.TTL, len(got.Records))
	}
	if got.Records == nil || len(got.Records) > maxRecords || got.Rcode == "SERVFAIL" && len(got.Records) > 0 {
		t.Errorf("rcode %s with %d records", got.Rcode, len(got.Records))
	}
	checkRecords(t, typ, got.Records)
}

// checkRecords checks that each record has the form that its type requires.
func checkRecords(t *testing.T, typ string, records []Record) {
	t.Helper()
	for _, r := range records {
		var names []string
		switch r := r.(type) {
		case Address:
			a, err := netip.ParseAddr(r.Address)
			if err != nil || a.Zone() != "" || a.Is4() != (typ == "A") {
				t.Errorf("type %s has the address %s", typ, r.Address)
			}
		case MX:
			names = []string{r.Exchange}
		case TXT:
			if len(r.Strings) == 0 || !utf8.ValidString(r.Text) || decode(r.Text) != decode(r.Strings...) {
				t.Errorf("text %#v", r)
			}
		case Target:
			names = []string{r.Target}
		case SOA:
			names = []string{r.MName, r.RName}
		}
		if slices.ContainsFunc(names, isNotResultName) {
			t.Errorf("type %s has the record %#v", typ, r)
		}
	}
}

// isNotResultName reports whether a text is not a domain name in the form that results use.
func isNotResultName(name string) bool {
	if _, ok := miekg.IsDomainName(name); !ok || name == "" {
		return true
	}
	return name != "." && miekg.IsFqdn(name) || name != strings.ToLower(name)
}

// decode joins parts and replaces each \DDD by its byte, as the doc comment of TXT describes.
func decode(parts ...string) string {
	var out strings.Builder
	for _, s := range parts {
		for i := 0; i < len(s); i++ {
			if s[i] == '\\' && beginsWithThreeDigits(s[i+1:]) {
				out.WriteByte((s[i+1]-'0')*100 + (s[i+2]-'0')*10 + (s[i+3] - '0'))
				i += 3
				continue
			}
			out.WriteByte(s[i])
		}
	}
	return out.String()
}

// replySeeds returns a reply of every kind that the code distinguishes.
func replySeeds(q question) (out [][]byte) {
	records := []string{
		"example.com. 60 IN CNAME a.example.net.", "a.example.net. 50 IN CNAME B.example.net.",
		"example.com. 60 IN A 192.0.2.1", "b.example.net. 4294967295 IN A 192.0.2.2", "b.example.net. 60 IN AAAA 2001:db8::1",
		"b.example.net. 60 IN MX 10 mx.example.net.", "example.com. 60 IN MX 0 .", `b.example.net. 60 IN TXT "a\195" "\169\\195" ""`,
		`example.com. 60 IN NS a\.b\200.example.net.`, `b.example.net. 60 IN SOA ns. h\.m. 1 2 3 4 5`, "com. 60 IN DNAME example.net.",
	}
	var all []miekg.RR
	for _, r := range records {
		all = append(all, testbed.Must(miekg.NewRR(r)))
	}
	for _, rcode := range []int{miekg.RcodeSuccess, miekg.RcodeNameError, miekg.RcodeYXDomain, miekg.RcodeServerFailure, miekg.RcodeFormatError} {
		for _, authority := range [][]miekg.RR{nil, all[8:9], all[9:10]} {
			for _, answer := range [][]miekg.RR{nil, all} {
				m := miekg.Msg{Question: q.questionSection(), Answer: answer, Ns: authority, Compress: true}
				m.MsgHdr = miekg.MsgHdr{Id: q.id, Response: true, Rcode: rcode}
				whole := testbed.Must(m.Pack())
				m.Truncated, m.Question = true, nil
				out = append(out, whole, whole[:len(whole)-1], whole[:12], testbed.Must(m.Pack()))
			}
		}
	}
	return out
}
