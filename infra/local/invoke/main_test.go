package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

var update = flag.Bool("update", false, "write into the script what is printed")

// TestScripts runs the command lines of a script in a project with one function. A command must
// print what follows it in the script: the answer (standard output) and the notes (standard
// error). The line "% event JSON" of a script sets the contents of event.json. The event tells
// the function to print its environment, to fail, to end, or to return a given answer.
func TestScripts(t *testing.T) {
	echo := filepath.Join(t.TempDir(), "bootstrap")
	programs.Run(t, exec.Command("go", "build", "-tags", "lambda.norpc", "-o", echo, "./testdata/echo"))
	testbed.Scripts(t, *update, func(t *testing.T) testbed.Script {
		dir := t.TempDir()
		built := filepath.Join(dir, "build", "echo")
		if err := errors.Join(os.CopyFS(dir, os.DirFS("testdata/project")), os.MkdirAll(built, 0o750), os.Link(echo, filepath.Join(built, "bootstrap"))); err != nil {
			t.Fatal(err)
		}
		t.Chdir(dir)
		return scripted{t, dir}
	})
}

// scripted runs one section of a script, in a new folder with a copy of the project.
type scripted struct {
	t   *testing.T
	dir string
}

func (s scripted) Prepare(line string) {
	if err := os.WriteFile("event.json", []byte(strings.TrimPrefix(line, "event ")), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s scripted) Command(line string) string {
	environment := func(name string) (string, bool) {
		v, ok := map[string]string{
			"LEVEL": "warn", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1", "AWS_SECRET_ACCESS_KEY": "of the developer", "HOME": "/x",
		}[name]
		return v, ok
	}
	var out, notes bytes.Buffer
	code := run(s.t.Context(), strings.Fields(line), environment, &out, &notes)
	said := fmt.Sprintf("%snotes:\n%sexit status %d\n", &out, &notes, code)
	said = strings.ReplaceAll(said, s.dir, "$DIR")
	said = regexp.MustCompile(`[0-9/]{10} [0-9:]{8} `).ReplaceAllString(said, "TIME ")
	said = regexp.MustCompile(`127\.0\.0\.1:[0-9]{4,}`).ReplaceAllString(said, "$$API")
	return regexp.MustCompile(`init [0-9.]+[mµ]?s, answer [0-9.]+[mµ]?s`).ReplaceAllString(said, "init TIME, answer TIME")
}

func TestParameters(t *testing.T) {
	if got := parameters("\n[default.local_invoke.parameters]\n[b]\nparameter_overrides = \"A=b\"\n"); got["A"] != "" {
		t.Errorf("parameters of another section: %v", got)
	}
}

// TestTrial checks functions as "make local-invoke" builds them: without a table, a facilitator
// or a node, they must be able to sell for play money and to reconcile. With -sam, the command
// sam must get the same folder. In this test, sam is a shell script.
func TestTrial(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(filepath.Join("..", "..", ".."))
	programs.Run(t, exec.Command("go", "build", "-tags", "lambda.norpc", "-o", dir+"/",
		"./infra/local/invoke", "./functions/ping", "./functions/mcp", "./functions/reconcile"))
	sam := "#!/bin/sh\n" + `grep -q rawPath event.json && grep -q '"CodeUri":"'"$CODE"'"' template.json && echo '{"statusCode":200,"body":"'"$*"'"}'`
	if err := os.WriteFile(filepath.Join(dir, "sam"), []byte(sam), 0o700); err != nil { //nolint:gosec // a program must be executable
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("CODE", filepath.Join(dir, "build", "ping"))
	environment := func(name string) (string, bool) { return "127.0.0.1:9", name == "DNS_RESOLVERS" }
	for _, c := range []struct {
		slug, flag string
		says       []string
	}{
		{"ping", "", []string{"200\n", "payment-response: ", `"ok": true`, "paid with a throwaway key"}},
		{"mcp", "", []string{"200\n", `"x402/payment-response"`, `"transaction": "0x`, "paid with a throwaway key"}},
		{"reconcile", "", []string{"null\n", `"msg":"reconcile"`, `"owed":0`}},
		{"ping", "-sam", []string{"200\n", "local invoke PingFunction --template template.json --event event.json"}},
	} {
		t.Run(c.slug+c.flag, func(t *testing.T) {
			buildFunction(t, dir, c.slug)
			args := []string{"-fn", c.slug, "-build", filepath.Join(dir, "build")}
			if c.flag != "" {
				args = append(args, c.flag)
			}
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), args, environment, &stdout, &stderr); code != 0 || strings.Contains(stderr.String(), `"level":"ERROR"`) {
				t.Fatalf("exit status %d\n%s%s", code, &stdout, &stderr)
			}
			for _, want := range c.says {
				if !strings.Contains(stdout.String()+stderr.String(), want) {
					t.Errorf("it does not say %q:\n%s%s", want, &stdout, &stderr)
				}
			}
		})
	}
}

// buildFunction puts a function and the program invoke into a folder, as "make local-invoke"
// does.
func buildFunction(t *testing.T, dir, slug string) {
	t.Helper()
	built := filepath.Join(dir, "build", slug)
	if err := os.MkdirAll(built, 0o750); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"function": slug, "bootstrap": "invoke"} {
		err := os.Link(filepath.Join(dir, from), filepath.Join(built, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
}
