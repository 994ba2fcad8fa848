package dynamotest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func TestStart(t *testing.T) {
	t.Parallel()
	a, b := Start(t), Start(t)
	if a.URL == b.URL {
		t.Errorf("two servers at %s", a.URL)
	}
	store := a.Store(t)
	r := ledgertest.First("k")
	if existing, err := store.Create(t.Context(), r); existing != nil || err != nil {
		t.Fatalf("Create = %v, %v", existing, err)
	}
	if got, err := store.Fetch(t.Context(), "k"); err != nil || got == nil || got.WriteID != r.WriteID {
		t.Errorf("Fetch = %v, %v", got, err)
	}
	tables, err := dynamotable.NewClient(b.ClientConfig()).ListTables(t.Context(), &dynamodb.ListTablesInput{})
	if err != nil || len(tables.TableNames) != 0 {
		t.Errorf("the other server has tables %v, %v; want none", tables, err)
	}
}

// The server of a test that is over does not answer any more.
func TestStartEnds(t *testing.T) {
	t.Parallel()
	var s Server
	t.Run("inner", func(t *testing.T) { s = Start(t) })
	if s.URL == "" {
		t.Skip("the inner test was skipped")
	}
	if err := dynamo.EnsureTable(t.Context(), dynamotable.NewClient(s.ClientConfig()), "t"); err == nil {
		t.Error("the server is still there")
	}
}

func TestInstalled(t *testing.T) {
	t.Parallel()
	const (
		wanted = `{"dependencies":{"dynalite":"4.0.0"}}`
		right  = `{"version":"4.0.0"}`
		wrong  = `{"version":"3.2.2"}`
	)
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"complete": {map[string]string{"package.json": wanted, "node_modules/.package-lock.json": "{}", "node_modules/dynalite/package.json": right}, ""},
		"missing":  {map[string]string{"package.json": wanted}, "missing or incomplete"},
		"cut short": {map[string]string{"package.json": wanted, "node_modules/dynalite/package.json": right},
			"missing or incomplete"},
		"outdated": {map[string]string{"package.json": wanted, "node_modules/.package-lock.json": "{}", "node_modules/dynalite/package.json": wrong},
			`has dynalite "3.2.2", not "4.0.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for path, text := range c.files {
				full := filepath.Join(dir, filepath.FromSlash(path))
				if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			switch err := installed(dir); {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("installed = %v, want %q", err, c.want)
			}
		})
	}
}

// Where the package cannot be installed the reason is said.
func TestInstallSaysWhy(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("npm fails", func(t *testing.T) {
		fake := t.TempDir()
		if err := os.WriteFile(filepath.Join(fake, "npm"), []byte("#!/bin/sh\necho no registry >&2\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", fake)
		if err := install(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "no registry") {
			t.Errorf("install = %v, want npm's own words", err)
		}
	})
	t.Run("no npm", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if err := install(context.Background(), dir); err == nil || !strings.Contains(err.Error(), "npm is not in PATH") {
			t.Errorf("install = %v, want that npm is missing", err)
		}
	})
}
