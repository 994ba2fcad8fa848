package x402

import (
	"cmp"
	"fmt"
	"strings"
)

// These are the CAIP-2 names of the known networks. Base is the default.
const (
	Base        = "eip155:8453"
	BaseSepolia = "eip155:84532"
)

// KnownNetwork describes a network: its terms for payments in USDC, and addresses that people,
// wallets and operators use.
type KnownNetwork struct {
	Name       string
	USDC       Terms  // the terms of payments in USDC; the payee is empty
	Explorer   string // the origin of a block explorer
	PublicNode string // the URL of a public JSON-RPC node, run by the operator of the network
	// Facilitator is the base URL of a public facilitator that needs no credentials, or empty
	// if there is none. The x402 project's own clients use it by default.
	Facilitator string
	Test        bool   // whether this is a test network, whose money is worth nothing
	Faucet      string // the URL of a site that gives test money to wallets; empty if Test is false
}

// Networks returns all known networks, the default first.
func Networks() []KnownNetwork {
	return []KnownNetwork{
		{
			Name: "Base",
			USDC: Terms{
				Network: Base,
				Asset:   "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
				Name:    "USD Coin",
				Version: "2",
			},
			Explorer:   "https://basescan.org",
			PublicNode: "https://mainnet.base.org",
		},
		{
			Name: "Base Sepolia",
			USDC: Terms{
				Network: BaseSepolia,
				Asset:   "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
				Name:    "USDC",
				Version: "2",
			},
			Explorer:    "https://sepolia.basescan.org",
			PublicNode:  "https://sepolia.base.org",
			Facilitator: "https://x402.org/facilitator",
			Test:        true,
			Faucet:      "https://faucet.circle.com",
		},
	}
}

// Network returns the known network with this CAIP-2 name, or the zero value.
func Network(id string) KnownNetwork {
	for _, n := range Networks() {
		if n.USDC.Network == id {
			return n
		}
	}
	return KnownNetwork{}
}

// USDC returns the terms of payments in USDC on Base, without a payee. One USDC has 1,000,000
// atomic units.
func USDC() Terms { return Network(Base).USDC }

// IsUSDC reports whether Asset is the USDC contract of the terms' network.
func (t Terms) IsUSDC() bool {
	usdc := Network(t.Network).USDC
	return usdc.Asset != "" && strings.EqualFold(t.Asset, usdc.Asset)
}

// Completed returns the terms with known values in place of empty fields. The default network
// is Base, and the default token is the USDC of the network. For another token, the asset, its
// name and its version must all be given. The error says what is wrong with these three
// fields. The error text begins with a verb, such as "are all needed", because the caller puts
// the names of the three fields before it.
func (t Terms) Completed() (Terms, error) {
	t.Network = cmp.Or(t.Network, Base)
	usdc := Network(t.Network).USDC
	t.Asset = cmp.Or(t.Asset, usdc.Asset)
	if t.IsUSDC() {
		t.Name = cmp.Or(t.Name, usdc.Name)
		t.Version = cmp.Or(t.Version, usdc.Version)
		if t.Name != usdc.Name || t.Version != usdc.Version {
			return t, fmt.Errorf("contradict each other: the USDC of %s has the name %q and the version %q; leave all three empty for it",
				t.Network, usdc.Name, usdc.Version)
		}
		return t, nil
	}
	for _, n := range Networks() {
		if strings.EqualFold(t.Asset, n.USDC.Asset) {
			return t, fmt.Errorf("name the USDC of %s, and the network is %s; leave all three empty for its own USDC",
				n.USDC.Network, t.Network)
		}
	}
	if t.Asset != "" && t.Name != "" && t.Version != "" {
		return t, nil
	}
	if usdc.Asset == "" {
		return t, fmt.Errorf("are all needed on %s, because nothing is known of that network", t.Network)
	}
	return t, fmt.Errorf("are all needed for a token that is not the USDC of %s", t.Network)
}
