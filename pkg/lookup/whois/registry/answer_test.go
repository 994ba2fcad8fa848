package registry_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois/registry"
	"github.com/hostfacts/hostfacts/pkg/origin/origintest"
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
	if *update { // after the subtests
		t.Cleanup(func() {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Error(err)
			}
		})
	}
	for pair := range slices.Chunk(archive.Files, 2) {
		answer, want := pair[0], &pair[1]
		name, ok := strings.CutSuffix(answer.Name, ".json")
		if !ok || want.Name != name+".want" {
			t.Fatalf("%s is followed by %s", answer.Name, want.Name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			n.https("rdap.registry.com", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/domain/example.com" || r.URL.RawQuery != "" || r.Host != "rdap.registry.com" ||
					r.Method != http.MethodGet || r.UserAgent() != "test/1" || !strings.Contains(r.Header.Get("Accept"), "application/rdap+json") {
					t.Errorf("asked %s %s%s: %v", r.Method, r.Host, r.URL, r.Header)
				}
				w.Write(answer.Data)
			})
			got, err := lookup(t, client(t, n), "www.example.com")
			if err != nil {
				t.Fatal(err)
			}
			b := append(must(json.MarshalIndent(got, "", "  ")), '\n')
			if *update {
				want.Data = b
			}
			if d := cmp.Diff(string(want.Data), string(b)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// domain is a domain object with more members.
func domain(members ...string) string { return domainOf("example.com", members...) }

func domainOf(name string, members ...string) string {
	return `{"objectClassName":"domain","ldhName":"` + name + `"` + strings.Join(append([]string{""}, members...), ",") + `}`
}

func TestOutcomes(t *testing.T) {
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	type row struct {
		serve   http.HandlerFunc
		code    fault.Code // empty for a result
		message string     // part of the public message
	}
	origintest.Each(t, map[string]row{
		"domain":                {text(domain()), "", ""},
		"domain with 203":       {status(203, domain()), "", ""},
		"domain after a BOM":    {text("\xef\xbb\xbf" + domain()), "", ""},
		"not UTF-8 in a string": {text(domain("\"handle\":\"a\xff\"")), "", ""},
		"text/plain": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			text(domain())(w, nil)
		}, "", ""},
		"404":                          {status(404, `{"errorCode":404}`), fault.NotFound, ""},
		"404 in HTML":                  {status(404, "<html>"), fault.NotFound, ""},
		"404 without a body":           {status(404, ""), fault.NotFound, ""},
		"200 with an error object 404": {text(`{"errorCode":404,"title":"Not Found"}`), fault.NotFound, ""},
		"200 with an error object 429": {text(`{"errorCode":429}`), fault.RDAPUpstream, "an error"},
		"error object without a code":  {text(`{"errorCode":null}`), fault.RDAPUpstream, "an error"},
		"400":                          {status(400, `{"errorCode":400}`), fault.RDAPUpstream, "HTTP status 400"},
		"403 in HTML":                  {status(403, "<html>"), fault.RDAPUpstream, "HTTP status 403"},
		"422":                          {status(422, `{}`), fault.RDAPUpstream, "HTTP status 422"},
		"429":                          {status(429, ""), fault.RDAPUpstream, "HTTP status 429"},
		"500":                          {status(500, domain()), fault.RDAPUpstream, "HTTP status 500"},
		"503":                          {status(503, ""), fault.RDAPUpstream, "HTTP status 503"},
		"302 without a location":       {status(302, ""), fault.RDAPUpstream, "HTTP status 302"},
		"empty":                        {text(""), fault.RDAPUpstream, ""},
		"204":                          {status(204, ""), fault.RDAPUpstream, "HTTP status 204"},
		"null":                         {text("null"), fault.RDAPUpstream, "something other"},
		"no class":                     {text(`{"ldhName":"example.com"}`), fault.RDAPUpstream, "something other"},
		"class in capitals":            {text(strings.Replace(domain(), `"domain"`, `"Domain"`, 1)), fault.RDAPUpstream, ""},
		"another class":                {text(`{"objectClassName":"nameserver","ldhName":"example.com"}`), fault.RDAPUpstream, "something other"},
		"search results":               {text(`{"domainSearchResults":[` + domain() + `]}`), fault.RDAPUpstream, "something other"},
		"array":                        {text("[" + domain() + "]"), fault.RDAPUpstream, ""},
		"trailing text":                {text(domain() + "x"), fault.RDAPUpstream, ""},
		"cut short":                    {text(domain()[:20]), fault.RDAPUpstream, ""},
		"HTML":                         {text("<html>"), fault.RDAPUpstream, ""},
		"parent's name":                {text(domainOf("com")), fault.RDAPUpstream, "another name"},
		"another name":                 {text(domainOf("example.org")), fault.RDAPUpstream, "another name"},
		"no name":                      {text(`{"objectClassName":"domain"}`), fault.RDAPUpstream, "another name"},
		"nested too deep":              {text(domain(`"x":` + deep)), fault.RDAPUpstream, ""},
		"nested as deep as allowed":    {text(domain(`"x":` + deep[7:len(deep)-7])), "", ""},
		"too many values":              {text(domain(`"entities":[{}` + strings.Repeat(",{}", 30_000) + `]`)), fault.RDAPUpstream, ""},
		"brackets in a string":         {text(domain(`"x":"\"` + deep + strings.Repeat(",", 30_000) + `"`)), "", ""},
	}, func(t *testing.T, tt row) {
		n := newNetwork(t)
		n.https("rdap.registry.com", tt.serve)
		got, err := lookup(t, client(t, n), "example.com")
		if tt.code == "" {
			if err != nil || got.RDAPServer != "https://rdap.registry.com/v1/" {
				t.Errorf("got %+v, %v", got, err)
			}
			return
		}
		wantCode(t, err, tt.code)
		if m := fault.From(err).Public(); !strings.Contains(m, tt.message) || strings.Contains(m, "json") || strings.Contains(m, "registry.com") {
			t.Errorf("message %q, want %q in it and nothing of the cause", m, tt.message)
		}
	})
}

// Every member with a value of every type it should not have: never an error,
// never a null array.
func TestWrongTypes(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	var answer string
	n.https("rdap.registry.com", func(w http.ResponseWriter, r *http.Request) { text(answer)(w, r) })
	c := client(t, n)
	plain := `{"domain":"example.com","source":"rdap","rdap_server":"https://rdap.registry.com/v1/","handle":null,"status":[],` +
		`"registrar":null,"created_at":null,"updated_at":null,"expires_at":null,"nameservers":[],"dnssec":false}`
	for _, member := range []string{"handle", "status", "entities", "events", "nameservers", "secureDNS"} {
		for _, value := range []string{"null", "true", "-1.5", "{}", "[]", "[null]", "[[]]", "[{}]", `[[{}],[0]]`, `""`, `{"x":[1]}`} {
			answer = domain(`"` + member + `":` + value)
			got, err := lookup(t, c, "example.com")
			if err != nil {
				t.Errorf("%s: %v", answer, err)
				continue
			}
			if b, err := json.Marshal(got); err != nil || string(b) != plain {
				t.Errorf("%s gave %s, %v", answer, b, err)
			}
		}
	}
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
	n := newNetwork(t)
	n.https("rdap.registry.com", text(domain(`"handle":"`+long+`"`, `"status":["`+long+`",`+strings.Join(status, ",")+`]`,
		`"nameservers":[{"ldhName":"`+long+`.com"},`+strings.Join(servers, ",")+`]`, `"entities":[`+nested+`]`)))
	got, err := lookup(t, client(t, n), "example.com")
	if err != nil {
		t.Fatal(err)
	}
	if got.Handle != nil || len(got.Status) != 64 || got.Status[0] != "active" || len(got.Nameservers) != 64 || got.Registrar != nil {
		t.Errorf("got %+v", got)
	}
}

func TestResultNamesTheQuestion(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.https("rdap.nominet.uk", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/uk/domain/example.co.uk" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		text(domainOf("EXAMPLE.CO.UK."))(w, r)
	})
	got, err := lookup(t, client(t, n), "a.b.example.co.uk")
	want := registry.Result{
		Domain: "a.b.example.co.uk", Source: "rdap", RDAPServer: "https://rdap.nominet.uk/uk/",
		Status: []string{}, Nameservers: []string{},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
}
