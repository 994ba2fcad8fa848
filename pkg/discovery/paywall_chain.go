package discovery

import (
	"html"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// account is an address, with a link to the explorer where there is one. field is what the authorization calls it: to or token.
func account(s Site, field, address string) string {
	text := html.EscapeString(address)
	what := map[string]string{"to": "payee", "token": "token"}[field]
	out := `<code data-signs="` + field + `">` + text + `</code>`
	if n := x402.Network(s.Terms.Network); n.Explorer != "" {
		path := "/address/"
		if field == "token" {
			path = "/token/"
		}
		out += ` <a href="` + html.EscapeString(n.Explorer+path+address) + `" rel="noopener noreferrer" aria-label="The ` + what + ` on the block explorer">explorer</a>`
	}
	return out
}
