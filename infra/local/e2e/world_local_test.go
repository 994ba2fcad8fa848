package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

func startRunner(tb testing.TB, l *lab) opener {
	localBinary(tb)
	return func(tb testing.TB, s setup) *deployment { return openLocal(tb, l, s) }
}

// openLocal runs the built local runner over a ledger file of its own.
func openLocal(tb testing.TB, l *lab, s setup) *deployment {
	tb.Helper()
	p := startLocal(tb, l, s, filepath.Join(tb.TempDir(), "ledger.db"))
	d := &deployment{base: p.URL, origin: p.URL, log: p.Log.String}
	tb.Cleanup(func() {
		p.End(tb)
		d.seen.check(tb, p.Log.String())
	})
	return d
}

// runner is the program of a local world.
func (s setup) runner(tb testing.TB) string {
	if s.crowd {
		return plainBinary(tb)
	}
	return localBinary(tb)
}

// startLocal starts the local runner and waits until it says that it is ready.
// At the end of the test it is stopped, and must have ended well.
func startLocal(tb testing.TB, l *lab, s setup, ledgerFile string) *testbed.Process {
	tb.Helper()
	p := startMember(tb, l, testbed.Local(s.runner(tb), filepath.Dir(ledgerFile), map[string]string{"LEDGER_FILE": ledgerFile}, s.environment()))
	if err := p.Ready(); err != nil {
		tb.Fatal(err)
	}
	return p
}

// startMember starts a local runner and does not wait for it. At the end of the
// test it is stopped, and must have ended well.
func startMember(tb testing.TB, l *lab, cmd *exec.Cmd) *testbed.Process {
	tb.Helper()
	p, err := testbed.Launch(cmd, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.End(tb)
		l.checkLog(tb, p.Log.String())
	})
	return p
}
