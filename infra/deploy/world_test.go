package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// asDeploy is an environment variable. If it is set, the test binary runs as the command
// deploy, without any pauses.
const asDeploy = "TEST_AS_DEPLOY"

func TestMain(m *testing.M) {
	if os.Getenv(asDeploy) != "" {
		os.Exit(run(context.Background(), os.Args[1:], desk{
			in: os.Stdin, out: os.Stdout, notes: os.Stderr, now: time.Now, client: &http.Client{CheckRedirect: noRedirect}, run: execute,
			pause: func(context.Context, time.Duration) error { return nil },
		}))
	}
	testbed.Parallel(4) // most of the work is done by other programs
	m.Run()
}

// operator is a person with a clone of this repository, the SAM CLI and an AWS account.
type operator struct {
	t       *testing.T
	account *account
	root    string // the root of the clone
	env     []string
}

// Values for the second argument of newOperator: whether the SAM CLI really builds.
const (
	realBuild      = true
	simulatedBuild = false // sam build is simulated, and the account runs functions that were built before
)

// newOperator returns an operator with a new repository. Its only commit has the files of this
// checkout and the file of the stack shop. The SAM CLI is the real one. If buildsReally is
// false, only the command "sam build" is simulated.
func newOperator(t *testing.T, buildsReally bool) *operator {
	t.Helper()
	o := &operator{t: t, account: newAccount(t), root: filepath.Join(t.TempDir(), "clone")}
	names := testbed.Resolver(t, testbed.ReadZone(t, "com. 30 NS a.gtld-servers.net."))
	facilitator := testbed.StartFacilitator(t)
	o.installTools(buildsReally)
	o.copyFiles()
	o.write("infra/stacks/shop.toml", shopStackFile(facilitator.URL, names))
	o.git("init", "--quiet")
	o.commit("the first release")
	return o
}

// installTools sets up the operator's tools and their environment.
func (o *operator) installTools(builds bool) {
	o.t.Helper()
	bin := o.t.TempDir()
	python := deployed.Python(o.t, "-m", "samcli")
	build := `mkdir -p .aws-sam/build && sed 's#CodeUri: functions/#CodeUri: ../../functions/#' template.yaml > .aws-sam/build/template.yaml`
	script := "#!/bin/sh\nset -e\n"
	if !builds {
		notify := `'` + python.Path + `' -c "import urllib.request; urllib.request.urlopen('` + o.account.endpoint + pathBuilt + `')"`
		script += "if [ \"$1\" = build ]; then\n  " + build + "\n  " + notify + "\n  exit\nfi\n"
	}
	script += "exec '" + python.Path + "' -m samcli \"$@\"\n"
	testbed.Check(os.WriteFile(filepath.Join(bin, "sam"), []byte(script), 0o700))
	o.env = append(python.Env, o.account.variables()...)
	o.env = append(o.env, "PATH="+bin+":"+os.Getenv("PATH"), asDeploy+"=1", "SAM_CLI_POLL_DELAY=0.2", "MAKEFLAGS=", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=o", "GIT_AUTHOR_EMAIL=o@hostfacts.example", "GIT_COMMITTER_NAME=o", "GIT_COMMITTER_EMAIL=o@hostfacts.example")
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOFLAGS"} {
		o.env = append(o.env, name+"="+strings.TrimSpace(string(programs.Run(o.t, exec.Command("go", "env", name)))))
	}
}

// copyFiles copies the tracked files and the new files of this checkout into the clone.
func (o *operator) copyFiles() {
	o.t.Helper()
	list := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = testbed.Root()
	for name := range strings.SplitSeq(strings.Trim(string(programs.Run(o.t, list)), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(testbed.Root(), name))
		if err != nil {
			continue // the file was deleted, but this is not committed yet
		}
		o.write(name, string(text))
	}
}

func (o *operator) write(name, text string) {
	o.t.Helper()
	path := filepath.Join(o.root, name)
	testbed.Check(os.MkdirAll(filepath.Dir(path), 0o700))
	testbed.Check(os.WriteFile(path, []byte(text), 0o600))
}

func (o *operator) read(name string) string {
	o.t.Helper()
	return string(testbed.Must(os.ReadFile(filepath.Join(o.root, name))))
}

// replaceIn replaces texts in a file of the clone. In each of the pairs, the first text is
// replaced by the second.
func (o *operator) replaceIn(name string, pairs ...string) {
	o.t.Helper()
	text := o.read(name)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			o.t.Fatalf("%s has no %q", name, pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	o.write(name, text)
}

// replaceInStackFile replaces texts in the stack's file, as replaceIn does.
func (o *operator) replaceInStackFile(pairs ...string) {
	o.replaceIn("infra/stacks/shop.toml", pairs...)
}

func (o *operator) git(arguments ...string) string {
	o.t.Helper()
	cmd := exec.Command("git", arguments...)
	cmd.Dir, cmd.Env = o.root, o.env
	return strings.TrimSpace(string(programs.Run(o.t, cmd)))
}

// commit commits everything and returns the name of the commit.
func (o *operator) commit(message string) string {
	o.t.Helper()
	o.git("add", "--all")
	o.git("commit", "--quiet", "--allow-empty", "-m", message)
	return o.git("rev-parse", "HEAD")
}

// runProgram runs the program as if the operator had typed the arguments. It returns what the
// program prints to standard output and to standard error.
func (o *operator) runProgram(arguments ...string) (out, notes string, err error) {
	o.t.Helper()
	command, rest := arguments[0], arguments[1:]
	ctx, cancel := context.WithTimeout(o.t.Context(), 4*testbed.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, testbed.Must(os.Executable()), append([]string{command, "-root", o.root}, rest...)...)
	cmd.Env = o.env
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// wantSuccess checks that a command succeeds and prints the given texts to standard error.
func (o *operator) wantSuccess(arguments []string, texts ...string) (notes string) {
	o.t.Helper()
	_, notes, err := o.runProgram(arguments...)
	if err != nil {
		o.t.Fatalf("%v: %v\n%s", arguments, err, notes)
	}
	o.checkNotes(arguments, notes, texts)
	return notes
}

// wantFailure checks that a command fails, prints the given texts to standard error, and
// leaves the parameters and outputs of the stack as they were.
func (o *operator) wantFailure(arguments []string, texts ...string) (notes string) {
	o.t.Helper()
	before := o.stackText()
	_, notes, err := o.runProgram(arguments...)
	if err == nil {
		o.t.Fatalf("%v: it is done\n%s", arguments, notes)
	}
	o.checkNotes(arguments, notes, texts)
	if after := o.stackText(); after != before {
		o.t.Errorf("%v: the stack was %s, and is %s", arguments, before, after)
	}
	return notes
}

func (o *operator) checkNotes(arguments []string, notes string, texts []string) {
	o.t.Helper()
	for _, part := range texts {
		if !strings.Contains(notes, part) {
			o.t.Errorf("%v does not say %q:\n%s", arguments, part, notes)
		}
	}
}

// stackText returns the parameters and outputs of the stack as one text.
func (o *operator) stackText() string {
	o.account.mu.Lock()
	defer o.account.mu.Unlock()
	s := o.account.stacks["shop-stack"]
	if s == nil {
		return "nothing"
	}
	return fmt.Sprint(s.parameters, s.outputs)
}

// currentValue returns the stack's value of a parameter or an output.
func (o *operator) currentValue(name string) string {
	o.t.Helper()
	o.account.mu.Lock()
	defer o.account.mu.Unlock()
	s := o.account.stacks["shop-stack"]
	if value, ok := s.outputs[name]; ok {
		return value
	}
	return s.parameters[name]
}

var deployArguments = []string{"deploy", "-yes", "shop"}

// shopStackFile returns the text of a stack file. The SAM CLI deploys this stack. The stack
// uses a facilitator and a resolver on this machine.
func shopStackFile(facilitator, resolver string) string {
	text := string(testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), stackfile.Folder, "example.toml"))))
	return strings.NewReplacer(
		`"0x…"`, `"`+testbed.Account(1)+`"`, `"https://…"`, `"`+facilitator+`/"`, `"arn:aws:secretsmanager:…"`, `""`,
		`"https://api.example.com"`, `""`, `DefaultEndpoint = "no"`, `DefaultEndpoint = "yes"`,
		`"1.1.1.1,8.8.8.8,9.9.9.10"`, `"`+resolver+`"`, `"hostfacts-production"`, `"shop-stack"`, `toolchain = "cdk"`, `toolchain = "sam"`,
	).Replace(text)
}
