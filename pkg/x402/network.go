package x402

// USDC are the terms of payments in USDC on Base, without a payee. One USDC has 1,000,000
// atomic units.
func USDC() Terms {
	return Terms{Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", Name: "USD Coin", Version: "2"}
}

// KnownNetwork is what people, wallets and operators need to know about a
// network. Payments need none of it.
type KnownNetwork struct {
	Name     string
	Explorer string // of transactions and accounts
	// PublicNode is the JSON-RPC node that the network's operator runs for
	// everybody.
	PublicNode string
	Test       bool // its money is worth nothing
}

// Network is what is known about a CAIP-2 network; the zero value for one that
// we know nothing about.
func Network(id string) KnownNetwork {
	switch id {
	case "eip155:8453":
		return KnownNetwork{"Base", "https://basescan.org", "https://mainnet.base.org", false}
	case "eip155:84532":
		return KnownNetwork{"Base Sepolia", "https://sepolia.basescan.org", "https://sepolia.base.org", true}
	}
	return KnownNetwork{}
}
