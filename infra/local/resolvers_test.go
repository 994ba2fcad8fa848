package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
)

func TestWarnUnresolved(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	down := errors.New("no answer")
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{t.Context(), down, "WARNING: DNS does not work from here, so every lookup will fail. The ping still works.\n" +
			"  no answer\n" +
			"Stop the service and start it with a resolver that works from here: DNS_RESOLVERS=192.0.2.53 make run\n\n"},
		{t.Context(), nil, ""},
		{ended, down, ""},
	} {
		var out bytes.Buffer
		warnUnresolved(c.ctx, &out, func(context.Context) error { return c.err })
		if out.String() != c.want {
			t.Errorf("%v: %q, want %q", c.err, out.String(), c.want)
		}
	}
}

// Each resolver has a line. The guess about port 53 is for resolvers that are silent.
func TestWarnUnresolvedCauses(t *testing.T) {
	t.Parallel()
	const blocked = "Many networks block UDP port 53"
	const changed = "something on this network changes DNS answers, or the resolver does not know com"
	silent := testbed.Must(net.ListenPacket("udp", "127.0.0.1:0"))
	t.Cleanup(func() { silent.Close() })
	ignorant := testbed.Must(testbed.ListenDNS("127.0.0.1:0", testbed.ParseZone("example.com. 300 MX 10 mx1.example.com.")))
	t.Cleanup(func() { ignorant.Close() })
	for name, c := range map[string]struct {
		resolvers []string
		says      []string
		not       []string
	}{
		"silence":      {[]string{silent.LocalAddr().String()}, []string{" did not answer in time", blocked}, []string{changed}},
		"an answer":    {[]string{ignorant.Addr}, []string{" answered N", changed}, []string{blocked}},
		"both":         {[]string{silent.LocalAddr().String(), ignorant.Addr}, []string{" did not answer in time", " answered N", changed}, []string{blocked}},
		"nobody there": {[]string{"127.0.0.1:9"}, []string{" could not be asked: "}, []string{blocked, changed}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := dns.New(dns.Config{Resolvers: c.resolvers})
			var out bytes.Buffer
			warnUnresolved(t.Context(), &out, func(ctx context.Context) error {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return client.Probe(short)
			})
			for _, text := range append(c.says, "\n  resolver 127.0.0.1", "DNS_RESOLVERS=") {
				if !strings.Contains(out.String(), text) {
					t.Errorf("does not say %q:\n%s", text, &out)
				}
			}
			for _, text := range c.not {
				if strings.Contains(out.String(), text) {
					t.Errorf("says %q:\n%s", text, &out)
				}
			}
			if got := strings.Count(out.String(), "\n  resolver "); got != len(c.resolvers) {
				t.Errorf("%d lines about %d resolvers:\n%s", got, len(c.resolvers), &out)
			}
		})
	}
}

// After Ctrl-C it says that it ends, and then that it has ended.
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
