package clients

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// validators is the folder of what runs and configures them.
const validators = "testdata/validators/"

// run runs a JavaScript program and returns what it prints. A
// validator that finds something may end with 1; any other failure is one of
// the test.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	program := testbed.Node(t, ".")
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
