package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hostfacts/hostfacts/infra/built"
	"github.com/hostfacts/hostfacts/infra/testbed"
)

// TestMain removes what the tests share.
func TestMain(m *testing.M) {
	testbed.Parallel(4) // most tests wait for programs of one thread
	code := testbed.Main(m)
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// shared holds what is made once for all tests.
var shared struct {
	sync.Mutex
	dir string
}

// sharedDir is a directory that the tests of this package share.
func sharedDir(name string) (string, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.dir == "" {
		dir, err := os.MkdirTemp("", "infra")
		if err != nil {
			return "", err
		}
		shared.dir = dir
	}
	return filepath.Join(shared.dir, name), nil
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

// document is a template as JSON has it.
type document = map[string]any

// apps builds the app once. It runs as a process of its own, as the CDK CLI
// runs it: the library under it has a data race when it ends.
var apps = sync.OnceValues(func() (string, error) {
	path, err := sharedDir("app")
	if err != nil {
		return "", err
	}
	return path, built.Command(context.Background(), "..", "./infra", path)
})

// synth runs the app in a directory and returns the template that it wrote to
// out.
func synth(dir, out string, environment []string, arguments ...string) ([]byte, error) {
	app, err := apps()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(app, arguments...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("synthesize: %w\n%s", err, said)
	}
	return os.ReadFile(filepath.Join(out, defaultStack+".template.json"))
}

// synths synthesizes the example once.
var synths = sync.OnceValues(func() ([]byte, error) {
	out, err := sharedDir("cdk.out")
	if err != nil {
		return nil, err
	}
	return synth(".", out, nil, "-out", out)
})

// synthesized is the synthesized template, a copy for each caller.
func synthesized(t *testing.T) document {
	t.Helper()
	text := must(synths())(t)
	var d document
	check(t, json.Unmarshal(text, &d))
	return d
}

// section is a part of a template: its resources, outputs and so on, by name.
func section(d document, name string) map[string]any {
	s, _ := d[name].(map[string]any)
	return s
}

// properties are those of a resource; empty when there is none.
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
