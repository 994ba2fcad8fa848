package simnet

import (
	"slices"

	"github.com/hostfacts/hostfacts/pkg/guard"
	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// redirectHosts are about chains.
func redirectHosts() []host {
	return []host{
		{name: "there", serve: web(to("https://www.example.com/"))},
		{name: "relative", serve: web(paths(map[string]string{
			"/": status(301, "Location: a/b?x=1#frag"), "/a/b?x=1": status(308, "Location: ../c"), "/c": status(200),
		}))},
		{name: "hops5", serve: web(chain(5))},
	}
}

// redirectRows are the codes of resolve-redirect, and the fields of spec §2.5. Each stop
// reason has its row in package redirect.
func redirectRows() []row {
	trace := asks("resolve-redirect")
	return slices.Concat([]row{
		trace("example.com", want{"stop_reason": nil, "hop_count": 1, "hops.0.status": 200, "hops.0.location": nil, "final_url": "https://example.com/"}),
		trace("there", want{
			"start_url": "https://there.example.com/", "final_url": "https://www.example.com/", "hop_count": 2, "truncated": false, "stop_reason": nil,
			"hops.0.index": 0, "hops.0.method": "HEAD", "hops.0.status": 302, "hops.0.location": "https://www.example.com/", "hops.1.peer_ip": starts("93.184."),
		}),
		trace("relative", want{"final_url": "https://relative.example.com/c", "hop_count": 3, "hops.1.url": "https://relative.example.com/a/b?x=1"}),
		trace("hops5", want{"hop_count": 5, "truncated": true, "stop_reason": "max_hops"}),
		trace("gone", fails(lookup.NXDomain)),
		trace("closed", fails(lookup.ConnectFailed)),
		trace("loopback", fails(lookup.BlockedAddress)),
	},
		alike("resolve-redirect", fails(lookup.HandshakeFailed), "alert"),
		alike("resolve-redirect", fails(lookup.HTTPFailed), "hangup", "endless"),
		alike("resolve-redirect", fails(lookup.RedirectTimeout), "quiet"),
		alike("resolve-redirect", fails(lookup.RedirectTimeout, guard.Unresolved), "refused"),
	)
}
