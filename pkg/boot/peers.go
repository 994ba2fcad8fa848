package boot

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/fallback"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// The names of a facilitator's variables begin with one of these prefixes.
const (
	ofPrimary  = "FACILITATOR"
	ofFallback = "FACILITATOR_FALLBACK"
)

// facilitators sets the URLs and the credentials of the facilitators. The second facilitator
// must differ from the first and have different credentials, so that neither facilitator's
// operator gets the credentials for the other facilitator.
func (e *environment) facilitators(c *Config) {
	c.FacilitatorURL = e.primary.url
	c.FallbackURL = e.fallback.url
	first := e.text(ofPrimary + "_URL")
	second := e.text(ofFallback + "_URL")
	if first == "" {
		first = x402.Network(c.Terms.Network).Facilitator
		c.FacilitatorURL = first
	}
	c.credentials, c.secret = e.credentials(ofPrimary, e.primary)
	c.fallbackCredentials, _ = e.credentials(ofFallback, e.fallback)
	for _, kind := range []string{"_KEY_ID", "_KEY_SECRET", "_TOKEN", "_SECRET_ARN"} {
		switch v := e.text(ofFallback + kind); {
		case v == "":
		case second == "":
			e.fault(ofFallback+kind, "is set, and %s_URL is not", ofFallback)
		case v == e.text(ofPrimary+kind):
			e.fault(ofFallback+kind, "is that of %s: each facilitator has its own credentials", ofPrimary+kind)
		}
	}
	if second != "" && hostAndPath(second) == hostAndPath(first) {
		e.fault(ofFallback+"_URL", "is the facilitator of %s_URL", ofPrimary)
	}
	if c.Paused || c.FacilitatorURL == "" { // a fallback needs a primary facilitator; the template requires the same
		c.FacilitatorURL = ""
		c.FallbackURL = ""
	}
}

// hostAndPath returns the host and the path of a facilitator's URL. The URLs of two
// facilitators must differ in the host or in the path.
func hostAndPath(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return strings.ToLower(u.Host) + strings.TrimRight(u.Path, "/")
}

// credentials returns the credentials of a facilitator, and the secret that contains them. The
// secret is nil if the variables themselves contain the credentials, or if there are none.
// Unreadable credentials do not stop the service: the free documents work, paid calls return
// facilitator_misconfigured, and /ready reports the error. Contradictory credentials are a
// fault of the configuration.
func (e *environment) credentials(of string, v facilitatorValues) (facilitator.Credentials, *secret) {
	hasSecret := e.text(of+"_SECRET_ARN") != ""
	hasKey := v.keyID != "" || v.keySecret != ""
	if (v.keyID == "") != (v.keySecret == "") {
		e.fault(of+"_KEY_ID", "and %s_KEY_SECRET go together", of)
	}
	if v.token != "" && hasKey {
		e.fault(of+"_TOKEN", "and %s_KEY_ID are both set: choose one", of)
	}
	if hasSecret && (hasKey || v.token != "") {
		e.fault(of+"_SECRET_ARN", "and other credentials of the facilitator are both set: choose one")
	}
	switch {
	case hasSecret:
		s := e.secret(v.secret)
		return facilitator.Lazy(func(ctx context.Context, now time.Time) (facilitator.Credentials, error) {
			return fromSecret(ctx, s, now, secretCredentials)
		}, s.failed), s
	case v.token != "":
		return fixed(facilitator.Bearer(v.token)), nil
	case v.keyID != "" && v.keySecret != "":
		return fixed(facilitator.CDP(v.keyID, v.keySecret)), nil
	}
	return facilitator.Credentials{}, nil
}

// secret returns the secret with the given name. The secret is read later, when one of its
// values is needed.
func (e *environment) secret(name secretName) *secret {
	keys := e.awsKeys()
	endpoint := e.secretsEndpoint
	return &secret{load: func(ctx context.Context) ([]byte, error) {
		return fetchSecret(ctx, name, keys, endpoint, secretTimeout/secretAttempts)
	}}
}

// fixed returns credentials that never change. If err is not nil, every use of the credentials
// returns err.
func fixed(c facilitator.Credentials, err error) facilitator.Credentials {
	return facilitator.Lazy(func(context.Context, time.Time) (facilitator.Credentials, error) { return c, err }, nil)
}

// chain sets which nodes of the chain are used: the nodes that RPC_URL names. If RPC_URL is
// empty, the nodes in the facilitator's secret are used, or else the default node. There is no
// default node if defaultNode is empty. If defaultNode is noNodes and RPC_URL is empty, no node
// is used.
func (e *environment) chain(c *Config, defaultNode string) {
	const name = "RPC_URL"
	unnamed := e.text(name) == ""
	switch {
	case e.faulty[name], e.nodes.none, unnamed && defaultNode == noNodes:
	case e.nodes.ofSecret && c.secret == nil:
		e.fault(name, "is %s, and %s_SECRET_ARN is not set", secretNodes, ofPrimary)
	case e.nodes.ofSecret:
		c.nodesInSecret = true
	case !unnamed:
		c.Nodes = e.nodes.urls
	case defaultNode == "" && c.secret == nil:
		e.fault(name, "is not set, and no public node of %s is known: name one, or none", c.Terms.Network)
	default:
		c.nodesInSecret = c.secret != nil
		if defaultNode != "" {
			c.Nodes = []string{defaultNode}
		}
	}
}

// hasChain reports whether nodes of the chain are used.
func (c Config) hasChain() bool { return len(c.Nodes) > 0 || c.nodesInSecret }

// chainView returns a client that reads the chain, or nil if no nodes are used.
func (c Config) chainView(now func() time.Time) (*chain.Nodes, error) {
	if !c.hasChain() {
		return nil, nil
	}
	n := chain.Config{
		URLs:      c.Nodes,
		Network:   c.Terms.Network,
		Asset:     c.Terms.Asset,
		Now:       now,
		UserAgent: c.userAgent(),
	}
	if c.nodesInSecret {
		n.Read = c.nodesOfSecret
	}
	return chain.New(n)
}

// nodesOfSecret returns the nodes in the secret, which may have none. The argument failed is
// true if none of the nodes that were returned before has worked. The secret is then read again,
// but at most once a minute.
func (c Config) nodesOfSecret(ctx context.Context, now time.Time, failed bool) ([]string, error) {
	if failed {
		c.secret.failed()
	}
	return fromSecret(ctx, c.secret, now, secretNodeURLs)
}

// evidence returns view as the interfaces of the payment layer. If view is nil, both results
// are nil interfaces. A direct conversion of a nil pointer would make interfaces that are not
// nil.
func evidence(view *chain.Nodes) (x402.Evidence, reconcile.Scanner) {
	if view == nil {
		return nil, nil
	}
	return view, view
}

// facilitators holds the clients of the facilitators and their probes for /ready. A required
// probe checks that at least one facilitator settles the service's kind of payment on the
// network. If there are two facilitators, each of them also has an optional probe, which warns
// if that facilitator does not settle such payments.
type facilitators struct {
	settler x402.Settler
	probes  []service.Probe
}

func (c Config) facilitators(p service.Platform) (facilitators, error) {
	first, err := c.facilitatorClient(p, c.FacilitatorURL, c.credentials)
	if err != nil {
		return facilitators{}, err
	}
	if c.FallbackURL == "" {
		probe := service.Probe{Name: service.ProbeFacilitator, Check: c.supports(first)}
		return facilitators{settler: x402.One(first), probes: []service.Probe{probe}}, nil
	}
	second, err := c.facilitatorClient(p, c.FallbackURL, c.fallbackCredentials)
	if err != nil {
		return facilitators{}, err
	}
	either := func(ctx context.Context) error {
		err := c.supports(first)(ctx)
		if err != nil && c.supports(second)(ctx) == nil {
			return nil
		}
		return err
	}
	return facilitators{
		settler: &fallback.Pair{
			Primary: fallback.Member{Facilitator: first, Name: first.Name()},
			Second:  fallback.Member{Facilitator: second, Name: second.Name()},
			Now:     p.Now,
		},
		probes: []service.Probe{
			{Name: "facilitator_primary", Optional: true, Check: c.supports(first)},
			{Name: "facilitator_fallback", Optional: true, Check: c.supports(second)},
			{Name: service.ProbeFacilitator, Check: either},
		},
	}, nil
}

// facilitatorClient returns the client of one facilitator.
func (c Config) facilitatorClient(p service.Platform, url string, credentials facilitator.Credentials) (*facilitator.Client, error) {
	return facilitator.New(facilitator.Config{
		URL:         url,
		Credentials: credentials,
		Now:         p.Now,
		UserAgent:   c.userAgent(),
	})
}

// supports returns a check that a facilitator settles the service's kind of payment on the
// network.
func (c Config) supports(client *facilitator.Client) func(context.Context) error {
	return func(ctx context.Context) error { return client.Supported(ctx, c.Terms.Network) }
}
