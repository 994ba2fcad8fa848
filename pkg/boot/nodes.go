package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Words of RPC_URL in the place of nodes.
const (
	noRPC     = "none"   // the chain is not asked
	secretRPC = "secret" // the nodes are those of the secret
)

// rpc reads the chain's nodes, separated by commas. Where none is named, they are
// those of the facilitator's secret if it names any, and fallback, which may be
// empty, otherwise. A fault does not show them: a URL may hold a key.
func (e *environment) rpc(c *Config, fallback string) {
	v := e.text(varRPCURL, "")
	_, unknown := x402.ChainID(c.Terms.Network)
	switch {
	case v == "" && fallback == noRPC, v == noRPC:
		return
	case v == secretRPC && c.secret == nil:
		e.fault(varRPCURL, "is %s, and %s is not set", secretRPC, varFacilitatorSecret)
		return
	case v == "" && fallback == "" && c.secret == nil:
		if unknown == nil {
			e.fault(varRPCURL, "is not set, and no public node of %s is known: name one, or none", c.Terms.Network)
		}
		return
	case v == "" || v == secretRPC:
		if c.secret != nil {
			c.readNodes = c.secret.nodes
		}
		if v == "" {
			c.RPCURL = fallback
		}
		return
	}
	nodes := e.list(varRPCURL)
	for _, node := range nodes {
		if insecure(node) {
			nodes = nil
			break
		}
	}
	if len(nodes) == 0 || len(nodes) > chain.MaxNodes {
		e.fault(varRPCURL, "must be an https URL (http only for this machine), or none, or %s, or up to %d URLs separated by commas", secretRPC, chain.MaxNodes)
	}
	c.RPCURL = strings.Join(nodes, ",")
}

// nodes are those that the secret names; none is no error. The errors do not quote
// what was read. failed says that none of them could answer.
func (s *sharedSecret) nodes(ctx context.Context, now time.Time, failed bool) ([]string, error) {
	if failed {
		s.failed()
	}
	doc, err := s.read(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("read the chain's nodes: %w", err)
	}
	var v struct {
		URLs []string `json:"rpc_urls"`
	}
	if json.Unmarshal(doc, &v) != nil || slices.ContainsFunc(v.URLs, insecure) {
		s.failed()
		return nil, errors.New("rpc_urls of the secret is not a list of https URLs")
	}
	return v.URLs, nil
}

// watched says that the chain is asked.
func (c Config) watched() bool { return c.RPCURL != "" || c.readNodes != nil }

// chain is the view of the chain; nil when there is none.
func (c Config) chain(now func() time.Time) (*chain.Nodes, error) {
	if !c.watched() {
		return nil, nil
	}
	n := chain.NodesConfig{Read: c.readNodes, Config: chain.Config{Network: c.Terms.Network, Asset: c.Terms.Asset, Now: now, UserAgent: c.userAgent()}}
	if c.RPCURL != "" {
		n.URLs = strings.Split(c.RPCURL, ",")
	}
	return chain.NewNodes(n)
}

// watchers are a view of the chain as the payment layer takes it. Without one
// they are nil: an interface that holds a client that is nil would not be.
func watchers(c *chain.Nodes) (x402.Evidence, x402.Scanner) {
	if c == nil {
		return nil, nil
	}
	return c, c
}

// readyKey is a key of the ledger's table that no record has. Only reading it is
// allowed to those who ask whether the ledger answers.
const readyKey = "ready"

// probes ask what the service needs: the ledger by a reading, one of the
// facilitators with its credentials for what it supports, the resolvers, and the chain, without which
// the service answers as well. view is nil where the chain is not asked.
func (c Config) probes(books *ledger.Ledger, settle settlers, resolver *dns.Client, view *chain.Nodes) []service.Probe {
	all := []service.Probe{
		{Name: service.ProbeLedger, Check: func(ctx context.Context) error {
			_, err := books.Fetch(ctx, readyKey)
			return err
		}},
		{Name: service.ProbeFacilitator, Check: func(ctx context.Context) error { return settle.Supported(ctx, c.Terms.Network) }},
		{Name: service.ProbeResolvers, Check: resolver.Probe},
	}
	if view != nil {
		all = append(all, service.Probe{Name: service.ProbeChain, Check: view.Probe, Optional: true})
	}
	return all
}
