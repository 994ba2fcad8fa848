package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// warnUnresolved prints a warning at start if DNS does not work, before anybody pays for a
// lookup.
func warnUnresolved(ctx context.Context, out io.Writer, diagnose func(context.Context) []string) {
	probing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	lines := diagnose(probing)
	if len(lines) == 0 || ctx.Err() != nil {
		return
	}
	warning := "WARNING: DNS does not work from here, so every lookup will fail. The ping still works.\n"
	for _, line := range lines {
		warning += "  " + untrusted.Text(line) + "\n"
	}
	fmt.Fprint(out, warning+"Stop the service and start it with a resolver that works from here: DNS_RESOLVERS=192.0.2.53 make run\n\n")
}
