package registry

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/openrdap/rdap"
	"golang.org/x/tools/txtar"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

var update = flag.Bool("update", false, "write the golden files")

// TestFixtures checks the results for the registry answers in the archive
// testdata/answers.txtar. A registry serves each <name>.json of the archive. The JSON of the
// result must then equal the <name>.want of the archive byte by byte. With -update the test
// writes the results to the archive.
func TestFixtures(t *testing.T) {
	t.Parallel()
	const file = "testdata/answers.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil || len(archive.Files) < 30 || len(archive.Files)%2 != 0 {
		t.Fatalf("%+v, %v", archive, err)
	}
	runStage(t, func(t *testing.T, s *stage) {
		var answer txtar.File
		s.addRegistry("rdap.registry.com", func(w io.Writer, r *http.Request) {
			checkRequest(t, r)
			respondOK(string(answer.Data))(w, r)
		})
		for pair := range slices.Chunk(archive.Files, 2) {
			want := &pair[1]
			answer = pair[0]
			if name, ok := strings.CutSuffix(answer.Name, ".json"); !ok || want.Name != name+".want" {
				t.Fatalf("%s is followed by %s", answer.Name, want.Name)
			}
			got, err := s.lookup(t.Context(), "www.example.com", "")
			b := append(testbed.Must(json.MarshalIndent(got, "", "  ")), '\n')
			if *update {
				want.Data = b
			}
			if d := cmp.Diff(string(want.Data), string(b)); d != "" || err != nil {
				t.Errorf("%s: %v, -want +got\n%s", answer.Name, err, d)
			}
		}
	})
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// checkRequest checks that a request to a registry asks for the registrable domain in the form
// of RDAP, and that it reveals nothing else about the query or its sender.
func checkRequest(t *testing.T, r *http.Request) {
	t.Helper()
	if r.URL.Path != "/v1/domain/example.com" || r.URL.RawQuery != "" || r.Host != "rdap.registry.com" || r.Proto != "HTTP/1.1" ||
		r.Method != http.MethodGet || r.UserAgent() != "test/1" || !strings.Contains(r.Header.Get("Accept"), "application/rdap+json") ||
		r.ContentLength != 0 || !r.Close || r.Header.Get("Cookie") != "" {
		t.Errorf("asked %s %s%s: %v", r.Method, r.Host, r.URL, r.Header)
	}
}

// TestOutcomes checks the result or the error for each way in which a registry can respond.
func TestOutcomes(t *testing.T) {
	const ok, gzipped = "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
	good, hint := domainJSON(), "HTTP/1.1 103 Early Hints\r\n\r\n"
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	type row struct {
		respond responder
		code    fault.Code // the code of the expected error; empty if a result is expected
		message string     // a part of the public message of the expected error
	}
	wantResult := func(respond responder) row { return row{respond, "", ""} }
	wantUpstreamError := func(respond responder, message string) row { return row{respond, lookup.RDAPUpstream, message} }
	eachStage(t, map[string]row{
		"domain":                       wantResult(respondOK(good)),
		"domain with 203":              wantResult(respondStatus(203, good)),
		"domain after a BOM":           wantResult(respondOK("\xef\xbb\xbf" + good)),
		"not UTF-8 in a string":        wantResult(respondOK(domainJSON("\"handle\":\"a\xff\""))),
		"text/plain":                   wantResult(rawResponse("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + good)),
		"nested as deep as allowed":    wantResult(respondOK(domainJSON(`"x":` + deep[7:len(deep)-7]))),
		"early hints":                  wantResult(rawResponse(strings.Repeat(hint, 5) + ok + good)),
		"gzip unasked":                 wantResult(rawResponse(gzipped + zipped(good))),
		"long but allowed":             wantResult(respondOK(good + strings.Repeat(" ", 1<<20-len(good)))),
		"404":                          {respondStatus(404, `{"errorCode":404}`), lookup.NotFound, ""},
		"404 without a body":           {respondStatus(404, ""), lookup.NotFound, ""},
		"404 with an endless body":     {respondSlowly("HTTP/1.1 404 Not Found\r\n\r\n"), lookup.NotFound, ""},
		"200 with an error object 404": {respondOK(`{"errorCode":404,"title":"Not Found"}`), lookup.NotFound, ""},
		"error object without a code":  wantUpstreamError(respondOK(`{"errorCode":null}`), "an error"),
		"500":                          wantUpstreamError(respondStatus(500, good), "HTTP status 500"),
		"empty":                        wantUpstreamError(respondOK(""), ""),
		"no class":                     wantUpstreamError(respondOK(`{"ldhName":"example.com"}`), "something other"),
		"trailing text":                wantUpstreamError(respondOK(good+"x"), ""),
		"another name":                 wantUpstreamError(respondOK(domainJSONOf("example.org")), "another name"),
		"nested too deep":              wantUpstreamError(respondOK(domainJSON(`"x":`+deep)), ""),
		"too many values":              wantUpstreamError(respondOK(domainJSON(`"entities":[{}`+strings.Repeat(",{}", 30_000)+`]`)), ""),
		"early hints for ever":         wantUpstreamError(rawResponse(strings.Repeat(hint, 1<<17)+ok+good), ""),
		"switching protocols":          wantUpstreamError(rawResponse("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"+good), ""),
		"gzip bomb":                    wantUpstreamError(rawResponse(gzipped+zipped(`{"x":"`+strings.Repeat("x", 50<<20)+`"}`)), ""),
		"not gzip":                     wantUpstreamError(rawResponse(gzipped+good), ""),
		"cut short":                    wantUpstreamError(rawResponse("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"+good), ""),
		"gzip of nothing, often":       wantUpstreamError(rawResponse(gzipped+strings.Repeat(zipped(""), 1<<17)+zipped(good)), ""),
		"a little too long":            wantUpstreamError(respondOK(good+strings.Repeat(" ", 1<<20+1-len(good))), ""),
		"chunked for ever":             wantUpstreamError(rawResponse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+strings.Repeat("1\r\n \r\n", 1<<20)), ""),
		"nothing":                      wantUpstreamError(rawResponse(""), ""),
	}, func(t *testing.T, s *stage, c row) {
		s.addRegistry("rdap.registry.com", c.respond)
		s.wantError(c.code, c.message)
	})
}

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.String()
}

// TestWrongTypes checks domain objects in which one member has a value of a wrong type. The
// result must be the same as without that member.
func TestWrongTypes(t *testing.T) {
	t.Parallel()
	plain := `{"domain":"example.com","source":"rdap","rdap_server":"","handle":null,"status":[],` +
		`"registrar":null,"created_at":null,"updated_at":null,"expires_at":null,"nameservers":[],"dnssec":false}`
	for _, member := range []string{"handle", "status", "entities", "events", "nameservers", "secureDNS"} {
		for _, value := range []string{"null", "true", "-1.5", "{}", "[]", "[null]", "[[]]", "[{}]", `[[{}],[0]]`, `""`, `{"x":[1]}`} {
			answer := domainJSON(`"` + member + `":` + value)
			if b, err := json.Marshal(resultOf(t, answer)); err != nil || string(b) != plain {
				t.Errorf("%s gave %s, %v", answer, b, err)
			}
		}
	}
}

// resultOf returns the result that the package makes of a registry's answer about example.com.
func resultOf(t *testing.T, answer string) whois.Result {
	t.Helper()
	object, err := rdap.NewDecoder([]byte(answer)).Decode()
	d, ok := object.(*rdap.Domain)
	if !ok || !isAbout(d, "example.com") {
		t.Fatalf("%s: %v, %v", answer, object, err)
	}
	return result(whois.Query{Domain: "example.com"}, "", d)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	long, servers := strings.Repeat("x", 600), ""
	for i := range 200 {
		servers += fmt.Sprintf(`,{"ldhName":"ns%d.example.net"}`, i)
	}
	nested := `{"roles":["registrar"],"vcardArray":["vcard",[["fn",{},"text","Deep"]]]}`
	for range 8 {
		nested = `{"entities":[` + nested + `]}`
	}
	got := resultOf(t, domainJSON(`"handle":"`+long+`"`, `"status":["`+long+`"`+strings.Repeat(`,"active"`, 200)+`]`,
		`"nameservers":[{"ldhName":"`+long+`.com"}`+servers+`]`, `"entities":[`+nested+`]`))
	if got.Handle != nil || len(got.Status) != 64 || got.Status[0] != "active" || len(got.Nameservers) != 64 || got.Registrar != nil {
		t.Errorf("got %+v", got)
	}
}

// FuzzAnswer parses arbitrary bytes as an RDAP answer. If the name in the answer is ASCII and
// does not contain example.com, the function isAbout must not take it for example.com. The
// function escapeControls must not change correct JSON. Any result must have the properties
// that checkResult checks.
func FuzzAnswer(f *testing.F) {
	archive, err := txtar.ParseFile("testdata/answers.txtar")
	if err != nil || len(archive.Files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range archive.Files {
		if strings.HasSuffix(file.Name, ".json") {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		if len(answer) > maxAnswer || answerLimits().Check(answer) != nil {
			return
		}
		mended := escapeControls(answer)
		if json.Valid(answer) && !bytes.Equal(mended, answer) {
			t.Errorf("%q became %q", answer, mended)
		}
		answer = mended
		object, err := rdap.NewDecoder(answer).Decode()
		if err != nil {
			return
		}
		d, ok := object.(*rdap.Domain)
		if !ok {
			return
		}
		published := strings.ToLower(d.LDHName + d.UnicodeName)
		if isAbout(d, "example.com") && isASCII(published) && !strings.Contains(published, "example.com") {
			t.Errorf("%q is about example.com", published)
		}
		checkResult(t, result(whois.Query{Domain: "www.example.com"}, "https://rdap.example.com/", d))
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// checkResult checks the properties that every result must have.
func checkResult(t *testing.T, r whois.Result) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil || !utf8.Valid(b) || len(b) > 1<<20 {
		t.Fatalf("%d bytes of JSON, %v", len(b), err)
	}
	if r.Handle != nil && (*r.Handle == "" || len(*r.Handle) > maxText) {
		t.Errorf("handle %q", *r.Handle)
	}
	if r.Registrar != nil && (strings.TrimSpace(r.Registrar.Name) == "" || len(r.Registrar.Name) > maxText || len(r.Registrar.IANAID) > maxText) {
		t.Errorf("registrar %+v", r.Registrar)
	}
	for _, at := range []*string{r.CreatedAt, r.UpdatedAt, r.ExpiresAt} {
		if at == nil {
			continue
		}
		if parsed, err := time.Parse(time.RFC3339, *at); err != nil || parsed.Format(time.RFC3339) != *at || len(*at) != len("2006-01-02T15:04:05Z") {
			t.Errorf("time %q: %v", *at, err)
		}
	}
	if r.Status == nil || len(r.Status) > maxListed || r.Nameservers == nil || len(r.Nameservers) > maxListed {
		t.Errorf("%d status, %d nameservers", len(r.Status), len(r.Nameservers))
	}
	for i, n := range r.Nameservers {
		if n != strings.ToLower(n) || !isASCII(n) || n == "" || len(n) > 253 || strings.HasSuffix(n, ".") || slices.Index(r.Nameservers, n) != i {
			t.Errorf("nameserver %q", n)
		}
	}
}

// TestRedirects checks redirects by a registry. The lookup must follow those that are allowed.
// It must resolve and check the host of each redirect like the first host, and must resolve no
// host that is an IP address.
func TestRedirects(t *testing.T) {
	type row struct {
		to   string
		code fault.Code
	}
	eachStage(t, map[string]row{
		"to another host":        {"https://end.registry.com/x", ""},
		"relative":               {"/end", ""},
		"a loop":                 {"https://rdap.registry.com/v1/domain/example.com", lookup.RDAPUpstream},
		"to a 404":               {"https://gone.registry.com/", lookup.NotFound},
		"to a private address":   {"https://blocked.registry.com/", lookup.RDAPUpstream},
		"to an IP address":       {"https://127.0.0.1/", lookup.RDAPUpstream},
		"to http":                {"http://end.registry.com/", lookup.RDAPUpstream},
		"not a URL, long":        {"http://[sid=SECRET" + strings.Repeat("x", 62000), lookup.RDAPUpstream},
		"long":                   {"https://nobody.registry.com/sid=SECRET" + strings.Repeat("%80", 20000), lookup.RDAPUpstream},
		"names what was asked":   {"https://nobody.registry.com/domain/example.com", lookup.RDAPUpstream},
		"to a wrong certificate": {"https://a.b.registry.com/", lookup.RDAPUpstream},
	}, func(t *testing.T, s *stage, c row) {
		s.addRegistry("rdap.registry.com", func(w io.Writer, r *http.Request) {
			if r.URL.Path == "/end" {
				respondOK(domainJSON())(w, r)
				return
			}
			respondSlowly("HTTP/1.1 302 x\r\nLocation: "+c.to+"\r\n\r\n")(w, r) // the body never ends, so the lookup must not wait for it
		})
		for _, name := range []string{"end.registry.com", "a.b.registry.com", "127.0.0.1"} {
			s.addRegistry(name, respondOK(domainJSON()))
		}
		s.addServer("end.registry.com:80", serveOne(respondOK(domainJSON())))
		s.addRegistry("gone.registry.com", respondStatus(404, ""))
		s.connectErrs["resolve blocked.registry.com"] = lookup.Fault(lookup.BlockedAddress, errors.New("10.0.0.1"))
		s.wantError(c.code, "")
		for _, host := range s.resolvedNames {
			if !strings.HasSuffix(host, ".registry.com") && host != "data.iana.org" {
				t.Errorf("%s was resolved", host)
			}
		}
	})
}

// TestUnreachable checks the errors for a registry that cannot be reached.
func TestUnreachable(t *testing.T) {
	const at, resolve, dial = "rdap.registry.com:443", "resolve rdap.registry.com", "dial rdap.registry.com"
	failAt := func(where string, err error) func(*stage) {
		return func(s *stage) { s.connectErrs[where] = err }
	}
	type row struct {
		set     func(*stage)
		code    fault.Code
		message string
	}
	eachStage(t, map[string]row{
		"not public":          {failAt(resolve, lookup.Fault(lookup.BlockedAddress, nil)), lookup.RDAPUpstream, "public"},
		"not public, dialled": {failAt(dial, lookup.Fault(lookup.BlockedAddress, nil)), lookup.RDAPUpstream, "public"},
		"no such host":        {failAt(resolve, lookup.Fault(lookup.NXDomain, nil)), lookup.RDAPUpstream, "reached"},
		"no connection":       {failAt(dial, lookup.Fault(lookup.ConnectFailed, nil)), lookup.RDAPUpstream, "reached"},
		"resolvers down":      {failAt(resolve, fmt.Errorf("x: %w", guard.ErrResolvers)), lookup.WhoisTimeout, "could not be resolved"},
		"unresolvable":        {failAt(resolve, fmt.Errorf("x: %w", guard.ErrUnresolvable)), lookup.WhoisTimeout, "could not be resolved"},
		"no route":            {failAt(dial, lookup.Fault(lookup.ConnectFailed, guard.ErrNoRoute)), lookup.WhoisTimeout, "no route"},
		"another error":       {failAt(dial, errors.New("x")), lookup.RDAPUpstream, ""},
		"not TLS":             {func(s *stage) { s.addServer(at, serveOne(respondOK(domainJSON()))) }, lookup.RDAPUpstream, ""},
		"unknown authority":   {func(s *stage) { s.addServer(at, serveTLS(certificate(), respondOK(domainJSON()))) }, lookup.RDAPUpstream, ""},
		"hangs up":            {func(s *stage) { s.addServer(at, func(net.Conn) {}) }, lookup.RDAPUpstream, ""},
	}, func(_ *testing.T, s *stage, c row) {
		c.set(s)
		s.wantError(c.code, c.message)
	})
}

// respondSlowly returns a responder that writes the text in start, and then one space after
// another until the client hangs up.
func respondSlowly(start string) responder {
	return func(w io.Writer, _ *http.Request) {
		for _, err := io.WriteString(w, start); err == nil; _, err = io.WriteString(w, " ") {
			time.Sleep(5 * time.Millisecond) // fake time, in the synctest bubble
		}
	}
}

func TestSlowPeers(t *testing.T) {
	eachStage(t, map[string]func(*stage) func(net.Conn){
		"silent after the handshake": func(s *stage) func(net.Conn) {
			return serveTLS(s.cert, func(w io.Writer, _ *http.Request) { silence(w.(net.Conn)) })
		},
		"silent in the handshake": func(*stage) func(net.Conn) { return silence },
		"drips headers":           func(s *stage) func(net.Conn) { return serveTLS(s.cert, respondSlowly("HTTP/1.1 200 OK\r\nX: ")) },
		"drips a body":            func(s *stage) func(net.Conn) { return serveTLS(s.cert, respondSlowly("HTTP/1.1 200 OK\r\n\r\n")) },
		"silent after a redirect": func(s *stage) func(net.Conn) {
			s.addServer("slow.registry.com:443", silence)
			return serveTLS(s.cert, respondRedirect("https://slow.registry.com/"))
		},
	}, func(t *testing.T, s *stage, peer func(*stage) func(net.Conn)) {
		s.addServer("rdap.registry.com:443", peer(s))
		s.wantFailureAt(t.Context(), 8*time.Second, lookup.WhoisTimeout) // the time limit of s.lookup
		hurried, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s.wantFailureAt(hurried, 2*time.Second, lookup.WhoisTimeout)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, leave)
		s.wantFailureAt(ctx, 500*time.Millisecond, lookup.WhoisTimeout)
	})
}
