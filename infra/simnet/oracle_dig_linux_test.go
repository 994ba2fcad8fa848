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

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// digOracle asks the first resolver for all seven types, or for the one that a site is
// about.
func digOracle(n *internet) oracle {
	questions := []string{"gone.example.com/A"}
	for _, h := range n.comparedWith("dig") {
		for _, typ := range []string{"A", "AAAA", "MX", "TXT", "CNAME", "NS", "SOA"} {
			if h.only == "" && !h.silent || typ == cmp.Or(h.only, "A") {
				questions = append(questions, h.name+"/"+typ)
			}
		}
	}
	return oracle{"dig", questions, func(t *testing.T, question string, a *agreement) {
		name, typ, _ := strings.Cut(question, "/")
		got, code := a.lookUp(t, catalog.DNS(), name, "&type="+typ)
		ours := cmp.Or(map[fault.Code]string{lookup.NXDomain: "NXDOMAIN", lookup.DNSTimeout: noAnswer}[fault.Code(code)], code, fmt.Sprint(got["rcode"]))
		rcode, ttl, theirs := dig(t, name, typ)
		// A datagram can be lost on a machine that is busy. One who lies or is
		// silent does so again.
		for tries := 1; rcode == noAnswer && ours != noAnswer && tries < 3; tries++ {
			rcode, ttl, theirs = dig(t, name, typ)
		}
		a.compare(question, "rcode", ours, rcode)
		if code != "" || rcode != "NOERROR" {
			return
		}
		a.compare(question, "ttl", fmt.Sprint(got["ttl"]), ttl)
		var records []string
		for i, r := range got["records"].([]any) {
			if at := fmt.Sprint("records.", i, "."); typ == "TXT" {
				records = append(records, texts(append(listed(got[at+"strings"]), fmt.Sprint(got[at+"text"]))))
			} else {
				records = append(records, string(must(json.Marshal(r))))
			}
		}
		a.compare(question, "records", strings.Join(records, "\n"), strings.Join(theirs, "\n"))
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
		rcode = string(lookup.UpstreamUnavailable) // it speaks of the resolver
	}
	lowest := 1<<32 - 1
	for line := range strings.Lines(out) {
		f := strings.Fields(line) // owner, TTL, class, type and data
		if strings.HasPrefix(line, ";") || len(f) < 5 {
			continue
		}
		lowest = min(lowest, must(strconv.Atoi(f[1])))
		if f[3] == typ {
			records = append(records, fields(typ, line, f[4:]))
		}
	}
	if len(records) == 0 {
		return rcode, fmt.Sprint(nil), nil
	}
	return rcode, fmt.Sprint(lowest), records
}

// fields are a record's in the service's shape, with keys in order.
func fields(typ, line string, data []string) string {
	if typ == "TXT" {
		var parts []string
		for _, m := range regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(line, -1) {
			parts = append(parts, m[1])
		}
		return texts(append(parts, strings.Join(parts, "")))
	}
	names := map[string]string{
		"A": "address", "AAAA": "address", "MX": "preference exchange", "CNAME": "target", "NS": "target",
		"SOA": "mname rname serial refresh retry expire minimum",
	}
	v := map[string]any{}
	for i, name := range strings.Fields(names[typ]) {
		text := strings.ToLower(data[i])
		v[name] = cmp.Or(strings.TrimSuffix(text, "."), text)
		if n, err := strconv.Atoi(text); err == nil {
			v[name] = n
		}
	}
	return string(must(json.Marshal(v)))
}

var escape = regexp.MustCompile(`\\([0-9]{3}|["\\])`)

// texts are the bytes of texts in which some are escaped. Those that the service
// shows as they are, dig escapes.
func texts(list []string) string {
	all := escape.ReplaceAllStringFunc(strings.Join(list, "\x00"), func(e string) string {
		if n, err := strconv.Atoi(e[1:]); err == nil {
			return string([]byte{byte(n)})
		}
		return e[1:]
	})
	return strconv.Quote(all)
}
