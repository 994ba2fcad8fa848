package discovery

import (
	"crypto/ed25519"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Site describes one deployment for its documents.
type Site struct {
	// Origin is a scheme and a host, such as https://api.example.com, without a slash at the
	// end. It has no path, because OpenAPI readers look for /openapi.json at the root of the
	// host.
	Origin string
	// Terms are the payee, the network and the asset of every offer.
	Terms x402.Terms
	// MostKept is the size of the largest answer that the ledger stores, in bytes of the
	// compressed body. 0 means ledger.LeastKept.
	MostKept int
	// DuplicateWindow is a time that begins with an answer over HTTP. During this time,
	// another payment for the same request without a purchase key counts as the same purchase.
	// After an answer over MCP, the time is twice as long. 0 means that another payment is
	// always another purchase.
	DuplicateWindow time.Duration
	// OwnershipProofs are signatures of the text of Origin, made with the payee's key.
	OwnershipProofs []string
	// ReceiptKeys are the public keys that verify offers and receipts. Without a key there is
	// no DID document.
	ReceiptKeys []ed25519.PublicKey
	// PlayMoney reports whether payments are in play money: the facilitator moves no real
	// money.
	PlayMoney bool
	// PlayWallet is a script for the page of an operation. The script announces a wallet that
	// signs for the visitor. Only the local runner sets it, and only with PlayMoney.
	PlayWallet string
	// Caps are the limits of the deployment.
	Caps Caps
	// Contact is an https or mailto URL at which the operator can be reached. If it is empty,
	// there is no security.txt. Now is the clock for the expiry date in security.txt.
	Contact string
	Now     func() time.Time
	// Claims are the contents of the operator's files below /.well-known/, by file name.
	Claims map[string]string
}

// iconURL returns the URL of the icon for offers. Facilitators drop an icon if its URL is not
// https, or if its host is an IP address or a local name. In these cases iconURL returns "".
func (s Site) iconURL() string {
	u, err := url.Parse(s.Origin)
	if err != nil || u.Scheme != "https" {
		return ""
	}
	host := u.Hostname()
	if net.ParseIP(host) != nil || !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost") {
		return ""
	}
	return s.Origin + pathFavicon
}

// networkName returns the name of the network with its CAIP-2 id in parentheses, or only the
// id if the network has no known name.
func (s Site) networkName() string {
	if short := s.shortNetworkName(); short != s.Terms.Network {
		return short + " (" + s.Terms.Network + ")"
	}
	return s.Terms.Network
}

// shortNetworkName returns the name of the network, or its CAIP-2 id if the network has no
// known name. To the name of a test network it adds ", a test network".
func (s Site) shortNetworkName() string {
	switch n := x402.Network(s.Terms.Network); {
	case n.Test:
		return n.Name + ", a test network"
	case n.Name != "":
		return n.Name
	}
	return s.Terms.Network
}

// playNote returns a note that the money is play money, or "" if it is real.
func (s Site) playNote() string {
	if !s.PlayMoney {
		return ""
	}
	return "This server takes play money: any account can pay, and no real money moves."
}

// Caps are the limits of a deployment. 0 turns a limit off.
type Caps struct {
	// PerMinute is the number of units that one client may use in a minute. A request without
	// a payment costs one unit for each 16 KB of its answer, rounded up. A request with a
	// payment costs Undecided units until its outcome is decided. After that, it costs Refused
	// units if its payer could have caused the outcome, and otherwise one unit.
	PerMinute, Undecided, Refused int
	// Single is the number of paid lookups that may run at the same time for one operation
	// that is not a bundle. Bundle is the number for one bundle.
	Single, Bundle int
}
