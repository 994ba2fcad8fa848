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
	primaryPrefix  = "FACILITATOR"
	fallbackPrefix = "FACILITATOR_FALLBACK"
)

// setFacilitators sets the URLs and the credentials of the facilitators. The second facilitator
// must differ from the first and have different credentials, so that neither facilitator's
// operator gets the credentials for the other facilitator.
func (e *environment) setFacilitators(c *Config) {
	c.FacilitatorURL = e.primary.url
	c.FallbackURL = e.fallback.url
	first := e.text(primaryPrefix + "_URL")
	second := e.text(fallbackPrefix + "_URL")
	if first == "" {
		first = x402.Network(c.Terms.Network).Facilitator
		c.FacilitatorURL = first
	}
	c.credentials, c.secret = e.credentials(primaryPrefix, e.primary)
	c.fallbackCredentials, _ = e.credentials(fallbackPrefix, e.fallback)
	for _, kind := range []string{"_KEY_ID", "_KEY_SECRET", "_TOKEN", "_SECRET_ARN"} {
		switch v := e.text(fallbackPrefix + kind); {
		case v == "":
		case second == "":
			e.addFault(fallbackPrefix+kind, "is set, and %s_URL is not", fallbackPrefix)
		case v == e.text(primaryPrefix+kind):
			e.addFault(fallbackPrefix+kind, "is that of %s: each facilitator has its own credentials", primaryPrefix+kind)
		}
	}
	if second != "" && hostAndPath(second) == hostAndPath(first) {
		e.addFault(fallbackPrefix+"_URL", "is the facilitator of %s_URL", primaryPrefix)
	}
	if c.Paused || c.FacilitatorURL == "" { // without a primary facilitator there is no fallback, and the template allows none
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
func (e *environment) credentials(prefix string, v facilitatorValues) (facilitator.Credentials, *secret) {
	hasSecret := e.text(prefix+"_SECRET_ARN") != ""
	hasKey := v.keyID != "" || v.keySecret != ""
	if (v.keyID == "") != (v.keySecret == "") {
		e.addFault(prefix+"_KEY_ID", "and %s_KEY_SECRET go together", prefix)
	}
	if v.token != "" && hasKey {
		e.addFault(prefix+"_TOKEN", "and %s_KEY_ID are both set: choose one", prefix)
	}
	if hasSecret && (hasKey || v.token != "") {
		e.addFault(prefix+"_SECRET_ARN", "and other credentials of the facilitator are both set: choose one")
	}
	switch {
	case hasSecret:
		s := e.secret(v.secret)
		return facilitator.Lazy(func(ctx context.Context, now time.Time) (facilitator.Credentials, error) {
			return fromSecret(ctx, s, now, secretCredentials)
		}, s.reportBadValue), s
	case v.token != "":
		return fixedCredentials(facilitator.Bearer(v.token)), nil
	case v.keyID != "" && v.keySecret != "":
		return fixedCredentials(facilitator.CDP(v.keyID, v.keySecret)), nil
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

// fixedCredentials returns credentials that never change. If err is not nil, every use of the
// credentials returns err.
func fixedCredentials(c facilitator.Credentials, err error) facilitator.Credentials {
	return facilitator.Lazy(func(context.Context, time.Time) (facilitator.Credentials, error) { return c, err }, nil)
}

// setNodes sets which nodes of the chain are used. RPC_URL can be a list of nodes, wordNone
// for no node, or wordSecret for the nodes in the facilitator's secret. If RPC_URL is empty,
// defaultNode decides. If defaultNode is wordNone, no node is used. Otherwise the nodes in the
// facilitator's secret are used, and defaultNode if the secret names none. If there is no such
// secret and defaultNode is "", an empty RPC_URL is a fault.
func (e *environment) setNodes(c *Config, defaultNode string) {
	const name = "RPC_URL"
	isEmpty := e.text(name) == ""
	switch {
	case e.hasFault[name], e.nodes.noneWanted, isEmpty && defaultNode == wordNone:
	case e.nodes.inSecret && c.secret == nil:
		e.addFault(name, "is %s, and %s_SECRET_ARN is not set", wordSecret, primaryPrefix)
	case e.nodes.inSecret:
		c.nodesInSecret = true
	case !isEmpty:
		c.Nodes = e.nodes.urls
	case defaultNode == "" && c.secret == nil:
		e.addFault(name, "is not set, and no public node of %s is known: name one, or none", c.Terms.Network)
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
		c.secret.reportBadValue()
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
		probe := service.Probe{Name: service.ProbeFacilitator, Check: c.supportCheck(first)}
		return facilitators{settler: x402.One(first), probes: []service.Probe{probe}}, nil
	}
	second, err := c.facilitatorClient(p, c.FallbackURL, c.fallbackCredentials)
	if err != nil {
		return facilitators{}, err
	}
	either := func(ctx context.Context) error {
		err := c.supportCheck(first)(ctx)
		if err != nil && c.supportCheck(second)(ctx) == nil {
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
			{Name: "facilitator_primary", Optional: true, Check: c.supportCheck(first)},
			{Name: "facilitator_fallback", Optional: true, Check: c.supportCheck(second)},
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

// supportCheck returns a check that a facilitator settles the service's kind of payment on the
// network.
func (c Config) supportCheck(client *facilitator.Client) func(context.Context) error {
	return func(ctx context.Context) error { return client.Supported(ctx, c.Terms.Network) }
}
