package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/openrdap/rdap"
	"github.com/openrdap/rdap/bootstrap"
	"golang.org/x/sync/errgroup"
)

const patience = 20 * time.Second

// peer is a library or tool that the service is compared with.
type peer struct {
	name string
	ask  lookupFunc
}

type answer struct {
	Peer  string  `json:"peer"`
	MS    float64 `json:"ms"`
	Error string  `json:"error"`
}

// ask lets each peer do a lookup of the domain twice, and prints the durations of the second
// lookups as JSON. Before the second lookup, the peer's caches are filled, as those of the
// service are. One of these caches holds the bootstrap file of the registries. Package simnet
// runs "bench peers", which calls ask, in the simulated network in which it measures the
// service.
func ask(all []peer, domain string) error {
	answers := []answer{}
	for _, p := range all {
		p.timeOf(domain)
		answers = append(answers, p.timeOf(domain))
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

func (p peer) timeOf(domain string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begun := time.Now()
	took, err := p.ask(ctx, domain)
	a := answer{Peer: p.name}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		a.Error = "not installed"
	case err != nil: // a tool that fails does not print a duration, so the time until its failure counts
		a.Error, took = "failed: "+err.Error(), time.Since(begun)
	}
	a.MS = float64(took.Microseconds()) / 1000
	return a
}

// deadAddressesKey is a key of the map that the function peers returns. Under this key, the
// map has the peers for hosts with dead addresses. The other keys are slugs of operations.
const deadAddressesKey = "broken"

// peers returns the libraries and tools to compare with, by the slug of the operation.
func peers(resolver, bootstrapURL string) map[string][]peer {
	dnsLookup := timedLookup(queryDNS(resolver))
	certificateLookup := timedLookup(certificate)
	rdapLookup := timedLookup(queryRegistry(bootstrapURL))
	headLookup := timedLookup(head)
	return map[string][]peer{
		"dns":              {{"dig", dig(resolver)}, {"Go miekg/dns Client", dnsLookup}},
		"ssl-check":        {{"curl, to the end of the handshake", curl("-I", "time_appconnect")}, {"Go crypto/tls, system resolver", certificateLookup}},
		"whois":            {{"Go openrdap Client, new connection", rdapLookup}},
		"headers":          {{"curl -I", curl("-I", "time_total")}, {"Go net/http HEAD", headLookup}},
		"resolve-redirect": {{"curl -IL", curl("-IL", "time_total")}, {"Go net/http HEAD", headLookup}},
		"host-intel":       {{"Go miekg/dns, crypto/tls, openrdap at once", concurrentLookup(dnsLookup, certificateLookup, rdapLookup)}},
		"uptime-check":     {{"Go miekg/dns, crypto/tls, net/http at once", concurrentLookup(dnsLookup, certificateLookup, headLookup)}},
		deadAddressesKey:   {{"Go net/http HEAD, racing addresses by RFC 8305", timedLookup(headRaced)}},
	}
}

// A lookupFunc does a lookup, and returns how long it took.
type lookupFunc = func(ctx context.Context, domain string) (time.Duration, error)

func timedLookup(f func(ctx context.Context, domain string) error) lookupFunc {
	return func(ctx context.Context, domain string) (time.Duration, error) {
		begun := time.Now()
		err := f(ctx, domain)
		return time.Since(begun), err
	}
}

func queryDNS(resolver string) func(ctx context.Context, domain string) error {
	return func(ctx context.Context, domain string) error {
		q := new(dns.Msg).SetQuestion(dns.Fqdn(domain), dns.TypeA)
		r, _, err := new(dns.Client).ExchangeContext(ctx, q, net.JoinHostPort(resolver, "53"))
		if err == nil {
			err = checkReply(r)
		}
		return err
	}
}

// checkReply returns an error if a DNS reply is not a success or has no records.
func checkReply(r *dns.Msg) error {
	if r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0 {
		return fmt.Errorf("no answer: %s", dns.RcodeToString[r.Rcode])
	}
	return nil
}

// certificate resolves a domain with the system's resolver, connects, and gets the certificate.
func certificate(ctx context.Context, domain string) error {
	conn, err := new(tls.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(domain, "443"))
	if err == nil {
		err = conn.Close() // a successful handshake means that the server has sent a certificate
	}
	return err
}

// head sends a HEAD request and follows redirects. Each call opens new connections.
func head(ctx context.Context, domain string) error { return headBy(ctx, domain, &http.Transport{}) }

func headBy(ctx context.Context, domain string, transport *http.Transport) error {
	defer transport.CloseIdleConnections()
	r := must(http.NewRequestWithContext(ctx, http.MethodHead, "https://"+domain+"/", http.NoBody))
	res, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close() // the body is empty, because the request is HEAD
	if res.StatusCode >= http.StatusMultipleChoices {
		return errors.New(res.Status)
	}
	return nil
}

// queryRegistry returns a function that asks the RDAP server of a domain's registry about the
// domain. Like the service, it opens a new connection for each request.
func queryRegistry(bootstrapURL string) func(ctx context.Context, domain string) error {
	client := &rdap.Client{
		HTTP:      &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Bootstrap: &bootstrap.Client{BaseURL: must(url.Parse(strings.TrimSuffix(bootstrapURL, "dns.json")))},
	}
	return func(ctx context.Context, domain string) error {
		res, err := client.Do(rdap.NewDomainRequest(domain).WithContext(ctx))
		if err != nil {
			return err
		}
		if _, ok := res.Object.(*rdap.Domain); !ok {
			return fmt.Errorf("%T is not a domain", res.Object)
		}
		return nil
	}
}

// concurrentLookup returns a lookup that does several lookups at once. It takes as long as the
// slowest of them.
func concurrentLookup(all ...lookupFunc) lookupFunc {
	return timedLookup(func(ctx context.Context, domain string) error {
		var running errgroup.Group
		for _, l := range all {
			running.Go(func() error {
				_, err := l(ctx, domain)
				return err
			})
		}
		return running.Wait()
	})
}

// tool returns a lookup that runs a command with the domain in place of DOMAIN. The command
// prints how long its lookup took. The pattern's group matches this number in the output.
func tool(pattern string, unit time.Duration, command ...string) lookupFunc {
	figure := regexp.MustCompile(pattern)
	return func(ctx context.Context, domain string) (time.Duration, error) {
		args := strings.Split(strings.ReplaceAll(strings.Join(command, "\n"), "DOMAIN", domain), "\n")
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%w %.200s", err, out)
		}
		m := figure.FindSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("%s has no answer", args[0])
		}
		n, err := strconv.ParseFloat(string(m[1]), 64)
		return time.Duration(n * float64(unit)), err
	}
}

func dig(resolver string) lookupFunc {
	return tool(`(?s)status: NOERROR.*Query time: ([0-9]+) usec`, time.Microsecond, "dig", "-u", "+tries=1", "@"+resolver, "DOMAIN", "A")
}

// curl returns a lookup by curl with an option: -I, or -IL to follow redirects. variable is
// curl's name for the duration that counts, such as time_total. The last arguments are further
// options.
func curl(option, variable string, more ...string) lookupFunc {
	command := append([]string{"curl", option, "-sS", "--http1.1", "--max-redirs", "5", "-o", "/dev/null",
		"-w", "%{http_code} %{" + variable + "}", "https://DOMAIN/"}, more...)
	return tool(`^2[0-9]{2} ([0-9.]+)$`, time.Second, command...)
}
