package x402http

import (
	"errors"
	"fmt"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
)

// terms returns the network, the asset and the payee of payments. If a setting is empty, terms
// uses the value that is known for the network.
func (c *Config) terms() (x402.Terms, error) {
	t, err := x402.Terms{
		Network: c.Network,
		Asset:   c.Asset,
		PayTo:   c.PayTo,
		Name:    c.AssetName,
		Version: c.AssetVersion,
	}.Completed()
	if _, unknown := x402.ChainID(t.Network); unknown != nil {
		return t, fmt.Errorf("x402http: Network is %q, and must be a CAIP-2 name such as %s", c.Network, x402.Base)
	}
	if err == nil {
		_, err = t.TokenDomain()
	}
	if err != nil {
		return t, fmt.Errorf("x402http: Asset, AssetName and AssetVersion %w", err)
	}
	return t, nil
}

// setEvidence sets Evidence to the public node of the network, unless Evidence or NoNode is
// set. It does not call the node.
func (c *Config) setEvidence(t x402.Terms) error {
	switch {
	case c.NoNode && c.Evidence != nil:
		return errors.New("x402http: Evidence and NoNode are both set: leave NoNode false to have the chain asked, or Evidence nil to have nobody ask it")
	case c.NoNode || c.Evidence != nil:
		return nil
	}
	node := x402.Network(t.Network).PublicNode
	if node == "" {
		return fmt.Errorf("x402http: Evidence is missing, and no public node of %s is known: set Evidence to one of your own (chain.New), or set NoNode, whose documentation says what that costs", t.Network)
	}
	nodes, err := chain.New(chain.Config{
		URLs:      []string{node},
		Network:   t.Network,
		Asset:     t.Asset,
		Now:       c.Now,
		UserAgent: c.Name,
	})
	if err != nil {
		return fmt.Errorf("x402http: Network, Asset: %w", err)
	}
	c.Evidence = nodes
	return nil
}
