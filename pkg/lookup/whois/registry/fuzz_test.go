package registry

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/openrdap/rdap"
	"golang.org/x/tools/txtar"

	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

// FuzzAnswer takes bytes as an RDAP answer all the way to JSON.
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
		answer = trimBOM(answer)
		if len(answer) > maxAnswer || (strictjson.Limits{Depth: maxAnswerDepth, Values: maxAnswerValues}).Check(answer) != nil {
			return
		}
		object, err := rdap.NewDecoder(answer).Decode()
		if err != nil {
			return
		}
		d, ok := object.(*rdap.Domain)
		if !ok {
			return
		}
		if about(d, "example.com") {
			published := strings.ToLower(d.LDHName + d.UnicodeName)
			if !strings.Contains(published, "example.com") && isASCII(published) {
				t.Errorf("%q is about example.com", published)
			}
		}
		holdResult(t, result(Query{Domain: "www.example.com"}, "https://rdap.example.com/", d))
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// holdResult checks what is true of every result, whatever the answer was.
func holdResult(t *testing.T, r Result) {
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
		if parsed, err := time.Parse(stamp, *at); err != nil || parsed.Format(stamp) != *at || len(*at) != len(stamp) {
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

// FuzzBootstrap takes bytes as a bootstrap file.
func FuzzBootstrap(f *testing.F) {
	f.Add([]byte(wrap(`[["com","net"],["https://rdap.example.com/v1","http://rdap.example.com/"]]`)))
	f.Add([]byte(wrap(`[["co.uk"],["HTTP://[2001:db8::1]:80"]],[["xn--fiqs8s"],["https://x/%2f"]]`)))
	f.Add([]byte("\xef\xbb\xbf" + wrap(`[[],[]],[["kg"],["http://h/"]]`)))
	f.Add([]byte(wrap(`null,[["a"],["https://h:0/","https://h:65535/a?b#c"]]`)))
	f.Add([]byte("10"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := parseRegistry(doc)
		if (err == nil) != (len(r) > 0) {
			t.Fatalf("%d entries, %v", len(r), err)
		}
		for suffix, base := range r {
			if suffix == "" || suffix != strings.ToLower(suffix) || !isASCII(suffix) {
				t.Errorf("suffix %q", suffix)
			}
			u, err := url.Parse(base)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" ||
				u.Fragment != "" || !strings.HasSuffix(base, "/") {
				t.Errorf("base %q: %v", base, err)
				continue
			}
			if got, ok := r.find("example." + suffix); !ok || got == "" {
				t.Errorf("example.%s is not found", suffix)
			}
			// What the library makes of it is the URL that is asked.
			asked := rdap.NewDomainRequest("example.com").WithServer(u).URL()
			if asked == nil || asked.String() != base+"domain/example.com" {
				t.Errorf("%q becomes %v", base, asked)
			}
		}
	})
}
