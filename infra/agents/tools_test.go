package agents

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// command prepares a program that runs in testdata.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := testbed.Command(t, name, args...)
	cmd.Dir = "testdata"
	return cmd
}

// privateKey is a fresh account's.
func privateKey() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return "0x" + hex.EncodeToString(b)
}

// bin is the path of an installed npm program; node itself is one of them, because
// the conformance suite needs a newer one than many machines have.
func bin(t *testing.T, name string) string {
	t.Helper()
	testbed.Node(t, ".")
	path, err := filepath.Abs(filepath.Join("node_modules", ".bin", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// line is the i-th line of a program's output, decoded.
func line(t *testing.T, out []byte, i int, v any) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if i >= len(lines) {
		t.Fatalf("%d lines: %s", len(lines), out)
	}
	if err := json.Unmarshal([]byte(lines[i]), v); err != nil {
		t.Fatal(fmt.Errorf("%w in %s", err, lines[i]))
	}
}
