package registry

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openrdap/rdap"
	"golang.org/x/tools/txtar"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

var update = flag.Bool("update", false, "write the golden files")

// TestFixtures serves each <name>.json of testdata/answers.txtar from a registry
// and compares the result with <name>.want beside it, byte by byte.
func TestFixtures(t *testing.T) {
	t.Parallel()
	const file = "testdata/answers.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil || len(archive.Files) < 30 || len(archive.Files)%2 != 0 {
		t.Fatalf("%+v, %v", archive, err)
	}
	s := newStage(t)
	var answer txtar.File
	s.https("rdap.registry.com", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/domain/example.com" || r.URL.RawQuery != "" || r.Host != "rdap.registry.com" || r.Proto != "HTTP/1.1" ||
			r.Method != http.MethodGet || r.UserAgent() != "test/1" || !strings.Contains(r.Header.Get("Accept"), "application/rdap+json") ||
			r.ContentLength != 0 || !r.Close || r.Header.Get("Cookie") != "" || r.TLS.NegotiatedProtocol != "http/1.1" {
			t.Errorf("asked %s %s%s: %v %v", r.Method, r.Host, r.URL, r.Header, r.TLS)
		}
		w.Write(answer.Data)
	})
	for pair := range slices.Chunk(archive.Files, 2) {
		want := &pair[1]
		answer = pair[0]
		if name, ok := strings.CutSuffix(answer.Name, ".json"); !ok || want.Name != name+".want" {
			t.Fatalf("%s is followed by %s", answer.Name, want.Name)
		}
		got, err := s.lookup("www.example.com")
		b := append(must(json.MarshalIndent(got, "", "  ")), '\n')
		if *update {
			want.Data = b
		}
		if d := cmp.Diff(string(want.Data), string(b)); d != "" || err != nil {
			t.Errorf("%s: %v, -want +got\n%s", answer.Name, err, d)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func TestOutcomes(t *testing.T) {
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	type row struct {
		serve   http.HandlerFunc
		code    fault.Code // empty for a result
		message string     // part of the public message
	}
	testbed.Each(t, map[string]row{
		"domain":                {says(domain()), "", ""},
		"domain with 203":       {status(203, domain()), "", ""},
		"domain after a BOM":    {says("\xef\xbb\xbf" + domain()), "", ""},
		"not UTF-8 in a string": {says(domain("\"handle\":\"a\xff\"")), "", ""},
		"text/plain": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			says(domain())(w, nil)
		}, "", ""},
		"404":                          {status(404, `{"errorCode":404}`), fault.NotFound, ""},
		"404 without a body":           {status(404, ""), fault.NotFound, ""},
		"200 with an error object 404": {says(`{"errorCode":404,"title":"Not Found"}`), fault.NotFound, ""},
		"error object without a code":  {says(`{"errorCode":null}`), fault.RDAPUpstream, "an error"},
		"500":                          {status(500, domain()), fault.RDAPUpstream, "HTTP status 500"},
		"empty":                        {says(""), fault.RDAPUpstream, ""},
		"null":                         {says("null"), fault.RDAPUpstream, "something other"},
		"no class":                     {says(`{"ldhName":"example.com"}`), fault.RDAPUpstream, "something other"},
		"trailing text":                {says(domain() + "x"), fault.RDAPUpstream, ""},
		"another name":                 {says(domainOf("example.org")), fault.RDAPUpstream, "another name"},
		"nested too deep":              {says(domain(`"x":` + deep)), fault.RDAPUpstream, ""},
		"nested as deep as allowed":    {says(domain(`"x":` + deep[7:len(deep)-7])), "", ""},
		"too many values":              {says(domain(`"entities":[{}` + strings.Repeat(",{}", 30_000) + `]`)), fault.RDAPUpstream, ""},
	}, func(t *testing.T, c row) {
		s := newStage(t)
		s.https("rdap.registry.com", c.serve)
		got, err := s.lookup("example.com")
		if c.code == "" {
			if err != nil || got.RDAPServer != oldServer {
				t.Errorf("got %+v, %v", got, err)
			}
			return
		}
		wantCode(t, err, c.code)
		if m := fault.From(err).Public(); !strings.Contains(m, c.message) || strings.Contains(m, "json") || strings.Contains(m, "registry.com") {
			t.Errorf("message %q, want %q in it and nothing of the cause", m, c.message)
		}
	})
}

// Every member with a value of every type it should not have: never an error,
// never a null array.
func TestWrongTypes(t *testing.T) {
	t.Parallel()
	plain := `{"domain":"example.com","source":"rdap","rdap_server":"","handle":null,"status":[],` +
		`"registrar":null,"created_at":null,"updated_at":null,"expires_at":null,"nameservers":[],"dnssec":false}`
	for _, member := range []string{"handle", "status", "entities", "events", "nameservers", "secureDNS"} {
		for _, value := range []string{"null", "true", "-1.5", "{}", "[]", "[null]", "[[]]", "[{}]", `[[{}],[0]]`, `""`, `{"x":[1]}`} {
			answer := domain(`"` + member + `":` + value)
			if b, err := json.Marshal(resultOf(t, answer)); err != nil || string(b) != plain {
				t.Errorf("%s gave %s, %v", answer, b, err)
			}
		}
	}
}

// resultOf is what becomes of an answer about example.com.
func resultOf(t *testing.T, answer string) Result {
	t.Helper()
	object, err := rdap.NewDecoder([]byte(answer)).Decode()
	d, ok := object.(*rdap.Domain)
	if !ok || !about(d, "example.com") {
		t.Fatalf("%s: %v, %v", answer, object, err)
	}
	return result(Query{Domain: "example.com"}, "", d)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 600)
	var status, servers []string
	for i := range 200 {
		status = append(status, `"active"`)
		servers = append(servers, `{"objectClassName":"nameserver","ldhName":"ns`+string(rune('a'+i%26))+string(rune('a'+i/26))+`.example.net"}`)
	}
	nested := `{"roles":["registrar"],"vcardArray":["vcard",[["fn",{},"text","Deep"]]]}`
	for range 8 {
		nested = `{"entities":[` + nested + `]}`
	}
	got := resultOf(t, domain(`"handle":"`+long+`"`, `"status":["`+long+`",`+strings.Join(status, ",")+`]`,
		`"nameservers":[{"ldhName":"`+long+`.com"},`+strings.Join(servers, ",")+`]`, `"entities":[`+nested+`]`))
	if got.Handle != nil || len(got.Status) != 64 || got.Status[0] != "active" || len(got.Nameservers) != 64 || got.Registrar != nil {
		t.Errorf("got %+v", got)
	}
}

// What is asked about is the registrable domain, and the result names the question.
func TestQuestion(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.https("rdap.nominet.uk", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/uk/domain/example.co.uk" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		says(domainOf("EXAMPLE.CO.UK."))(w, r)
	})
	got, err := s.lookup("a.b.example.co.uk")
	if err != nil || got.Domain != "a.b.example.co.uk" || got.RDAPServer != "https://rdap.nominet.uk/uk/" {
		t.Errorf("%+v, %v", got, err)
	}
	// A query that ParseQuery did not make is refused.
	for _, d := range []string{"", "Example.com", "example.com.", "127.0.0.1", "a/../b.com"} {
		_, err := s.lookup(d)
		wantCode(t, err, fault.InvalidDomain)
	}
}
