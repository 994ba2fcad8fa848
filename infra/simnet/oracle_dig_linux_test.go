package simnet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
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
	questions := []string{"gone.example.com/A"}
	for _, h := range n.comparedWith("dig") {
		for _, typ := range []string{"A", "AAAA", "MX", "TXT", "CNAME", "NS", "SOA"} {
			if typ == "A" || !h.dishonest && !h.silent {
				questions = append(questions, h.name+"/"+typ)
			}
		}
	}
	return oracle{"dig", questions, func(t *testing.T, question string, a *agreement) {
		name, typ, _ := strings.Cut(question, "/")
		var got struct { // the result of spec §2.1 with records of any type
			Rcode   string
			TTL     *int64
			Records []map[string]any
		}
		code := a.lookUp(t, catalog.DNS(), name, "&type="+typ, &got)
		ours := cmp.Or(map[fault.Code]string{fault.NXDomain: "NXDOMAIN", fault.DNSTimeout: noAnswer}[fault.Code(code)], code, got.Rcode)
		rcode, ttl, records := dig(t, name, typ)
		// A datagram can be lost on a machine that is busy. One who lies or is
		// silent does so again.
		for tries := 1; rcode == noAnswer && ours != noAnswer && tries < 3; tries++ {
			rcode, ttl, records = dig(t, name, typ)
		}
		a.compare(question, "rcode", ours, rcode)
		if code != "" || rcode != "NOERROR" {
			return
		}
		lowest := "none"
		if got.TTL != nil {
			lowest = strconv.FormatInt(*got.TTL, 10)
		}
		a.compare(question, "ttl", lowest, ttl)
		var texts []string
		for _, r := range got.Records {
			texts = append(texts, string(must(json.Marshal(r))))
		}
		a.compare(question, "records", strings.Join(texts, "\n"), strings.Join(records, "\n"))
	}}
}

const noAnswer = "no answer"

// dig asks the first resolver, and writes what it says as the service would.
func dig(t *testing.T, name, typ string) (rcode, ttl string, records []string) {
	out, _ := run(t, patience, nil, "", "dig", "@"+resolverAddrs()[0], name, typ, "+noall", "+answer", "+comments", "+time=5", "+tries=1")
	_, after, answered := strings.Cut(out, "status: ")
	if !answered {
		return noAnswer, "", nil
	}
	rcode, _, _ = strings.Cut(after, ",")
	if !slices.Contains([]string{"NOERROR", "NXDOMAIN", "SERVFAIL", "YXDOMAIN"}, rcode) {
		rcode = string(fault.UpstreamUnavailable) // it speaks of the resolver
	}
	lowest := uint32(1<<32 - 1)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, ";") || strings.TrimSpace(line) == "" {
			continue
		}
		rr, err := dns.NewRR(line)
		if err != nil || rr == nil {
			t.Fatalf("dig printed %q: %v", line, err)
		}
		lowest = min(lowest, rr.Header().Ttl)
		if dns.TypeToString[rr.Header().Rrtype] == typ {
			records = append(records, fields(t, rr))
		}
	}
	if len(records) == 0 {
		return rcode, "none", nil
	}
	return rcode, fmt.Sprint(lowest), records
}

// fields are a record's in the service's shape, with keys in order.
func fields(t *testing.T, rr dns.RR) string {
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

var escape = regexp.MustCompile(`(?s)\\([0-9]{3}|.)`)

func plainBytes(s string) string {
	return escape.ReplaceAllStringFunc(s, func(e string) string {
		if n, err := strconv.Atoi(e[1:]); err == nil && len(e) == 4 {
			return string([]byte{byte(n)})
		}
		return e[1:]
	})
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
