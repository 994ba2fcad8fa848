package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// What Isolate tells the tests through their environment.
const (
	builtVar  = "HOSTFACTS_SUITE_BUILT"      // the folder with everything that was built
	sharedVar = "HOSTFACTS_SUITE_UNCONFINED" // why there are no namespaces
)

// Isolate runs the tests of a suite in new namespaces (see isolated), n at
// once. Before, and outside, where there is a network, build puts what they run into
// the folder that Built names. Where there can be no namespaces, the tests that need
// them are skipped (see NoNamespaces). It returns the exit code. TestMain calls it.
func Isolate(m *testing.M, n int, build func(ctx context.Context, dir string) error) int {
	if Built() != "" {
		Parallel(n)
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "hostfacts-suite-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code, err := isolated(builtVar + "=" + dir)
	if err == nil {
		return code
	}
	if err := errors.Join(os.Setenv(builtVar, dir), os.Setenv(sharedVar, err.Error())); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Built is the folder of what Isolate has had built.
func Built() string { return os.Getenv(builtVar) }

// NoNamespaces says why the tests are not in separate namespaces, nil when they
// are.
func NoNamespaces() error {
	if reason := os.Getenv(sharedVar); reason != "" {
		return errors.New(reason)
	}
	return nil
}
