package boot

import (
	"context"
	"net/url"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
)

// fallback reads the second facilitator. It must not be the first one, and must not
// have the first one's credentials, so that neither operator ever sees what proves
// to the other who we are.
func (e *environment) fallback(c *Config) {
	c.FallbackURL = e.peerURL(varFallbackURL)
	c.FallbackCredentials, _ = e.credentials(fallbackCredentials())
	one, other := primaryCredentials(), fallbackCredentials()
	for _, name := range [][2]string{{one.keyID, other.keyID}, {one.keySecret, other.keySecret}, {one.token, other.token}, {one.secret, other.secret}} {
		switch v := e.text(name[1], ""); {
		case v == "":
		case c.FallbackURL == "":
			e.fault(name[1], "is set, and %s is not", varFallbackURL)
		case v == e.text(name[0], ""):
			e.fault(name[1], "is that of %s: each facilitator has credentials of its own", name[0])
		}
	}
	if c.FallbackURL != "" && place(c.FallbackURL) == place(c.FacilitatorURL) {
		e.fault(varFallbackURL, "is the facilitator of %s", varFacilitatorURL)
	}
}

// place is what tells two facilitators apart: host and path of a URL.
func place(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return strings.ToLower(u.Host) + strings.TrimRight(u.Path, "/")
}

// peerURL reads the URL of a peer whose word about money is believed; empty is none.
func (e *environment) peerURL(name string) string {
	v := e.text(name, "")
	if v != "" && insecure(v) {
		e.fault(name, "must be an https URL; http is for this machine only, because whoever is on the way could read credentials and invent a settlement")
	}
	return v
}

// insecure says that raw is no https URL, and no http URL of this machine.
func insecure(raw string) bool {
	u, err := url.Parse(raw)
	return err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname()))
}

// settlers are the clients of the facilitators.
type settlers struct {
	primary  *facilitator.Client
	fallback *facilitator.Client // nil: none
}

func (c Config) settlers(p service.Platform) (settlers, error) {
	client := func(url string, creds facilitator.Credentials) (*facilitator.Client, error) {
		return facilitator.New(facilitator.Config{URL: url, Credentials: creds, Now: p.Now, Logger: p.Log, UserAgent: c.userAgent()})
	}
	var s settlers
	var err error
	if s.primary, err = client(c.FacilitatorURL, c.Credentials); err == nil && c.FallbackURL != "" {
		s.fallback, err = client(c.FallbackURL, c.FallbackCredentials)
	}
	return s, err
}

// fallbackOf is the second facilitator as the payment layer takes it, nil without
// one.
func (s settlers) fallbackOf(p service.Platform) *x402.Fallback {
	if s.fallback == nil {
		return nil
	}
	return x402.NewFallback(x402.FallbackConfig{Facilitator: s.fallback, Primary: s.primary.Name(), Name: s.fallback.Name(), Now: p.Now})
}

// Supported is nil when one of the facilitators settles our kind of payment on a
// network.
func (s settlers) Supported(ctx context.Context, network string) error {
	err := s.primary.Supported(ctx, network)
	if err != nil && s.fallback != nil && s.fallback.Supported(ctx, network) == nil {
		return nil
	}
	return err
}

// each asks where there are two facilitators whether each of them works: /ready warns
// of one that does not.
func (s settlers) each(network string) []service.Probe {
	if s.fallback == nil {
		return nil
	}
	var all []service.Probe
	for _, one := range []struct {
		name   string
		client *facilitator.Client
	}{{"facilitator_primary", s.primary}, {"facilitator_fallback", s.fallback}} {
		all = append(all, service.Probe{Name: one.name, Optional: true, Check: func(ctx context.Context) error { return one.client.Supported(ctx, network) }})
	}
	return all
}
