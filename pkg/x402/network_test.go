package x402

import (
	"encoding/hex"
	"strings"
	"testing"
)

// TestNetworks checks each known network. Payments there must be signed for the EIP-712 domain
// of the USDC contract. The expected domain separators were read from the contracts.
func TestNetworks(t *testing.T) {
	separators := map[string]string{
		Base:        "02fa7265e7c5d81118673727957699e4d68f74cd74b7db77da710fe8a2c7834f",
		BaseSepolia: "71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818",
	}
	for _, n := range Networks() {
		domain, err := n.USDC.TokenDomain()
		if err != nil || hex.EncodeToString(domain[:]) != separators[n.USDC.Network] {
			t.Errorf("%s: domain %x, %v", n.Name, domain, err)
		}
		if err := CheckAddress(n.USDC.Asset, ""); err != nil || n.Name == "" || n.Explorer == "" || n.PublicNode == "" {
			t.Errorf("%+v, %v", n, err)
		}
		if Network(n.USDC.Network) != n || n.Test != (n.USDC.Network != Base) {
			t.Errorf("%s is found as %+v", n.Name, Network(n.USDC.Network))
		}
		delete(separators, n.USDC.Network)
	}
	if len(separators) > 0 || Network("eip155:1") != (KnownNetwork{}) {
		t.Errorf("missing: %v", separators)
	}
}

// TestCompleted checks that a seller need only name a known network, and that nothing is
// guessed about a token other than the network's USDC.
func TestCompleted(t *testing.T) {
	base, sepolia := Network(Base).USDC, Network(BaseSepolia).USDC
	const token = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	lower := base
	lower.Asset = strings.ToLower(base.Asset)
	for _, c := range []struct {
		given, want Terms
		says        string // a part of the error; empty means that there is none
	}{
		{given: Terms{}, want: base},
		{given: Terms{Network: BaseSepolia}, want: sepolia},
		{given: sepolia, want: sepolia},
		{given: Terms{Asset: lower.Asset}, want: lower},
		{given: Terms{Network: BaseSepolia, Version: "2", PayTo: token}, want: Terms{Network: BaseSepolia, Asset: sepolia.Asset, PayTo: token, Name: "USDC", Version: "2"}},
		{given: Terms{Asset: token, Name: "Coin", Version: "1"}, want: Terms{Network: Base, Asset: token, Name: "Coin", Version: "1"}},
		{given: Terms{Network: "eip155:1", Asset: token, Name: "Coin", Version: "1"}, want: Terms{Network: "eip155:1", Asset: token, Name: "Coin", Version: "1"}},
		{given: Terms{Network: BaseSepolia, Name: "USD Coin"}, says: `contradict each other: the USDC of eip155:84532 has the name "USDC" and the version "2"`},
		{given: Terms{Version: "1"}, says: `contradict each other: the USDC of eip155:8453 has the name "USD Coin" and the version "2"`},
		{given: Terms{Network: BaseSepolia, Asset: base.Asset, Name: "USD Coin", Version: "2"}, says: "name the USDC of eip155:8453, and the network is eip155:84532"},
		{given: Terms{Network: "eip155:1", Asset: lower.Asset, Name: "USD Coin", Version: "2"}, says: "name the USDC of eip155:8453, and the network is eip155:1"},
		{given: Terms{Asset: token}, says: "are all needed for a token that is not the USDC of eip155:8453"},
		{given: Terms{Asset: token, Name: "Coin"}, says: "are all needed for a token"},
		{given: Terms{Network: "eip155:1"}, says: "are all needed on eip155:1, because nothing is known"},
		{given: Terms{Network: "eip155:1", Asset: token, Version: "1"}, says: "are all needed on eip155:1"},
	} {
		got, err := c.given.Completed()
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v: %v, want %q", c.given, err, c.says)
			}
			continue
		}
		if got != c.want || err != nil {
			t.Errorf("%+v: %+v, %v", c.given, got, err)
		}
	}
}
