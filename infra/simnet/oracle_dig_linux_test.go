package simnet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// digOracle asks the first resolver for all seven types where the answer is honest,
// and for A where it is not.
func digOracle(n *internet) oracle {
	questions := []string{"gone.example.com A"}
	for _, h := range n.comparedWith("dig") {
		types := []string{"A", "AAAA", "MX", "TXT", "CNAME", "NS", "SOA"}
		if h.dishonest || h.silent {
			types = types[:1]
		}
		for _, typ := range types {
			questions = append(questions, h.name+" "+typ)
		}
	}
	return oracle{"dig", questions, func(t *testing.T, question string, a *agreement) {
		name, typ, _ := strings.Cut(question, " ")
		var got struct { // the result of spec §2.1 with records of any type
			Rcode   string
			TTL     *int64
			Records []map[string]any
		}
		code := a.lookUp(t, catalog.DNS(), name, "&type="+typ, &got)
		rcode, ttl, records := dig(t, name, typ)
		// A datagram can be lost on a machine that is busy. One who lies or is
		// silent does so again.
		for tries := 1; rcode == noAnswer && code != string(fault.DNSTimeout) && tries < 3; tries++ {
			rcode, ttl, records = dig(t, name, typ)
		}
		host := short(name) + "/" + typ
		a.compare(host, "rcode", outcome(code, got.Rcode), rcode)
		if code != "" || rcode != "NOERROR" {
			return
		}
		ours := "none"
		if got.TTL != nil {
			ours = strconv.FormatInt(*got.TTL, 10)
		}
		a.compare(host, "ttl", ours, ttl)
		texts := make([]string, len(got.Records))
		for i, r := range got.Records {
			texts[i] = string(must(json.Marshal(r)))
		}
		a.compare(host, "records", strings.Join(texts, "\n"), strings.Join(records, "\n"))
	}}
}

const noAnswer = "no answer"

// outcome is the return code that an answer of the service stands for.
func outcome(code, rcode string) string {
	switch fault.Code(code) {
	case fault.NXDomain:
		return "NXDOMAIN"
	case fault.DNSTimeout:
		return noAnswer
	}
	return cmp.Or(code, rcode)
}

// dig asks the first resolver, and writes what it says as the service would.
func dig(t *testing.T, name, typ string) (rcode, ttl string, records []string) {
	t.Helper()
	out := run(t, patience, nil, "", "dig", "@"+resolverAddrs()[0], name, typ, "+noall", "+answer", "+comments", "+time=5", "+tries=1").out
	_, after, answered := strings.Cut(out, "status: ")
	if !answered {
		return noAnswer, "", nil
	}
	rcode, _, _ = strings.Cut(after, ",")
	if !slices.Contains([]string{"NOERROR", "NXDOMAIN", "SERVFAIL", "YXDOMAIN"}, rcode) {
		rcode = string(fault.UpstreamUnavailable) // it speaks of the resolver
	}
	lowest := int64(-1)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, ";") || strings.TrimSpace(line) == "" {
			continue
		}
		rr, err := dns.NewRR(line)
		if err != nil || rr == nil {
			t.Fatalf("dig printed %q: %v", line, err)
		}
		if seconds := int64(rr.Header().Ttl); lowest < 0 || seconds < lowest {
			lowest = seconds
		}
		if dns.TypeToString[rr.Header().Rrtype] == typ {
			records = append(records, fields(t, rr))
		}
	}
	if len(records) == 0 {
		return rcode, "none", nil
	}
	return rcode, strconv.FormatInt(lowest, 10), records
}

// fields are a record's in the service's shape, with keys in order.
func fields(t *testing.T, rr dns.RR) string {
	t.Helper()
	bare := func(name string) string {
		name = strings.ToLower(name)
		if name == "." || strings.HasSuffix(name, `\.`) {
			return name
		}
		return strings.TrimSuffix(name, ".")
	}
	var v map[string]any
	switch rr := rr.(type) {
	case *dns.A:
		v = map[string]any{"address": rr.A.String()}
	case *dns.AAAA:
		text := rr.AAAA.String()
		if four := rr.AAAA.To4(); four != nil {
			text = "::ffff:" + four.String()
		}
		v = map[string]any{"address": text}
	case *dns.MX:
		v = map[string]any{"preference": rr.Preference, "exchange": bare(rr.Mx)}
	case *dns.CNAME:
		v = map[string]any{"target": bare(rr.Target)}
	case *dns.NS:
		v = map[string]any{"target": bare(rr.Ns)}
	case *dns.SOA:
		v = map[string]any{"mname": bare(rr.Ns), "rname": bare(rr.Mbox), "serial": rr.Serial, "refresh": rr.Refresh, "retry": rr.Retry, "expire": rr.Expire, "minimum": rr.Minttl}
	case *dns.TXT:
		all, parts := "", []string{}
		for _, s := range rr.Txt {
			all += plainBytes(s)
			parts = append(parts, shown(plainBytes(s)))
		}
		v = map[string]any{"text": shown(all), "strings": parts}
	default:
		t.Fatalf("what is %T?", rr)
	}
	return string(must(json.Marshal(v)))
}

// plainBytes undoes the escapes of the zone file form.
func plainBytes(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		switch {
		case s[0] != '\\' || len(s) < 2:
			out.WriteByte(s[0])
			s = s[1:]
		case len(s) >= 4 && s[1] >= '0' && s[1] <= '9':
			n, _ := strconv.Atoi(s[1:4])
			out.WriteByte(byte(n))
			s = s[4:]
		default:
			out.WriteByte(s[1])
			s = s[2:]
		}
	}
	return out.String()
}

// shown writes bytes as the service documents it for TXT.
func shown(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		digits := len(s) >= i+4 && strings.Trim(s[i+1:i+4], "0123456789") == ""
		if r == utf8.RuneError && size == 1 || s[i] == '\\' && digits {
			fmt.Fprintf(&out, `\%03d`, s[i])
		} else {
			out.WriteString(s[i : i+size])
		}
		i += size
	}
	return out.String()
}
