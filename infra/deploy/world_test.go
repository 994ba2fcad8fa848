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
	reallyBuilds = true
	playsBuild   = false // sam build is simulated, and the account runs functions that were built before
)

// newOperator returns an operator with a new repository. Its only commit has the files of this
// checkout and the file of the stack shop. The SAM CLI is the real one. If builds is false, only
// its command "sam build" is simulated.
func newOperator(t *testing.T, builds bool) *operator {
	t.Helper()
	o := &operator{t: t, account: newAccount(t), root: filepath.Join(t.TempDir(), "clone")}
	names := testbed.Resolver(t, testbed.ReadZone(t, "com. 30 NS a.gtld-servers.net."))
	facilitator := testbed.StartFacilitator(t)
	o.tools(builds)
	o.copyFiles()
	o.write("infra/stacks/shop.toml", shop(facilitator.URL, names))
	o.git("init", "--quiet")
	o.commit("the first release")
	return o
}

// tools sets up the operator's tools and their environment.
func (o *operator) tools(builds bool) {
	o.t.Helper()
	bin := o.t.TempDir()
	python := deployed.Python(o.t, "-m", "samcli")
	build := `mkdir -p .aws-sam/build && sed 's#CodeUri: functions/#CodeUri: ../../functions/#' template.yaml > .aws-sam/build/template.yaml`
	script := "#!/bin/sh\nset -e\n"
	if !builds {
		says := `'` + python.Path + `' -c "import urllib.request; urllib.request.urlopen('` + o.account.endpoint + pathBuilt + `')"`
		script += "if [ \"$1\" = build ]; then\n  " + build + "\n  " + says + "\n  exit\nfi\n"
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

// change replaces texts in a file of the clone. The last arguments are pairs: an old text, and
// the text that replaces it.
func (o *operator) change(name string, was ...string) {
	o.t.Helper()
	text := o.read(name)
	for i := 0; i < len(was); i += 2 {
		if !strings.Contains(text, was[i]) {
			o.t.Fatalf("%s has no %q", name, was[i])
		}
		text = strings.Replace(text, was[i], was[i+1], 1)
	}
	o.write(name, text)
}

// file replaces texts in the stack's file, as change does.
func (o *operator) file(was ...string) { o.change("infra/stacks/shop.toml", was...) }

func (o *operator) git(arguments ...string) string {
	o.t.Helper()
	cmd := exec.Command("git", arguments...)
	cmd.Dir, cmd.Env = o.root, o.env
	return strings.TrimSpace(string(programs.Run(o.t, cmd)))
}

// commit commits everything and returns the name of the commit.
func (o *operator) commit(says string) string {
	o.t.Helper()
	o.git("add", "--all")
	o.git("commit", "--quiet", "--allow-empty", "-m", says)
	return o.git("rev-parse", "HEAD")
}

// types runs the program as if the operator had typed the arguments. It returns what the
// program prints to standard output and to standard error.
func (o *operator) types(arguments ...string) (out, notes string, err error) {
	o.t.Helper()
	command, rest := arguments[0], arguments[1:]
	ctx, cancel := context.WithTimeout(o.t.Context(), 4*testbed.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, testbed.Must(os.Executable()), append([]string{command, "-root", o.root}, rest...)...)
	cmd.Env = o.env
	var said, noted strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &noted
	err = cmd.Run()
	return said.String(), noted.String(), err
}

// succeeds checks that a command succeeds and prints the given texts to standard error.
func (o *operator) succeeds(arguments []string, says ...string) (notes string) {
	o.t.Helper()
	_, notes, err := o.types(arguments...)
	if err != nil {
		o.t.Fatalf("%v: %v\n%s", arguments, err, notes)
	}
	o.said(arguments, notes, says)
	return notes
}

// fails checks that a command fails, prints the given texts to standard error, and leaves the
// parameters and outputs of the stack as they were.
func (o *operator) fails(arguments []string, says ...string) (notes string) {
	o.t.Helper()
	before := o.stack()
	_, notes, err := o.types(arguments...)
	if err == nil {
		o.t.Fatalf("%v: it is done\n%s", arguments, notes)
	}
	o.said(arguments, notes, says)
	if after := o.stack(); after != before {
		o.t.Errorf("%v: the stack was %s, and is %s", arguments, before, after)
	}
	return notes
}

func (o *operator) said(arguments []string, notes string, says []string) {
	o.t.Helper()
	for _, part := range says {
		if !strings.Contains(notes, part) {
			o.t.Errorf("%v does not say %q:\n%s", arguments, part, notes)
		}
	}
}

// stack returns the parameters and outputs of the stack as one text.
func (o *operator) stack() string {
	o.account.mu.Lock()
	defer o.account.mu.Unlock()
	s := o.account.stacks["shop-stack"]
	if s == nil {
		return "nothing"
	}
	return fmt.Sprint(s.parameters, s.outputs)
}

// now returns the stack's value of a parameter or an output.
func (o *operator) now(name string) string {
	o.t.Helper()
	o.account.mu.Lock()
	defer o.account.mu.Unlock()
	s := o.account.stacks["shop-stack"]
	if value, ok := s.outputs[name]; ok {
		return value
	}
	return s.parameters[name]
}

var deployIt = []string{"deploy", "-yes", "shop"}

// shop returns the file of a stack that the SAM CLI deploys and that uses a facilitator and a
// resolver on this machine.
func shop(facilitator, resolver string) string {
	text := string(testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), stackfile.Folder, "example.toml"))))
	return strings.NewReplacer(
		`"0x…"`, `"`+testbed.Account(1)+`"`, `"https://…"`, `"`+facilitator+`/"`, `"arn:aws:secretsmanager:…"`, `""`,
		`"https://api.example.com"`, `""`, `DefaultEndpoint = "no"`, `DefaultEndpoint = "yes"`,
		`"1.1.1.1,8.8.8.8,9.9.9.10"`, `"`+resolver+`"`, `"hostfacts-production"`, `"shop-stack"`, `toolchain = "cdk"`, `toolchain = "sam"`,
	).Replace(text)
}
