package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
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
