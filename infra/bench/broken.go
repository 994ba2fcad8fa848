package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// brokenNetworks adds a section to the table. The section compares lookups on broken
// networks: those of the service, and those by the tools that users run.
func (s *site) brokenNetworks() {
	progress("lookups on broken networks, with a round trip of %s", s.rtt)
	file := filepath.Join(s.dir, "broken.json")
	cmd := exec.CommandContext(s.ctx, must(filepath.Abs("build/simnet.test")), "-broken",
		"-rtt", s.rtt.String(), "-runs", strconv.Itoa(s.runs), "-peers", must(os.Executable()), "-rows", file)
	var out bytes.Buffer
	cmd.Dir = "infra/simnet"
	cmd.Stdout = &out
	cmd.Stderr = os.Stderr // shows the progress of the command
	if err := cmd.Run(); err != nil {
		check(fmt.Errorf("%s: %w\n%s", cmd, err, out.Bytes()))
	}
	s.section("Lookups on broken networks with round trips of %s, compared with tools as users start them; "+
		"of fewer than 100 lookups, p99 is the slowest; a failed lookup counts with the time until it failed", s.rtt).rows = readRows(file)
}

// repeatLookup starts a lookup many times, at fixed intervals, without waiting for earlier
// lookups. When all have ended, it prints their durations as JSON.
func repeatLookup(p peer, domain string, times int, beat time.Duration) error {
	answers := make([]answer, times)
	var running sync.WaitGroup
	for i := range answers {
		running.Go(func() { answers[i] = p.timeOf(domain) })
		<-time.After(beat)
	}
	running.Wait()
	return json.NewEncoder(os.Stdout).Encode(answers)
}

// connectTimeout is the time, in seconds, within which curl must resolve the name and connect.
// Without this limit, curl waits minutes for a dead address before it tries the next one.
const connectTimeout = "8"

// tools returns the programs that users run for a lookup, by the slug of the operation. The
// programs query the resolvers in /etc/resolv.conf. If dig is not installed, lookupLikeDig
// takes its place, and queries the given resolvers.
func tools(resolvers []string) map[string]peer {
	limitedCurl := func(option, of string) lookupFunc { return curl(option, of, "--connect-timeout", connectTimeout) }
	dnsPeer := peer{"miekg/dns with dig's retries (5 s, then the next server, 3 tries)", lookupLikeDig(resolvers)}
	if _, err := exec.LookPath("dig"); err == nil {
		dnsPeer = peer{"dig, including its start", timedLookup(runDig)}
	}
	headLookup := limitedCurl("-I", "time_total")
	const within = " --connect-timeout " + connectTimeout
	return map[string]peer{
		"dns":              dnsPeer,
		"ssl-check":        {"curl" + within + ", to the end of the handshake", limitedCurl("-I", "time_appconnect")},
		"headers":          {"curl -I" + within, headLookup},
		"resolve-redirect": {"curl -IL" + within, limitedCurl("-IL", "time_total")},
		"uptime-check":     {dnsPeer.name + ", and curl -I" + within + ", at once", concurrentLookup(dnsPeer.ask, headLookup)},
	}
}

// runDig runs dig with its defaults. The caller measures how long the whole process takes,
// because dig prints only the duration of its last try.
func runDig(ctx context.Context, domain string) error {
	out, err := exec.CommandContext(ctx, "dig", domain, "A").Output()
	if err == nil && !bytes.Contains(out, []byte("status: NOERROR")) {
		err = errors.New("dig has no answer")
	}
	return err
}

// lookupLikeDig returns a lookup with the retries of dig: it waits five seconds for each
// resolver, and tries all resolvers three times in turn. dig 9.18 itself is slower, because it
// queries the first resolver three times before it queries the next.
func lookupLikeDig(resolvers []string) lookupFunc {
	client := &dns.Client{Timeout: 5 * time.Second}
	return timedLookup(func(ctx context.Context, domain string) error {
		q := new(dns.Msg).SetQuestion(dns.Fqdn(domain), dns.TypeA)
		err := errors.New("there is no resolver")
		for range 3 {
			for _, resolver := range resolvers {
				var r *dns.Msg
				if r, _, err = client.ExchangeContext(ctx, q, withPort(resolver)); err == nil {
					return checkReply(r)
				}
			}
		}
		return err
	})
}

// withPort returns a resolver's address with its port. If the address names no port, withPort
// adds port 53.
func withPort(resolver string) string {
	if _, _, err := net.SplitHostPort(resolver); err == nil {
		return resolver
	}
	return net.JoinHostPort(resolver, "53")
}
