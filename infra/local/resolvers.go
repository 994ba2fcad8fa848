package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// warnUnresolved prints a warning at start if DNS does not work, before anybody pays for a
// lookup.
func warnUnresolved(ctx context.Context, out io.Writer, probe func(context.Context) error) {
	probing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := probe(probing)
	if err == nil || ctx.Err() != nil {
		return
	}
	warning := "WARNING: DNS does not work from here, so every lookup will fail. The ping still works.\n"
	for _, cause := range causes(err) {
		warning += "  " + untrusted.Text(cause) + "\n"
	}
	if text := guess(err); text != "" {
		warning += text + "\n"
	}
	fmt.Fprintln(out, warning+"Stop the service and start it with a resolver that works from here: DNS_RESOLVERS=192.0.2.53 make run")
	fmt.Fprintln(out)
}

// causes returns a line for each resolver.
func causes(err error) (lines []string) {
	for _, f := range dns.Failures(err) {
		lines = append(lines, f.Error())
	}
	if len(lines) == 0 {
		return []string{err.Error()}
	}
	return lines
}

// guess returns a sentence about what may be wrong, or nothing. A resolver that answers is not
// blocked.
func guess(err error) string {
	for _, f := range dns.Failures(err) {
		if f.Answered {
			return "An answer did come: something on this network changes DNS answers, or the resolver does not know com."
		}
	}
	if fault.From(err).Code == lookup.DNSTimeout {
		return "Many networks block UDP port 53 to the outside."
	}
	return ""
}
