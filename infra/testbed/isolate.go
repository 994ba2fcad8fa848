package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// Isolate sets these environment variables for the tests.
const (
	isolatedVar = "HOSTFACTS_SUITE_ISOLATED"
	sharedVar   = "HOSTFACTS_SUITE_UNCONFINED" // the reason why there are no namespaces
)

// Dynalite is not the path of a Go package. In the list of packages for Isolate, it stands for
// the server that cloud.StartDynamo starts, which Isolate then installs.
const Dynalite = "dynalite"

// Isolate runs the tests of a suite in new namespaces (see runIsolated), n tests at once, and
// returns the exit code. TestMain calls Isolate.
//
// Before it runs the tests, while there is still a network, Isolate builds the programs of the
// given packages, which may include AllFunctions and CDKApp. If Dynalite is one of the packages,
// Isolate installs it. If the machine does not allow namespaces, Isolate runs the tests
// without them. NoNamespaces then returns the reason, and tests that need namespaces skip
// themselves.
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
	code, err := runIsolated(isolatedVar + "=1")
	if err == nil {
		return code
	}
	Check(os.Setenv(sharedVar, err.Error()))
	return m.Run()
}

// NoNamespaces returns nil if the tests run in separate namespaces. Otherwise it returns an
// error that says why Isolate could not create them.
func NoNamespaces() error {
	if reason := os.Getenv(sharedVar); reason != "" {
		return errors.New(reason)
	}
	return nil
}
