package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"github.com/openrdap/rdap"
	"github.com/openrdap/rdap/bootstrap"
)

type look = func(ctx context.Context, domain string) (time.Duration, error)

func timed(f func(ctx context.Context, domain string) error) look {
	return func(ctx context.Context, domain string) (time.Duration, error) {
		begun := time.Now()
		err := f(ctx, domain)
		return time.Since(begun), err
	}
}

func question(resolver string) func(ctx context.Context, domain string) error {
	return func(ctx context.Context, domain string) error {
		q := new(dns.Msg).SetQuestion(dns.Fqdn(domain), dns.TypeA)
		r, _, err := new(dns.Client).ExchangeContext(ctx, q, net.JoinHostPort(resolver, "53"))
		if err == nil && (r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0) {
			err = fmt.Errorf("no answer: %s", dns.RcodeToString[r.Rcode])
		}
		return err
	}
}

// certificate resolves with the system's configuration, connects, and takes
// the leaf.
func certificate(ctx context.Context, domain string) error {
	conn, err := new(tls.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(domain, "443"))
	if err == nil {
		err = conn.Close() // the handshake is done, and without a certificate it fails
	}
	return err
}

// head follows redirects over connections that one call shares and the next
// does not.
func head(ctx context.Context, domain string) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+domain+"/", http.NoBody)
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close() // an answer to HEAD has none
	if res.StatusCode >= http.StatusMultipleChoices {
		return errors.New(res.Status)
	}
	return nil
}

// registry asks RDAP servers. The bootstrap file stays in memory, as in the
// service; connections are not kept, because the service keeps none.
func registry(bootstrapURL string) func(ctx context.Context, domain string) error {
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

// together is the time of lookups that run at once: that of the slowest.
func together(all ...look) look {
	return timed(func(ctx context.Context, domain string) error {
		errs := make([]error, len(all))
		var running sync.WaitGroup
		for i, l := range all {
			running.Go(func() { _, errs[i] = l(ctx, domain) })
		}
		running.Wait()
		return errors.Join(errs...)
	})
}

var digTime = regexp.MustCompile(`Query time: ([0-9]+) usec`)

// dig reports the time of the question itself.
func dig(resolver string) look {
	return func(ctx context.Context, domain string) (time.Duration, error) {
		out, err := output(ctx, "dig", "-u", "+tries=1", "@"+resolver, domain, "A")
		if err != nil {
			return 0, err
		}
		m := digTime.FindStringSubmatch(out)
		if m == nil || !strings.Contains(out, "status: NOERROR") {
			return 0, errors.New("dig has no answer")
		}
		us, err := strconv.Atoi(m[1])
		return time.Duration(us) * time.Microsecond, err
	}
}

// curl reports the time of the transfer itself, redirects included.
func curl(option string) look {
	return func(ctx context.Context, domain string) (time.Duration, error) {
		out, err := output(ctx, "curl", option, "-sS", "--http1.1", "--max-redirs", "5", "-o", "/dev/null",
			"-w", "%{http_code} %{time_total}", "https://"+domain+"/")
		if err != nil {
			return 0, err
		}
		code, total, _ := strings.Cut(out, " ")
		if !strings.HasPrefix(code, "2") {
			return 0, fmt.Errorf("curl has status %s", code)
		}
		s, err := strconv.ParseFloat(total, 64)
		return time.Duration(s * float64(time.Second)), err
	}
}

// openssl reports no time, so its start counts, some milliseconds, but not how
// it says goodbye after it has printed the certificate.
func openssl(ctx context.Context, domain string) (took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, "openssl", "s_client", "-connect", domain+":443", "-servername", domain)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if took == 0 && lines.Text() == "-----END CERTIFICATE-----" {
			took = time.Since(begun)
		}
	}
	if err := cmd.Wait(); err != nil {
		return 0, err
	}
	if took == 0 {
		return 0, errors.New("openssl has no certificate")
	}
	return took, nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		first, _, _ := strings.Cut(string(exit.Stderr), "\n")
		err = fmt.Errorf("%w %s", err, first)
	}
	return string(out), err
}
