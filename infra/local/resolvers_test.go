package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

func TestWarnUnresolved(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	down := []string{"resolver a is silent", "resolver b\x1b[2J is too"}
	for name, c := range map[string]struct {
		ctx   context.Context
		lines []string
		want  string
	}{
		"down": {t.Context(), down, "WARNING: DNS does not work from here, so every lookup will fail. The ping still works.\n" +
			"  resolver a is silent\n" +
			"  resolver b?[2J is too\n" +
			"Stop the service and start it with a resolver that works from here: DNS_RESOLVERS=192.0.2.53 make run\n\n"},
		"up":    {t.Context(), nil, ""},
		"ended": {ended, down, ""},
	} {
		var out bytes.Buffer
		warnUnresolved(c.ctx, &out, func(context.Context) []string { return c.lines })
		if out.String() != c.want {
			t.Errorf("%s: %q, want %q", name, out.String(), c.want)
		}
	}
}

// TestStopped checks that after Ctrl-C the program says that it is ending, and then that it
// has ended.
func TestStopped(t *testing.T) {
	t.Parallel()
	process := testbed.Must(programs.Start(testbed.Local(testbed.Program(t, "./infra/local"), t.TempDir())))
	t.Cleanup(process.Kill)
	testbed.Check(process.Ready())
	testbed.Check(process.Cmd.Process.Signal(os.Interrupt))
	<-process.Gone()
	const want = "Finishing open requests. Press Ctrl-C again to stop now.\nStopped.\n"
	if log := process.Log.String(); !strings.HasSuffix(log, want) {
		t.Errorf("it does not end with %q:\n%s", want, log)
	}
}
