package discovery

import (
	"crypto/ed25519"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Site describes one deployment to its documents.
type Site struct {
	// Origin is scheme and host, such as https://api.example.com, without a
	// slash at the end. OpenAPI readers look for /openapi.json at the root of
	// the host, so it has no path.
	Origin string
	// Terms are the payee, the network and the asset of every offer.
	Terms x402.Terms
	// MostKept is how large an answer may be to be kept, in bytes of its compressed body; 0
	// is ledger.LeastKept.
	MostKept int
	// DuplicateWindow is how long after an answer given over HTTP another payment
	// for the same request, without a purchase key, counts as the same purchase; 0
	// is off. After an answer given over MCP it is twice as long.
	DuplicateWindow time.Duration
	// OwnershipProofs are signatures of the bare origin by the payee's key.
	OwnershipProofs []string
	// ReceiptKeys are the public keys of offers and receipts. Without one there is no DID
	// document.
	ReceiptKeys []ed25519.PublicKey
	// PlayMoney says that the facilitator moves no real money.
	PlayMoney bool
	// PlayWallet is a script that announces a wallet to the page of an operation, which signs
	// in the visitor's place. It is empty but where the local runner takes PlayMoney.
	PlayWallet string
	// Caps are the numbers of the limits.
	Caps Caps
	// Contact is an https or mailto URL at which the operator can be reached. Without
	// one there is no security.txt, whose end of validity is computed from Now.
	Contact string
	Now     func() time.Time
	// Claims are the operator's files below /.well-known/, by name.
	Claims map[string]string
}

// iconURL is the icon that an offer may name, or "". Facilitators drop icons
// that are not https or sit on an IP address or a local name.
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

// networkName is the network in words, with its CAIP-2 name.
func (s Site) networkName() string {
	if short := s.shortNetworkName(); short != s.Terms.Network {
		return short + " (" + s.Terms.Network + ")"
	}
	return s.Terms.Network
}

// shortNetworkName is the network in words, or its CAIP-2 name when it has no
// other.
func (s Site) shortNetworkName() string {
	switch n := x402.Network(s.Terms.Network); {
	case n.Test:
		return n.Name + ", a test network"
	case n.Name != "":
		return n.Name
	}
	return s.Terms.Network
}

// playNote says that the money is play money, or nothing where it is not.
func (s Site) playNote() string {
	if !s.PlayMoney {
		return ""
	}
	return "This server takes play money: any account can pay, and no real money moves."
}

// Caps are the numbers of a deployment's limits. 0 turns a limit off.
type Caps struct {
	// PerMinute are the units that one client may use in a minute. A request without a
	// payment is one unit for each started 16 KB of its answer; one with a payment is
	// Undecided units until it is decided, one afterwards, and Refused units if its payer
	// could cause the outcome.
	PerMinute, Undecided, Refused int
	// Single and Bundle are the paid lookups at once of one tool and one bundle.
	Single, Bundle int
}
