package validators

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// node says where Node is, with the packages installed, or why it is not.
var node = sync.OnceValues(func() (string, error) {
	program, err := exec.LookPath("node")
	if err != nil {
		return "", errors.New("node is not in PATH")
	}
	missing := packagesMissing()
	if missing == nil {
		return program, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("%w, and npm is not in PATH", missing)
	}
	if out, err := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w, and npm ci fails: %w: %.400s", missing, err, out)
	}
	return program, packagesMissing()
})

// packagesMissing compares what is installed with package.json. npm writes the
// hidden lock file last.
func packagesMissing() error {
	raw, err := os.ReadFile("package.json")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join("node_modules", ".package-lock.json")); err != nil {
		return errors.New("node_modules is missing or incomplete")
	}
	wanted, err := parse[struct{ Dependencies map[string]string }](raw)
	if err != nil {
		return err
	}
	for name, version := range wanted.Dependencies {
		raw, err := os.ReadFile(filepath.Join("node_modules", name, "package.json"))
		if err != nil {
			return err
		}
		present, err := parse[struct{ Version string }](raw)
		if err != nil {
			return err
		}
		if present.Version != version {
			return fmt.Errorf("node_modules has %s %s, not %s", name, present.Version, version)
		}
	}
	return nil
}

// run runs a JavaScript program in this folder and returns what it prints. A
// validator that finds something may end with 1; any other failure is one of
// the test.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	program, err := node()
	if err != nil {
		t.Skipf("needs the validators from npm: %v", err)
	}
	for _, name := range args { // so that the cache of go test knows of them
		_, _ = os.Stat(name)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	// No news, no reports home, no colours.
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1", "NODE_OPTIONS=")
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 || out.Len() == 0) {
		t.Fatalf("node %s: %v\n%s", strings.Join(args, " "), err, complaints.String())
	}
	return out.Bytes()
}

// file writes a document to where a validator can read it.
func file(t *testing.T, name string, doc []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func bin(name string) string { return filepath.Join("node_modules", ".bin", name) }
