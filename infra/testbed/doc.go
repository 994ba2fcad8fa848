// Package testbed has the code that tests share. It builds and runs the programs of this
// module. It starts the service, either as the local runner or as the built functions behind a
// gateway. It also has the servers around the service, on the loopback interface or in a
// network namespace:
//
//   - resolvers, certificates and the play-money facilitator;
//   - Origins: TLS servers on the loopback interface, which package guard reaches under public
//     addresses;
//   - Chain: an Ethereum node with a token like USDC;
//   - DynamoDB (package cloud): DynamoDB Local, or dynalite, which does not return the old item
//     when a condition fails.
//
// A server that only one suite needs, such as a resolver that answers late, is a handler in
// that suite. The assertions are in the suites as well.
//
// Programs of this module are kept in build/tests. A suite whose sources have not changed
// therefore links nothing. Third-party programs are installed in pinned versions. Several test
// binaries run at once. One of them takes a file lock and builds the programs that all of them
// need; the others wait.
package testbed

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// Patience is how long a test waits for another process.
const Patience = programs.Patience

// ours is how the go.mod of this module begins.
const ours = "module github.com/hostfacts/hostfacts\n"

// Root returns the folder of this module as an absolute path, even in the suites of the
// modules below that folder, such as infra/cdk.
func Root() string {
	dir := Must(os.Getwd())
	for {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(text), ours) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("this package is not below the module's folder")
		}
		dir = filepath.Dir(dir)
	}
}

// PeerFolder returns the folder into which a third-party program for tests is installed.
func PeerFolder(name string) string {
	return filepath.Join(Root(), "infra", "testbed", "testdata", name)
}

// Must returns v. It panics if err is not nil, which only a mistake in the tests or a fault of
// this machine can cause.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check is like Must, for a function that returns only an error.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}
