package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

const testTemplate = `
Parameters:
  Level: {Type: String, Default: info}
  Payee: {Type: String}
Globals: {Function: {Runtime: provided.al2023, Timeout: 5}}
Resources:
  Ledger: {Type: AWS::DynamoDB::Table}
  EchoFunction:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: functions/echo
      Environment: {Variables: {LEVEL: !Ref Level, PAYEE: !Ref Payee, LEDGER_TABLE: !Ref Ledger}}
`

const testSamconfig = `
version = 0.1
[default.build.parameters]
parameter_overrides = "Payee=wrong"
# a comment
[default.local_invoke.parameters]
parameter_overrides = "Payee=0xab Level=debug"
[prod.local_invoke.parameters]
parameter_overrides = "Payee=wrong"
`

// project is a directory with everything that invoke reads, and one function.
func project(t *testing.T) (flags []string) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"template.yaml":  testTemplate,
		"samconfig.toml": testSamconfig,
		"env.json":       `{"do":"env"}`,
		"headers.json":   `{"do":"{\"statusCode\":418,\"headers\":{\"x\":\"y\"},\"body\":\"//8=\",\"isBase64Encoded\":true}"}`,
		"fail.json":      `{"do":"fail"}`,
		"exit.json":      `{"do":"exit"}`,
		"raw.json":       `{"do":"7"}`,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "build", "echo", "bootstrap")
	testbed.Run(t, exec.Command("go", "build", "-tags", "lambda.norpc", "-o", out, "./testdata/echo"))
	t.Chdir(dir)
	return []string{"-build", "build"}
}

func TestRun(t *testing.T) {
	if got := parameters("\n[default.local_invoke.parameters]\n[b]\nparameter_overrides = \"A=b\"\n"); got["A"] != "" {
		t.Errorf("parameters of another section: %v", got)
	}
	flags := project(t)
	environment := func(name string) (string, bool) {
		v, ok := map[string]string{
			"LEVEL": "warn", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1", "AWS_SECRET_ACCESS_KEY": "of the developer", "HOME": "/x",
		}[name]
		return v, ok
	}
	for _, c := range []struct {
		name   string
		args   []string
		code   int
		stdout []string // each is part of it
		stderr string
	}{
		{"the template's environment, overridden", []string{"-event", "env.json", "-fn", "echo"}, 0, []string{
			"200\ncontent-type: text/plain\n\n[\n  \"", // indented JSON
			`"LEVEL=warn"`, `"PAYEE=0xab"`, `"LEDGER_TABLE=Ledger"`, `"AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:1"`,
			`"AWS_SECRET_ACCESS_KEY=local"`,
		}, "invoke: init "},
		{"bytes", []string{"-event", "headers.json", "-fn", "echo"}, 0, []string{"418\nx: y\n\n(4 characters of base64)\n"}, "invoke: init "},
		{"an answer that is not HTTP", []string{"-event", "raw.json", "-fn", "echo"}, 0, []string{"7\n"}, "invoke: init "},
		{"a function error", []string{"-event", "fail.json", "-fn", "echo"}, exitFunction, []string{`"errorMessage":"as asked"`}, "the function returned an error"},
		{"it ends", []string{"-event", "exit.json", "-fn", "echo"}, exitUsage, nil, "the function ended: exit status 4"},
		{"no such event", []string{"-fn", "echo"}, exitUsage, nil, "events/echo.json"},
		{"no such function", []string{"-event", "env.json", "-fn", "other"}, exitUsage, nil, "functions/other"},
		{"not built", []string{"-build", "elsewhere", "-event", "env.json", "-fn", "echo"}, exitUsage, nil, "make build"},
		{"no function named", nil, exitUsage, nil, "Usage of invoke"},
		{"a stray argument", []string{"-fn", "echo", "dns"}, exitUsage, nil, "name one function"},
		{"help", []string{"-h"}, 0, nil, "Usage of invoke"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append(flags[:len(flags):len(flags)], c.args...), environment, &stdout, &stderr)
			if code != c.code {
				t.Errorf("exit status %d, want %d\n%s", code, c.code, &stderr)
			}
			for _, want := range c.stdout {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("stdout lacks %q:\n%s", want, &stdout)
				}
			}
			if !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("stderr lacks %q:\n%s", c.stderr, &stderr)
			}
			for _, never := range []string{"of the developer", "HOME="} {
				if strings.Contains(stdout.String(), never) {
					t.Errorf("the function was given %q", never)
				}
			}
		})
	}
}

// What make local-invoke makes of a function sells for play money and reconciles,
// without a table, a facilitator or a node; the SAM CLI is given the same folder.
func TestTrial(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(filepath.Join("..", "..", ".."))
	testbed.Run(t, exec.Command("go", "build", "-tags", "lambda.norpc", "-o", dir+"/",
		"./infra/local/invoke", "./functions/ping", "./functions/mcp", "./functions/reconcile"))
	sam := "#!/bin/sh\n" + `grep -q rawPath event.json && grep -q '"CodeUri":"'"$CODE"'"' template.json && echo '{"statusCode":200,"body":"'"$*"'"}'`
	if err := os.WriteFile(filepath.Join(dir, "sam"), []byte(sam), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("CODE", filepath.Join(dir, "build", "ping"))
	environment := func(name string) (string, bool) { return "127.0.0.1:9", name == "DNS_RESOLVERS" }
	for _, c := range []struct {
		slug, flag string
		says       []string
	}{
		{"ping", "", []string{"200\n", "payment-response: ", `"ok": true`, "signed with a key"}},
		{"mcp", "", []string{"200\n", `"x402/payment-response"`, `"transaction": "0x`, "signed with a key"}},
		{"reconcile", "", []string{"null\n", `"msg":"reconcile"`, `"owed":0`}},
		{"ping", "-sam", []string{"200\n", "local invoke PingFunction --template template.json --event event.json"}},
	} {
		t.Run(c.slug+c.flag, func(t *testing.T) {
			built := filepath.Join(dir, "build", c.slug)
			err := os.MkdirAll(built, 0o750)
			for name, from := range map[string]string{"function": c.slug, "bootstrap": "invoke"} {
				err = cmp.Or(err, os.Link(filepath.Join(dir, from), filepath.Join(built, name)))
			}
			if err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
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

// A compressed answer is shown as text; one that is not gzip as what it is.
func TestShowsCompressedAnswers(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte("a page\n")) // memory takes it
	_ = z.Close()
	for body, want := range map[string]string{
		base64.StdEncoding.EncodeToString(b.Bytes()): "200\ncontent-encoding: gzip\n\na page\n",
		"AP8=": "200\ncontent-encoding: gzip\n\n(4 characters of base64)\n",
	} {
		payload, err := json.Marshal(events.APIGatewayV2HTTPResponse{
			StatusCode: 200, Headers: map[string]string{"content-encoding": "gzip"}, Body: body, IsBase64Encoded: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if show(&out, payload); out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
