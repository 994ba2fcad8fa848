package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// TestWarnUnresolved checks the warning that the program prints if DNS does not work. If the
// machine's own resolver works, the warning must have the command that uses it.
func TestWarnUnresolved(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	zone := testbed.ReadZone(t, "com. 60 IN NS ns.example.com.\n")
	works := testbed.Resolver(t, zone)
	denies := testbed.Resolver(t, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		testbed.Check(w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeNameError)))
	}))
	silent := testbed.Resolver(t, dns.HandlerFunc(func(dns.ResponseWriter, *dns.Msg) {}))
	down := []string{"resolver a is silent", "resolver b\x1b[2J is too"}
	const warning = "WARNING: DNS does not work from here, so every lookup will fail. The ping still works.\n" +
		"  resolver a is silent\n" +
		"  resolver b?[2J is too\n"
	const setOne = warning + "Stop the service and start it with DNS_RESOLVERS set to a resolver that works from here.\n\n"
	for name, c := range map[string]struct {
		ctx        context.Context
		lines      []string
		candidates []string
		want       string
	}{
		"down":             {t.Context(), down, nil, setOne},
		"no other works":   {t.Context(), down, []string{"fe80::1%eth0", denies}, setOne},
		"another one does": {t.Context(), down, []string{silent, denies, works}, warning + "The resolver of this machine works. Stop the service and start it with this command:\n  DNS_RESOLVERS=" + works + " make run\n\n"},
		"up":               {t.Context(), nil, []string{works}, ""},
		"ended":            {ended, down, []string{works}, ""},
	} {
		var out bytes.Buffer
		warnUnresolved(c.ctx, &out, func(context.Context) []string { return c.lines }, c.candidates)
		if out.String() != c.want {
			t.Errorf("%s: %q, want %q", name, out.String(), c.want)
		}
	}
}

// TestMachineResolvers checks which resolvers are read from a file such as /etc/resolv.conf. A
// file that is missing or has no resolver must give none.
func TestMachineResolvers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"two":     {"# made by a program\nsearch example.com\nnameserver 10.0.0.2\nnameserver 2001:db8::53\noptions edns0\n", []string{"10.0.0.2", "2001:db8::53"}},
		"four":    {strings.Repeat("nameserver 10.0.0.2\n", 4), []string{"10.0.0.2", "10.0.0.2", "10.0.0.2"}},
		"none":    {"search example.com\n", nil},
		"no text": {"", nil},
	} {
		file := filepath.Join(dir, name)
		testbed.Check(os.WriteFile(file, []byte(c.text), 0o600))
		if got := machineResolvers(file); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := machineResolvers(filepath.Join(dir, "missing")); got != nil {
		t.Errorf("a missing file: %q", got)
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
