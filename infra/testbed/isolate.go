package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// Variables by which Isolate informs the tests.
const (
	isolatedVar = "HOSTFACTS_SUITE_ISOLATED"
	sharedVar   = "HOSTFACTS_SUITE_UNCONFINED" // why there are no namespaces
)

// Dynalite, as a package for Isolate, means the server of cloud.StartDynamo.
const Dynalite = "dynalite"

// Isolate runs the tests of a suite in new namespaces (see isolated), n at once. Before that,
// outside of the namespaces, where there is a network, it builds the programs of the given
// packages, which may include AllFunctions and CDKApp, and installs Dynalite. If the machine
// allows no namespaces, the tests that need them are skipped (see NoNamespaces). It returns the
// exit code. TestMain calls it.
func Isolate(m *testing.M, n int, packages ...string) int {
	if os.Getenv(isolatedVar) != "" {
		Parallel(n)
		return m.Run()
	}
	for _, pkg := range packages {
		if pkg == Dynalite {
			if err := installPackages(context.Background(), PeerFolder(pkg)); err != nil {
				fmt.Fprintf(os.Stderr, "tests that need %s are skipped: %v\n", pkg, err)
			}
			continue
		}
		if _, err := build(kindOf(pkg), pkg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code, err := isolated(isolatedVar + "=1")
	if err == nil {
		return code
	}
	Check(os.Setenv(sharedVar, err.Error()))
	return m.Run()
}

// NoNamespaces returns why the tests are not in separate namespaces; nil if they are.
func NoNamespaces() error {
	if reason := os.Getenv(sharedVar); reason != "" {
		return errors.New(reason)
	}
	return nil
}
