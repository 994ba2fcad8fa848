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
	// MostKept is the largest size of an answer that is stored, in bytes of its compressed
	// body; 0 means ledger.LeastKept.
	MostKept int
	// DuplicateWindow is how long, after an answer over HTTP, another payment for the same
	// request without a purchase key counts as the same purchase. 0 means that it never does.
	// After an answer over MCP, the time is twice as long.
	DuplicateWindow time.Duration
	// OwnershipProofs are signatures of the bare origin, made with the payee's key.
	OwnershipProofs []string
	// ReceiptKeys are the public keys that verify offers and receipts. Without a key there is
	// no DID document.
	ReceiptKeys []ed25519.PublicKey
	// PlayMoney means that the facilitator moves no real money.
	PlayMoney bool
	// PlayWallet is a script for the page of an operation. It announces a wallet that signs
	// for the visitor. It is empty except when the local runner uses PlayMoney.
	PlayWallet string
	// Caps are the limits of the deployment.
	Caps Caps
	// Contact is an https or mailto URL at which the operator can be reached. Without it there
	// is no security.txt. The expiry date in security.txt is computed from Now.
	Contact string
	Now     func() time.Time
	// Claims are the operator's files below /.well-known/, by name.
	Claims map[string]string
}

// iconURL returns the URL of the icon for offers. It returns "" if facilitators would drop the
// icon, because its URL is not https, or its host is an IP address or a local name.
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

// networkName returns the name of the network, with its CAIP-2 id.
func (s Site) networkName() string {
	if short := s.shortNetworkName(); short != s.Terms.Network {
		return short + " (" + s.Terms.Network + ")"
	}
	return s.Terms.Network
}

// shortNetworkName returns the name of the network, or its CAIP-2 id if it has no known name.
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
	// PerMinute is the number of units that one client may use in a minute. A request without a
	// payment costs one unit for each 16 KB of its answer, rounded up. A request with a payment
	// costs Undecided units until it is decided. After that it costs one unit, or Refused units
	// if its payer could have caused the outcome.
	PerMinute, Undecided, Refused int
	// Single is the number of paid lookups that may run at the same time for one tool, and
	// Bundle the number for one bundle.
	Single, Bundle int
}
