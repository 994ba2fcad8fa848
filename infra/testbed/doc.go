// Package testbed is what the suites below infra share: the programs of this
// module, built and run; the service in its forms (the local runner, the built
// functions behind a gateway); and the world around it on the loopback
// interface or in a network namespace: resolvers, the play-money facilitator,
// certificates, and the tools of this machine. What is special to a suite, such
// as a name that is answered late, is a handler of the suite's.
//
// Nothing here judges an answer: assertions are the suites'.
package testbed

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Patience is how long a test waits for another process: far longer than any
// takes, on a machine that is busy with something else.
const Patience = 10 * time.Minute

// Root is the module's folder, as a path from the package that is tested.
func Root(tb testing.TB) string {
	tb.Helper()
	dir := "."
	for range 8 {
		if _, err := os.Stat(filepath.Join(dir, "template.yaml")); err == nil {
			return dir
		}
		dir = filepath.Join(dir, "..")
	}
	tb.Fatal("this package is not below the module's folder")
	return ""
}
