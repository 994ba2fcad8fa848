package main

import (
	"context"
	"fmt"
	"io"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// probeTime is how long the check at start waits for the resolvers of the service.
// candidateTime is how long it then waits for each resolver of the machine.
const (
	probeTime     = 5 * time.Second
	candidateTime = 2 * time.Second
)

// warnUnresolved prints a warning at start if DNS does not work, before anybody pays for a
// lookup. diagnose says what is wrong. candidates are resolvers that the user may not have
// thought of. The warning has a command with the first one that works.
func warnUnresolved(ctx context.Context, out io.Writer, diagnose func(context.Context) []string, candidates []string) {
	probing, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	lines := diagnose(probing)
	if len(lines) == 0 || ctx.Err() != nil {
		return
	}
	warning := "WARNING: DNS does not work from here, so every lookup will fail. The ping still works.\n"
	for _, line := range lines {
		warning += "  " + untrusted.Text(line) + "\n"
	}
	advice := "Stop the service and start it with DNS_RESOLVERS set to a resolver that works from here.\n\n"
	if resolver := firstWorking(ctx, candidates); resolver != "" {
		advice = "The resolver of this machine works. Stop the service and start it with this command:\n  DNS_RESOLVERS=" + resolver + " make run\n\n"
	}
	if ctx.Err() == nil {
		fmt.Fprint(out, warning+advice)
	}
}

// firstWorking returns the first of the given resolvers that answers a question which every
// working resolver can answer. It returns "" if none does.
func firstWorking(ctx context.Context, candidates []string) string {
	for _, candidate := range candidates {
		if isWorking(ctx, candidate) {
			return candidate
		}
	}
	return ""
}

func isWorking(ctx context.Context, resolver string) bool {
	ctx, cancel := context.WithTimeout(ctx, candidateTime)
	defer cancel()
	parsed, err := dns.ParseResolvers(resolver)
	return err == nil && dns.New(dns.Config{Resolvers: parsed}).Probe(ctx) == nil
}

// machineResolvers returns the resolvers in a file of the format of resolv.conf(5), such as
// /etc/resolv.conf. It returns none if the file cannot be read, as on Windows.
func machineResolvers(file string) []string {
	settings, err := miekg.ClientConfigFromFile(file)
	if err != nil {
		return nil
	}
	const most = 3 // as many as the system's own resolver uses (MAXNS)
	return settings.Servers[:min(most, len(settings.Servers))]
}
