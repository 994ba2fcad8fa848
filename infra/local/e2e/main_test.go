package e2e

import (
	"os"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// root is the module, seen from this package.
const root = "../../.."

func TestMain(m *testing.M) {
	// Two cases at a time, which is what two cores would get, would take minutes.
	testbed.Parallel(12)
	os.Exit(testbed.Main(m))
}

// localBinary is the local runner, watched by the race detector. A quick run
// without it does without a C compiler, which it needs.
func localBinary(tb testing.TB) string {
	tb.Helper()
	if watched || !testing.Short() {
		return testbed.Watched(tb, testbed.LocalRunner)
	}
	return plainBinary(tb)
}

// plainBinary is the local runner as people run it, for crowds: the race
// detector makes a signature fifteen times as dear, and a thousand of them
// at once on two cores then wait for the processor until their time is up.
func plainBinary(tb testing.TB) string {
	tb.Helper()
	return testbed.Program(tb, testbed.LocalRunner)
}

// payBinary is the paying client of make pay, watched if the suite is.
func payBinary(tb testing.TB) string {
	tb.Helper()
	const pkg = "./infra/local/pay"
	if watched {
		return testbed.Watched(tb, pkg)
	}
	return testbed.Program(tb, pkg)
}
