package samcheck

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	root         = "../.."
	template     = root + "/template.yaml"
	requirements = "requirements.txt"
	venv         = ".venv"
	// stamp is a copy of requirements.txt inside an environment that is whole.
	stamp = "installed.txt"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Each test waits for programs of one thread.
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("4")
	}
	os.Exit(m.Run())
}

// errNoPython says what this machine lacks.
var errNoPython = errors.New("needs Python 3.10 or later with venv and pip")

// installed puts the Python environment in place, once.
var installed = sync.OnceValue(func() error {
	if current(venv) {
		return nil
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("%w: %w", errNoPython, err)
	}
	// Other runs may be installing too: whoever is first puts his in place.
	fresh, err := os.MkdirTemp(".", venv+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) // nothing is there when it was put in place
	if out, err := exec.Command(python, "-m", "venv", fresh).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %w: %.400s", errNoPython, err, out)
	}
	pip := exec.Command(filepath.Join(fresh, "bin", "python"), "-m", "pip", "install",
		"--quiet", "--disable-pip-version-check", "--no-input", "--requirement", requirements)
	if out, err := pip.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: pip install: %w: %.400s", errNoPython, err, out)
	}
	text, err := os.ReadFile(requirements)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, stamp), text, 0o600); err != nil {
		return err
	}
	if err := os.RemoveAll(venv); err != nil {
		return err
	}
	if err := os.Rename(fresh, venv); err != nil && !current(venv) {
		return err
	}
	return nil
})

// current says whether an environment has what requirements.txt asks for.
func current(dir string) bool {
	want, err := os.ReadFile(requirements)
	if err != nil {
		return false
	}
	have, err := os.ReadFile(filepath.Join(dir, stamp))
	return err == nil && bytes.Equal(want, have)
}

// python is a command of the environment. It has no credentials, no settings of
// whoever runs the test, and nobody to ask for credentials.
func python(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	if err := installed(); errors.Is(err, errNoPython) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	interpreter, err := filepath.Abs(filepath.Join(venv, "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, interpreter, arguments...)
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "AWS_") && !strings.HasPrefix(name, "SAM_") && name != "HOME" {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+t.TempDir(), "AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"SAM_CLI_TELEMETRY=0", "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// goEnv are variables of the Go tool that it would look for at HOME.
func goEnv(t *testing.T) []string {
	t.Helper()
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	values := slices.Collect(strings.Lines(string(out)))
	var env []string
	for i, name := range names {
		env = append(env, name+"="+strings.TrimSpace(values[i]))
	}
	return env
}

// run runs a command that must succeed, and returns what it printed.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args[1:], " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// TestEnvironmentFollowsRequirements: an environment that was cut short, or
// made for other versions, is made again.
func TestEnvironmentFollowsRequirements(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if current(dir) {
		t.Error("an environment that was cut short counts")
	}
	text, err := os.ReadFile(requirements)
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]bool{string(text): true, string(text) + "more==1\n": false} {
		if err := os.WriteFile(filepath.Join(dir, stamp), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if current(dir) != want {
			t.Errorf("an environment counts: %v, want %v", !want, want)
		}
	}
	for _, line := range []string{"cfn-lint==1.51.", "aws-sam-translator==1.110.", "aws-sam-cli==", "moto=="} {
		if !bytes.Contains(text, []byte("\n"+line)) {
			t.Errorf("requirements.txt lacks %s", line)
		}
	}
}
