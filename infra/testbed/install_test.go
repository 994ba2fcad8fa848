package testbed

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// write makes files below a folder.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		full := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// Of those that need it at once, one installs.
func TestInstall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := func() error { _, err := os.Stat(filepath.Join(dir, "done")); return err }
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			err := Install(dir, missing, func() error { return os.Mkdir(filepath.Join(dir, "done"), 0o700) })
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	broken := errors.New("broken")
	if err := Install(t.TempDir(), func() error { return broken }, func() error { return nil }); !errors.Is(err, broken) {
		t.Errorf("an installation that left something missing: %v", err)
	}
}

func TestMissingPackages(t *testing.T) {
	t.Parallel()
	const (
		wanted   = `{"dependencies":{"dynalite":"4.0.0"},"optionalDependencies":{"@foundry-rs/anvil":"1.7.1"}}`
		done     = "node_modules/.package-lock.json"
		dynalite = "node_modules/dynalite/package.json"
		anvil    = "node_modules/@foundry-rs/anvil/package.json"
	)
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"complete":           {map[string]string{done: "{}", dynalite: `{"version":"4.0.0"}`, anvil: `{"version":"1.7.1"}`}, ""},
		"another platform":   {map[string]string{done: "{}", dynalite: `{"version":"4.0.0"}`}, ""},
		"missing":            {nil, "missing or incomplete"},
		"cut short":          {map[string]string{dynalite: `{"version":"4.0.0"}`}, "missing or incomplete"},
		"one missing":        {map[string]string{done: "{}"}, "no such file"},
		"outdated":           {map[string]string{done: "{}", dynalite: `{"version":"3.2.2"}`}, `has dynalite "3.2.2", not "4.0.0"`},
		"optional, outdated": {map[string]string{done: "{}", dynalite: `{"version":"4.0.0"}`, anvil: `{"version":"1.0.0"}`}, `has @foundry-rs/anvil "1.0.0", not "1.7.1"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{"package.json": wanted})
			write(t, dir, c.files)
			switch err := missingPackages(dir); {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Where the packages cannot be installed the reason is said.
func TestNodePackagesSaysWhy(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"package.json": "{}"})
	for name, c := range map[string]struct{ npm, want string }{
		"npm fails": {"#!/bin/sh\necho no registry >&2\nexit 1\n", "no registry"},
		"no npm":    {"", "missing or incomplete, and npm is not in PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if c.npm != "" {
				write(t, bin, map[string]string{"npm": c.npm})
			}
			t.Setenv("PATH", bin)
			if err := NodePackages(t.Context(), dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
