package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
)

// TestBackup checks a backup that is written while a service has the ledger open. The backup
// must open as a ledger with the same list of debts. A backup must never overwrite a file.
func TestBackup(t *testing.T) {
	t.Parallel()
	path, _ := newLedgerFile(t, fillings(t)["fill"])
	service, err := file.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	operate := func(path string, args ...string) (code int, out, notes string) {
		var said, noted bytes.Buffer
		env := map[string]string{"LEDGER_FILE": path}
		code = run(t.Context(), args, order{getenv: func(name string) string { return env[name] }, now: func() time.Time { return noon }, out: &said, notes: &noted})
		return code, said.String(), noted.String()
	}
	to := strings.TrimSuffix(path, ".db") + "-20261128T120000Z.db"
	code, out, notes := operate(path, "backup")
	if code != 0 || !strings.Contains(out, to) || !strings.Contains(out, "records") {
		t.Fatalf("backup ends with %d, %s%s", code, out, notes)
	}
	before, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"backup"}, {"backup", to}} {
		if code, out, notes := operate(path, args...); code != exitFailed || out != "" || !strings.Contains(notes, "name another file") {
			t.Errorf("%q over a copy ends with %d, %s%s", args, code, out, notes)
		}
	}
	if after, err := os.ReadFile(to); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a copy was overwritten (%v)", err)
	}
	other := filepath.Join(t.TempDir(), "copy.db")
	if code, out, notes := operate(path, "backup", other); code != 0 || !strings.Contains(out, other) {
		t.Errorf("backup to a name ends with %d, %s%s", code, out, notes)
	}
	_, want, _ := operate(path, "owed", "-json")
	for _, from := range []string{to, other} {
		if code, out, notes := operate(from, "owed", "-json"); code != 0 || out != want {
			t.Errorf("owed of the copy ends with %d, %s%s; want %s", code, out, notes, want)
		}
	}
	names, err := filepath.Glob(filepath.Join(filepath.Dir(other), "*"))
	if err != nil || !slices.Equal(names, []string{other}) {
		t.Errorf("beside the copy are %q, %v", names, err)
	}
}

// TestHalved checks a copy that has only the main file of an open ledger, and therefore may
// lack records. The copy must be refused until a command runs with the LEDGER_ACCEPT that the
// error names. After that, the copy must open without LEDGER_ACCEPT.
func TestHalved(t *testing.T) {
	t.Parallel()
	path, _ := newLedgerFile(t, fillings(t)["fill"])
	service, err := file.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	contents, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"LEDGER_FILE": filepath.Join(t.TempDir(), "copy.db")}
	if err := os.WriteFile(env["LEDGER_FILE"], contents, 0o600); err != nil {
		t.Fatal(err)
	}
	operate := func() (code int, notes string) {
		var said, noted bytes.Buffer
		code = run(t.Context(), []string{"owed"}, order{getenv: func(name string) string { return env[name] }, now: time.Now, out: &said, notes: &noted})
		return code, noted.String()
	}
	code, notes := operate()
	_, word, named := strings.Cut(notes, "LEDGER_ACCEPT=")
	if code != exitFailed || !named {
		t.Fatalf("half a ledger: %d, %s", code, notes)
	}
	env["LEDGER_ACCEPT"], _, _ = strings.Cut(word, ",")
	if code, notes := operate(); code != 0 {
		t.Errorf("accepted: %d, %s", code, notes)
	}
	delete(env, "LEDGER_ACCEPT")
	if code, notes := operate(); code != 0 {
		t.Errorf("and whole from then on: %d, %s", code, notes)
	}
}
