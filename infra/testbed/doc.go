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

// ours is the first line of the module's go.mod.
const ours = "module github.com/hostfacts/hostfacts\n"

// Root returns the module's folder, as an absolute path. It is the same in the suites of modules
// below it, such as infra/cdk.
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

// PeerFolder returns the folder of an installed program that tests talk to.
func PeerFolder(name string) string {
	return filepath.Join(Root(), "infra", "testbed", "testdata", name)
}

// Must returns v, and panics on an error, which can only come from a mistake or from this
// machine.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check is Must without a value.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}
