package clients

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// TestLLMsProgramsPay runs the programs of llms.txt as a reader does who knows nothing
// else: each pays once for the call that it makes, and gets the answer.
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
			w, s := c.tools(t), start(t)
			text := string(s.document(t, catalog.PathLLMs))
			m := regexp.MustCompile("(?s)(?:Pay|or) with " + language + " \\(`([^`]+)`, then `([^`]+)`\\):\n\n```\\w+\n(.*?)\n```\n").FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("the text has no program:\n%s", text)
			}
			install, run, code := m[1], m[2], m[3]
			if want := c.install(t); install != want {
				t.Errorf("the text says %q, and what is tested here is %q", install, want)
			}
			if n := len(strings.Split(code, "\n")); n > maxShort {
				t.Errorf("the program has %d lines", n)
			}
			called := regexp.MustCompile(`"` + regexp.QuoteMeta(s.url) + `/[^"]*"`)
			if n := len(called.FindAllString(code, -1)); n != 1 {
				t.Fatalf("the program calls %d addresses of the service:\n%s", n, code)
			}
			w.save(t, run[strings.LastIndex(run, " ")+1:], called.ReplaceAllLiteralString(code, strconv.Quote(s.url+s.goods.path)))
			status, body, _ := strings.Cut(string(testbed.Run(t, w.keyed(t, run))), " ")
			if status != "200" {
				t.Errorf("it prints %s %s", status, body)
			}
			outcome{out: body}.checkPaid(t, s)
		})
	}
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
