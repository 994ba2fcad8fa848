package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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

// look is a lookup that says how long it took.
type look = func(ctx context.Context, domain string) (time.Duration, error)

// timed measures a lookup from its call to its return.
func timed(f func(ctx context.Context, domain string) error) look {
	return func(ctx context.Context, domain string) (time.Duration, error) {
		begun := time.Now()
		err := f(ctx, domain)
		return time.Since(begun), err
	}
}

// ask asks a resolver for the addresses of a name.
func ask(ctx context.Context, resolver, domain string) error {
	q := new(dns.Msg).SetQuestion(dns.Fqdn(domain), dns.TypeA)
	r, _, err := new(dns.Client).ExchangeContext(ctx, q, net.JoinHostPort(resolver, "53"))
	if err != nil {
		return err
	}
	if r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0 {
		return fmt.Errorf("no answer: %s", dns.RcodeToString[r.Rcode])
	}
	return nil
}

// certificate resolves with the system's configuration, connects, and takes
// the leaf.
func certificate(ctx context.Context, domain string) error {
	conn, err := (&tls.Dialer{Config: &tls.Config{ServerName: domain}}).DialContext(ctx, "tcp", net.JoinHostPort(domain, "443"))
	if err != nil {
		return err
	}
	defer conn.Close()
	secure, ok := conn.(*tls.Conn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return errors.New("no certificate")
	}
	return nil
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
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		return errors.New(res.Status)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// registry asks RDAP servers. The bootstrap file stays in memory, as in the
// service; connections are not kept, because the service keeps none.
type registry struct{ client *rdap.Client }

func newRegistry(bootstrapURL string) (*registry, error) {
	base, err := url.Parse(strings.TrimSuffix(bootstrapURL, "dns.json"))
	if err != nil {
		return nil, err
	}
	return &registry{&rdap.Client{
		HTTP:      &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Bootstrap: &bootstrap.Client{BaseURL: base},
	}}, nil
}

func (r *registry) ask(ctx context.Context, domain string) error {
	res, err := r.client.Do(rdap.NewDomainRequest(domain).WithContext(ctx))
	if err != nil {
		return err
	}
	if _, ok := res.Object.(*rdap.Domain); !ok {
		return fmt.Errorf("%T is no domain", res.Object)
	}
	return nil
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

// output is what a tool prints; its input is empty.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(complaint.String(), "\n")
		return "", fmt.Errorf("%w %s", err, first)
	}
	return out.String(), nil
}
