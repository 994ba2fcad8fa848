package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/testbed"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // what the programs are made of: the cache of go test sees imports only
)

func TestMain(m *testing.M) {
	testbed.Parallel(4) // most tests wait for programs of one thread
	os.Exit(testbed.Main(m))
}

// must is a value, without which the test cannot go on.
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

// synth runs the app in a folder with a context, as the CDK CLI does, or with its
// example for nil, and returns the template that it wrote. It is a process of its own:
// the library under it has a data race when it ends.
func synth(t *testing.T, dir string, context map[string]any) ([]byte, error) {
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command(testbed.Program(t, "./infra"))
	cmd.Dir, cmd.Env = dir, os.Environ()
	if context == nil {
		cmd.Args = append(cmd.Args, "-out", out)
	} else {
		cmd.Env = append(cmd.Env, "CDK_OUTDIR="+out, "CDK_CONTEXT_JSON="+string(must(json.Marshal(context))(t)))
	}
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("synthesize: %w\n%s", err, said)
	}
	return os.ReadFile(filepath.Join(out, defaultStack+".template.json"))
}

// kept is the synthesized example, which is made once.
var kept struct {
	sync.Mutex
	text []byte
}

// synthesized is the synthesized example, a copy for each caller.
func synthesized(t *testing.T) (d document) {
	t.Helper()
	kept.Lock()
	defer kept.Unlock()
	if kept.text == nil {
		kept.text = must(synth(t, ".", nil))(t)
	}
	check(t, json.Unmarshal(kept.text, &d))
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

// ofType are the ids of a template's resources of a type.
func ofType(d document, kind string) []string {
	var ids []string
	for id, r := range section(d, "Resources") {
		if m, ok := r.(map[string]any); ok && m["Type"] == kind {
			ids = append(ids, id)
		}
	}
	return ids
}

// written is template.yaml as JSON has it, with the long forms of intrinsic
// functions, and with values for the parameters that are given.
func written(t *testing.T, params map[string]any) document {
	t.Helper()
	var root yaml.Node
	read(t, &root)
	text := must(json.Marshal(long(t, root.Content[0], params)))(t)
	var d document
	check(t, json.Unmarshal(text, &d))
	return d
}

// long is a YAML node with the long forms of intrinsic functions.
func long(t *testing.T, n *yaml.Node, params map[string]any) any {
	t.Helper()
	var v any
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = long(t, n.Content[i+1], params)
		}
		v = m
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, long(t, item, params))
		}
		v = list
	case yaml.ScalarNode:
		if len(n.Tag) > 1 && n.Tag[0] == '!' && n.Tag[1] != '!' {
			v = n.Value
		} else if err := n.Decode(&v); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("line %d: a node of kind %d", n.Line, n.Kind)
	}
	switch n.Tag {
	case "!Ref":
		if value, ok := params[n.Value]; ok {
			return value
		}
		return map[string]any{"Ref": v}
	case "!Sub":
		for name, value := range params {
			v = strings.ReplaceAll(fmt.Sprint(v), "${"+name+"}", fmt.Sprint(value))
		}
		return map[string]any{"Fn::Sub": v}
	case "!GetAtt", "!If", "!Not", "!Equals":
		return map[string]any{"Fn::" + n.Tag[1:]: v}
	}
	return v
}
