package discovery

import "html"

// chain is what a person and a wallet need to know about a network.
type chain struct {
	name     string
	explorer string // of transactions and accounts
	rpc      string // public node, for a wallet that does not know the chain
}

// chainOf is empty for a network that we know nothing about: the page then
// shows its CAIP-2 name and links to no explorer.
func chainOf(network string) chain {
	switch network {
	case "eip155:8453":
		return chain{"Base", "https://basescan.org", "https://mainnet.base.org"}
	case "eip155:84532":
		return chain{"Base Sepolia", "https://sepolia.basescan.org", "https://sepolia.base.org"}
	}
	return chain{}
}

// account is an address that can be copied, with a link to the explorer where
// there is one.
func account(s Site, what, address string) string {
	text := html.EscapeString(address)
	out := "<code>" + text + `</code> <button type="button" class="copy" data-copy="` + text + `" aria-label="Copy the address of the ` + what + `" hidden>Copy</button>`
	if c := chainOf(s.Terms.Network); c.explorer != "" {
		path := "/address/"
		if what == "token" {
			path = "/token/"
		}
		out += ` <a href="` + html.EscapeString(c.explorer+path+address) + `" rel="noopener noreferrer" aria-label="The ` + what + ` on the block explorer">explorer</a>`
	}
	return out
}
