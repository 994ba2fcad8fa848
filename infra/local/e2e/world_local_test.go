package e2e

import (
	"path/filepath"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// openLocal runs the built local runner over a ledger file of its own. It can be
// killed.
func openLocal(tb testing.TB, l *lab, s setup) *deployment {
	tb.Helper()
	return openLocalOver(tb, l, s, filepath.Join(tb.TempDir(), "ledger.db"))
}

// openLocalOver is openLocal over a ledger file that may be there.
func openLocalOver(tb testing.TB, l *lab, s setup, ledgerFile string) *deployment {
	tb.Helper()
	p := startLocal(tb, l, s, ledgerFile)
	d := &deployment{base: p.URL, origin: p.URL, log: p.Log.String}
	d.kill = p.Kill
	d.revive = func() *deployment { return openLocalOver(tb, l, s, ledgerFile) }
	return d
}

// startLocal starts the local runner and waits until it says that it is ready.
// At the end of the test it is stopped, and must have ended well.
func startLocal(tb testing.TB, l *lab, s setup, ledgerFile string) *testbed.Process {
	tb.Helper()
	p := launchLocal(tb, l, s, filepath.Dir(ledgerFile), map[string]string{"LEDGER_FILE": ledgerFile})
	if err := p.Ready(); err != nil {
		tb.Fatal(err)
	}
	return p
}

// launchLocal is startLocal without the waiting.
func launchLocal(tb testing.TB, l *lab, s setup, dir string, more map[string]string) *testbed.Process {
	tb.Helper()
	program := localBinary
	if s.crowd {
		program = plainBinary
	}
	p, err := testbed.Launch(testbed.Local(program(tb), dir, s.environment(), more), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.End(tb)
		l.checkLog(tb, p.Log.String())
	})
	return p
}
