package clients

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/catalog"
)

// generator describes how to make a client from the OpenAPI description, and a program in
// testdata that uses the client. The commands run in a workshop.
type generator struct {
	tools    func(*testing.T) workshop
	program  string // the name of the program's folder in testdata
	generate string // the command that makes the client from openapi.json
	compile  string // a command that checks the client and the program
	run      string // the command that runs the program
	defines  string // how the definition of a type begins in the client; NAME stands for the type
}

func generators() map[string]generator {
	return map[string]generator{
		"openapi-typescript": {
			tools: nodeWorkshop, program: "generated",
			generate: "npx openapi-typescript openapi.json -o api.d.ts --root-types --root-types-no-schema-prefix",
			compile:  typeCheck + "read.mts", run: "npx tsx read.mts",
			defines: "export type NAME =",
		},
		"openapi-python-client": {
			tools: pythonWorkshop, program: "generated",
			generate: "python -m openapi_python_client generate --path openapi.json --output-path generated --meta none --fail-on-warning",
			compile:  "python -m compileall -q generated && python -m mypy --follow-imports=skip --disallow-untyped-defs generated read.py", run: "python read.py",
			defines: "class NAME:",
		},
		"ogen": {
			tools: func(t *testing.T) workshop { return newWorkshop(t, "GOFLAGS=-mod=readonly", "GOWORK=off") }, program: "ogen",
			generate: "go tool ogen --target api --package api openapi.json",
			compile:  "go vet .", run: "go run .",
			defines: "type NAME struct",
		},
	}
}

// TestGeneratedClients checks the clients that three public generators make. The result types
// must have the names of the schemas. Each client must compile and read a paid answer. Some
// charged errors of the operation dns have a status that the description does not declare
// (declaredErrors in pkg/discovery says why). Each client must read the body of such an error.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	for name, g := range generators() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.check(t)
		})
	}
}

func (g generator) check(t *testing.T) {
	w := g.tools(t)
	s := start(t)
	w.save(t, "openapi.json", string(s.document(t, catalog.PathOpenAPI)))
	w.fill(t, g.program)
	lines := []string{g.generate, g.compile}
	for _, op := range catalog.All() {
		lines = append(lines, "grep -rqF '"+strings.ReplaceAll(g.defines, "NAME", op.Result)+"' .")
	}
	for _, line := range lines {
		if out, err := w.shell(t, line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%.3000s", line, err, out)
		}
	}
	client := testbed.NewClient(t, &http.Client{Timeout: testbed.Patience})
	signed := func(url string) string { return testbed.Must(client.Sign(t.Context(), url)) }
	got := decodeJSON[struct {
		Result    map[string]any
		Exchanges []string
		Gone      struct {
			Status  int
			Code    string
			Charged bool
		}
	}](t, programs.Run(t, w.shell(t, g.run+" "+s.url, "PRIVATE_KEY="+w.payer,
		"SIGNATURE="+signed(catalog.DNS().ExampleURL(s.url)), "SECOND_SIGNATURE="+signed(s.url+catalog.DNS().Path+"?domain=gone.example.com"))))
	if diff := cmp.Diff(s.goods.answer, got.Result); diff != "" {
		t.Errorf("the answer: %s", diff)
	}
	if !slices.Equal(got.Exchanges, []string{"mx1.example.com", "mx2.example.com"}) {
		t.Errorf("the records, read by their type: %q", got.Exchanges)
	}
	if got.Gone.Status != http.StatusNotFound || got.Gone.Code != "nxdomain" || !got.Gone.Charged {
		t.Errorf("the charged error: %+v", got.Gone)
	}
	if moved := s.books.Transfers(); len(moved) != 2 {
		t.Errorf("money moved: %+v, want twice", moved)
	}
}
