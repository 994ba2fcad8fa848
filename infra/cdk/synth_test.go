package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
)

func TestMain(m *testing.M) {
	switch path := os.Getenv("NAG_TEMPLATE"); {
	case path != "": // see nag
		lint(path, os.Getenv("NAG_REPORT"))
		return
	case os.Getenv("CDK_OUTDIR") != "": // see synth
		main()
		return
	case os.Getenv("SYNTH_CONTEXTS") != "": // see synthEach
		synthesizeEach(os.Getenv("SYNTH_CONTEXTS"))
		return
	}
	testbed.Parallel(4) // most tests wait for single-threaded programs
	m.Run()
}

// must returns a function that returns the value, or ends the test if there is an error.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type document = map[string]any

// synth runs the app in a folder with a context. The app runs in another process of this
// binary. When that process ends, the CDK's library has a data race, which deployed.Synthesize
// ignores.
func synth(t *testing.T, dir string, context map[string]any) ([]byte, error) {
	t.Helper()
	text, err := deployed.Synthesize(t, must(os.Executable())(t), dir, context)
	// The CDK writes some attributes as "Id.Name". Write them as lists, as CloudFormation's SAM
	// transform does, so that the two templates can be compared.
	return regexp.MustCompile(`("Fn::GetAtt": )"(\w+)\.(\w+)"`).ReplaceAll(text, []byte(`$1["$2","$3"]`)), err
}

// example caches the template that the app synthesizes from the example context.
var example struct {
	sync.Once
	text []byte
}

// exampleTemplate returns a new copy of the template that example caches.
func exampleTemplate(t *testing.T) (d document) {
	t.Helper()
	example.Do(func() { example.text = must(synth(t, ".", deployed.Context()))(t) })
	check(t, json.Unmarshal(example.text, &d))
	return d
}

func section(d document, name string) map[string]any {
	s, _ := d[name].(map[string]any)
	return s
}

func properties(d document, id string) map[string]any {
	r, _ := section(d, "Resources")[id].(map[string]any)
	p, _ := r["Properties"].(map[string]any)
	return p
}

// ofType returns the ids of a template's resources of a type.
func ofType(d document, kind string) []string {
	var ids []string
	for id, r := range section(d, "Resources") {
		if m, ok := r.(map[string]any); ok && m["Type"] == kind {
			ids = append(ids, id)
		}
	}
	return ids
}

// sourceTemplate returns template.yaml as JSON, with the long forms of intrinsic functions and
// with the given values for parameters.
func sourceTemplate(t *testing.T, params map[string]any) (d document) {
	t.Helper()
	text := must(json.Marshal(deployed.Template()))(t)
	var values []string
	for name, v := range params {
		values = append(values, `{"Ref":"`+name+`"}`, string(must(json.Marshal(v))(t)), "${"+name+"}", fmt.Sprint(v))
	}
	check(t, json.Unmarshal([]byte(strings.NewReplacer(values...).Replace(string(text))), &d))
	return d
}

const templatePath = "../../template.yaml"

func template(t *testing.T) *sam.Template {
	t.Helper()
	return must(sam.Read(templatePath))(t)
}
