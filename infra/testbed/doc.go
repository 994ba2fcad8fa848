// Package testbed is what the tests share: the programs of this module, built and run; the
// service in its forms (the local runner, the built functions behind a gateway); and the world
// around it on the loopback interface or in a network namespace: resolvers, certificates, the
// play-money facilitator, TLS servers that the real guard reaches under public addresses
// (Origins), an Ethereum node with a token like USDC (Chain), DynamoDB (Dynamo: dynalite, which
// does not return the old item with a failed condition, and DynamoDB Local). What only one suite
// needs, such as a name that is answered late, is a handler in that suite, and so is every
// assertion.
//
// Programs of this module are kept in build/tests, so that a suite whose sources have not
// changed links nothing; third-party programs are installed in the pinned version. Several test
// binaries run at once: one builds what all of them need, holding a file lock, and the others
// wait.
package testbed

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// Patience is how long a test waits for another process.
const Patience = programs.Patience

// ours is how the go.mod of the module begins.
const ours = "module github.com/hostfacts/hostfacts\n"

// Root is the module's folder, as an absolute path. The suites of the modules below it,
// such as infra/cdk, have the same.
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

// PeerFolder is where one of the programs is installed that tests talk to.
func PeerFolder(name string) string {
	return filepath.Join(Root(), "infra", "testbed", "testdata", name)
}

// Must is a value that only a mistake, or this machine, makes an error.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check is Must for what has no value.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}
