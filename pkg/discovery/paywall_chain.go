package discovery

import (
	"html"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// account is an address that can be copied, with a link to the explorer where
// there is one.
func account(s Site, what, address string) string {
	text := html.EscapeString(address)
	out := "<code>" + text + `</code> <button type="button" class="copy" data-copy="` + text + `" aria-label="Copy the address of the ` + what + `" hidden>Copy</button>`
	if n := x402.Network(s.Terms.Network); n.Explorer != "" {
		path := "/address/"
		if what == "token" {
			path = "/token/"
		}
		out += ` <a href="` + html.EscapeString(n.Explorer+path+address) + `" rel="noopener noreferrer" aria-label="The ` + what + ` on the block explorer">explorer</a>`
	}
	return out
}
