package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

const patience = 20 * time.Second

type peer struct {
	name string
	ask  look
}

type answer struct {
	Peer  string  `json:"peer"`
	MS    float64 `json:"ms"`
	Error string  `json:"error"`
}

// runPeers does the same lookups as the service by well-known libraries and
// tools. It reads lines "operation domain" and answers each with a line of JSON:
// what every peer took in milliseconds, or why not. Package simnet starts it where
// the service is, so that both have the same way to the same hosts.
func runPeers(arguments []string) error {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	resolver := flags.String("resolver", "1.1.1.1", "the resolver that a DNS question goes to")
	bootstrap := flags.String("bootstrap", "", "URL of the RDAP bootstrap file")
	check(flags.Parse(arguments))
	return serve(peers(*resolver, *bootstrap), os.Stdin, os.Stdout)
}

// serve answers until its input ends.
func serve(all map[string][]peer, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		op, domain, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			return fmt.Errorf("%q is not an operation and a domain", lines.Text())
		}
		answers := []answer{}
		for _, p := range all[op] {
			answers = append(answers, p.timeOf(domain))
		}
		if err := json.NewEncoder(out).Encode(answers); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (p peer) timeOf(domain string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	took, err := p.ask(ctx, domain)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return answer{Peer: p.name, Error: "not installed"}
	case err != nil:
		return answer{Peer: p.name, Error: "failed: " + err.Error()}
	}
	return answer{Peer: p.name, MS: float64(took.Microseconds()) / 1000}
}

// peers are those of every operation, by its slug.
func peers(resolver, bootstrapURL string) map[string][]peer {
	question, leaf, registered, headed := timed(question(resolver)), timed(certificate), timed(registry(bootstrapURL)), timed(head)
	return map[string][]peer{
		"dns":              {{"dig", dig(resolver)}, {"Go miekg/dns Client", question}},
		"ssl-check":        {{"openssl s_client, its start included", openssl}, {"Go crypto/tls, system resolver", leaf}},
		"whois":            {{"Go openrdap Client, new connection", registered}},
		"headers":          {{"curl -I", curl("-I")}, {"Go net/http HEAD", headed}},
		"resolve-redirect": {{"curl -IL", curl("-IL")}, {"Go net/http HEAD", headed}},
		"host-intel":       {{"Go miekg/dns, crypto/tls, openrdap at once", together(question, leaf, registered)}},
		"uptime-check":     {{"Go miekg/dns, crypto/tls, net/http at once", together(question, leaf, headed)}},
	}
}
