package clients

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// generator makes a client of the description, which a program of
// testdata/generated uses.
type generator struct {
	tools    func(*testing.T) workshop
	generate string // makes the client of openapi.json
	program  string
	compile  string // must find nothing
	run      string
	// defines is what the client has for a type with a name.
	defines func(w workshop, name string) (file string, text string)
}

func generators() map[string]generator {
	return map[string]generator{
		"openapi-typescript": {
			tools:    nodeWorkshop,
			generate: "npx openapi-typescript openapi.json -o api.d.ts --root-types --root-types-no-schema-prefix",
			program:  "read.mts", compile: typeCheck + "read.mts", run: "npx tsx read.mts",
			defines: func(_ workshop, name string) (string, string) {
				return "api.d.ts", "export type " + name + " ="
			},
		},
		"openapi-python-client": {
			tools:    pythonWorkshop,
			generate: "python -m openapi_python_client generate --path openapi.json --output-path generated --meta none --fail-on-warning",
			program:  "read.py", compile: "python -m compileall -q generated && python -m mypy --follow-imports=skip --disallow-untyped-defs generated read.py", run: "python read.py",
			defines: func(_ workshop, name string) (string, string) {
				return filepath.Join("generated", "models", snake(name)+".py"), "class " + name + ":"
			},
		},
	}
}

// snake is a name in the form of a Python module's.
func snake(name string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z0-9])([A-Z])`).ReplaceAllString(name, "${1}_${2}"))
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
			for _, line := range []string{g.generate, g.compile} {
				if out, err := w.shell(t, line).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%.3000s", line, err, out)
				}
			}
			for _, op := range catalog.All() {
				file, text := g.defines(w, op.Result)
				made, err := os.ReadFile(filepath.Join(w.dir, file))
				if err != nil || !strings.Contains(string(made), text) {
					t.Errorf("no %q in %s: %v", text, file, err)
				}
			}
			g.read(t, w, s)
		})
	}
}

// read has the client pay for an answer and read it.
func (g generator) read(t *testing.T, w workshop, s service) {
	t.Helper()
	got := decoded[struct {
		Result    json.RawMessage
		Exchanges []string
	}](t, testbed.Run(t, w.shell(t, g.run+" "+s.url, "PRIVATE_KEY="+w.payer)))
	outcome{out: string(got.Result)}.checkPaid(t, s)
	if diff := cmp.Diff([]string{"mx1.example.com", "mx2.example.com"}, got.Exchanges); diff != "" {
		t.Errorf("the records, read by their type: %s", diff)
	}
}
