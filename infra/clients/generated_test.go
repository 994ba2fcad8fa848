package clients

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// onboarding is llms.txt as a program reads it that knows nothing else: what to
// call, with which parameters, and two programs that pay.
type onboarding struct {
	origin     string
	domain     string // a value of the parameter domain
	operations []advertised
	programs   map[string]written // by language
	final      map[string]bool    // codes that are the answer that was paid for
}

// advertised is an operation as the text names it.
type advertised struct {
	path, amount string
	query        url.Values
}

// written is a program of the text with the commands around it.
type written struct{ code, install, run string }

var (
	originLine    = regexp.MustCompile(`(?m)^Operations of (\S+)\. .* such as ` + "`" + `([^` + "`" + `]+)` + "`")
	operationLine = regexp.MustCompile("(?m)^- .*: \\$[0-9.]+ \\(([0-9]+) atomic units\\) for `GET (\\S+)`\\. Call it .+\\. Parameters: (.+)\\.$")
	parameterText = regexp.MustCompile("`([a-z_]+)`(?: \\(optional(?:: ([^;)]+); default ([^)]+)|, ignored)\\))?")
	programText   = regexp.MustCompile("(?s)(?:Pay|or) with (\\w+) \\(`([^`]+)`, then `([^`]+)`\\):\n\n```\\w+\n(.*?)\n```\n")
	finalLine     = regexp.MustCompile(`(?m)^- charged yes, retryable no: (.+)$`)
)

// readOnboarding reads the text, and nothing but the text.
func readOnboarding(t *testing.T, text string) onboarding {
	t.Helper()
	m := originLine.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the text does not say where the operations are, or what a domain is:\n%s", text)
	}
	o := onboarding{origin: m[1], domain: m[2], programs: map[string]written{}, final: map[string]bool{}}
	for _, m := range operationLine.FindAllStringSubmatch(text, -1) {
		a := advertised{amount: m[1], path: m[2], query: url.Values{}}
		for _, p := range parameterText.FindAllStringSubmatch(m[3], -1) {
			switch name, values, optional := p[1], p[2], strings.Contains(p[0], "optional"); {
			case values != "": // the last one listed, which is no default where there is a choice
				list := strings.Split(values, ", ")
				a.query.Set(name, list[len(list)-1])
			case !optional && name == "domain":
				a.query.Set(name, o.domain)
			case !optional:
				t.Errorf("%s requires %s, and the text gives no value", a.path, name)
			}
		}
		o.operations = append(o.operations, a)
	}
	for _, m := range programText.FindAllStringSubmatch(text, -1) {
		o.programs[m[1]] = written{install: m[2], run: m[3], code: m[4]}
	}
	if m := finalLine.FindStringSubmatch(text); m != nil {
		for _, code := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(m[1], -1) {
			o.final[code[1]] = true
		}
	}
	return o
}

// program is one of the programs with the address of an operation in the place of
// the one that it calls.
func (o onboarding) program(t *testing.T, w written, a advertised) string {
	t.Helper()
	called := regexp.MustCompile(`"` + regexp.QuoteMeta(o.origin) + `/[^"]*"`)
	if n := len(called.FindAllString(w.code, -1)); n != 1 {
		t.Fatalf("the program calls %d addresses below %s:\n%s", n, o.origin, w.code)
	}
	address := o.origin + a.path
	if len(a.query) > 0 {
		address += "?" + a.query.Encode()
	}
	return called.ReplaceAllLiteralString(w.code, strconv.Quote(address))
}

// TestLLMsProgramsPay makes clients from nothing but llms.txt, one for every operation in
// TypeScript, and for the first one in Python: each pays the price that the text says,
// once, and gets what the text calls an answer. What an operation is called with does not
// depend on the language.
func TestLLMsProgramsPay(t *testing.T) {
	t.Parallel()
	for language, c := range map[string]struct {
		tools   func(*testing.T) workshop
		install func(*testing.T) string
	}{
		"TypeScript": {nodeWorkshop, npmInstall},
		"Python":     {pythonWorkshop, pipInstall},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			w := c.tools(t)
			s := startWithRegistry(t)
			text := string(s.document(t, catalog.PathLLMs))
			o := readOnboarding(t, text)
			p, ok := o.programs[language]
			if !ok {
				t.Fatalf("the text has no program in %s:\n%s", language, text)
			}
			if want := c.install(t); p.install != want {
				t.Errorf("the text says %q, and what is tested here is %q", p.install, want)
			}
			if n := len(strings.Split(p.code, "\n")); n > 8 {
				t.Errorf("the program has %d lines", n)
			}
			var paths []string
			for i, a := range o.operations {
				if paths = append(paths, a.path); language == "Python" && i > 0 {
					continue
				}
				t.Run(a.path, func(t *testing.T) { runWritten(t, w, s, o, p, a) })
			}
			var want []string
			for _, op := range catalog.All() {
				want = append(want, op.Path)
			}
			if !slices.Equal(paths, want) {
				t.Errorf("the text has %q, want %q", paths, want)
			}
		})
	}
}

// runWritten runs a program for one operation.
func runWritten(t *testing.T, w workshop, s service, o onboarding, p written, a advertised) {
	t.Helper()
	before := s.books.Transfers()
	fields := strings.Fields(p.run)
	w.save(t, fields[len(fields)-1], o.program(t, p, a))
	out := testbed.Run(t, w.keyed(t, strings.Replace(p.run, "call-1", rand.Text(), 1))) // a new key for each question
	status, body, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if !ok {
		t.Fatalf("it prints %q", out)
	}
	number, _ := strconv.Atoi(status)
	if code := codeIn(number, []byte(body)); number != http.StatusOK && !o.final[code] {
		t.Errorf("answered %s %s, which the text does not call an answer: %s", status, code, body)
	}
	moved := slices.DeleteFunc(s.books.Transfers(), func(x x402test.Transfer) bool { return slices.Contains(before, x) })
	if len(moved) != 1 || moved[0].Value != a.amount {
		t.Errorf("money moved: %+v, want once %s", moved, a.amount)
	}
	t.Logf("%s for %s, paid %s", status, a.path, a.amount)
}

// startWithRegistry starts the service in a world where IANA knows no registry of
// the example's domain, so that every lookup comes to an end without the internet.
func startWithRegistry(t *testing.T) service {
	t.Helper()
	w := newWorld(t, resolver(t))
	w.env["RDAP_BOOTSTRAP_URL"] = testbed.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"version":"1.0","publication":"2026-01-01T00:00:00Z","services":[[["org"],["https://rdap.example.org/"]]]}`)
	}))
	return w.start(t)
}

// generator makes a client of the description, which a program of
// testdata/generated uses.
type generator struct {
	tools    func(*testing.T) workshop
	generate string // makes the client of openapi.json
	program  string
	compile  string // must find nothing
	run      string
	defines  string // what the client has for a type; NAME is the type's
}

func generators() map[string]generator {
	return map[string]generator{
		"openapi-typescript": {
			tools:    nodeWorkshop,
			generate: "npx openapi-typescript openapi.json -o api.d.ts --root-types --root-types-no-schema-prefix",
			program:  "read.mts", compile: typeCheck + "read.mts", run: "npx tsx read.mts",
			defines: "export type NAME =",
		},
		"openapi-python-client": {
			tools:    pythonWorkshop,
			generate: "python -m openapi_python_client generate --path openapi.json --output-path generated --meta none --fail-on-warning",
			program:  "read.py", compile: "python -m compileall -q generated && python -m mypy --follow-imports=skip --disallow-untyped-defs generated read.py", run: "python read.py",
			defines: "class NAME:",
		},
	}
}

// TestGeneratedClients: two public generators make clients whose result types have
// the names of the schemas. The clients compile, and each reads a paid answer.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	for name, g := range generators() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := g.tools(t)
			s := start(t)
			w.save(t, "openapi.json", string(s.document(t, catalog.PathOpenAPI)))
			w.fill(t, "generated")
			lines := []string{g.generate, g.compile}
			for _, op := range catalog.All() {
				lines = append(lines, "grep -rqF '"+strings.ReplaceAll(g.defines, "NAME", op.Result)+"' .")
			}
			for _, line := range lines {
				if out, err := w.shell(t, line).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%.3000s", line, err, out)
				}
			}
			got := decoded[struct {
				Result    json.RawMessage
				Exchanges []string
			}](t, testbed.Run(t, w.shell(t, g.run+" "+s.url, "PRIVATE_KEY="+w.payer)))
			outcome{out: string(got.Result)}.checkPaid(t, s)
			if !slices.Equal(got.Exchanges, []string{"mx1.example.com", "mx2.example.com"}) {
				t.Errorf("the records, read by their type: %q", got.Exchanges)
			}
		})
	}
}
