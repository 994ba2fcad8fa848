package bill

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	maxWays = 16 // the number of ways to pay that are read from an offer; further ones are ignored
	// MaxValidity is the longest time, in seconds, for which this client lets a signature be
	// valid, even if the offer asks for more.
	MaxValidity = 3600
)

// Offer is the content of a server's PAYMENT-REQUIRED header. A client sends parts of the
// offer back, and the server compares these parts with its offer. These parts may have members
// that this package does not know. Offer therefore keeps each part as the JSON that the server
// wrote.
type Offer struct {
	Version    int               `json:"x402Version"`
	Error      string            `json:"error"`
	Resource   json.RawMessage   `json:"resource"`
	Accepts    []json.RawMessage `json:"accepts"`
	Extensions json.RawMessage   `json:"extensions"`
}

// Way is one of an offer's ways to pay.
type Way struct {
	x402.Requirements
	Value *big.Int        // the amount in atomic units, parsed from Requirements.Amount
	USDC  bool            // the token is the USDC of its network
	raw   json.RawMessage // the JSON of this way to pay, as the server wrote it
}

// ReadOffer parses an offer in JSON.
func ReadOffer(doc []byte) (o Offer, err error) {
	if err := json.Unmarshal(doc, &o); err != nil {
		return o, fmt.Errorf("%s", untrusted.Text(err.Error()))
	}
	if o.Version != x402.Version {
		return o, fmt.Errorf("it is of x402 version %d, and this client speaks version %d", o.Version, x402.Version)
	}
	return o, nil
}

// Choose returns the first way to pay that this client supports.
func (o Offer) Choose() (Way, error) {
	all, err := o.Ways()
	if err != nil {
		return Way{}, err
	}
	return all[0], nil
}

// Ways returns the ways to pay that this client supports, in the order of the offer. It reads
// only the first maxWays ways in the offer. If the client supports none, Ways returns an error
// that says why it does not support the first one, or that the offer lists none.
func (o Offer) Ways() ([]Way, error) {
	var all []Way
	none := errors.New("it lists none")
	for i, raw := range o.Accepts[:min(len(o.Accepts), maxWays)] {
		w, err := parseWay(raw)
		switch {
		case err == nil:
			all = append(all, w)
		case i == 0:
			none = err
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the offer has no payment method that this client supports (scheme exact with EIP-3009): %s", untrusted.Text(none.Error()))
	}
	return all, nil
}

// parseWay parses one way to pay. It returns an error if this client does not support that
// way, or if the way is not complete.
func parseWay(raw json.RawMessage) (w Way, err error) {
	var extension struct {
		Extra struct {
			Method string `json:"assetTransferMethod"`
		} `json:"extra"`
	}
	if err := json.Unmarshal(raw, &w.Requirements); err != nil {
		return w, err
	}
	if err := json.Unmarshal(raw, &extension); err != nil {
		return w, err
	}
	terms := x402.Terms{
		Network: w.Network,
		Asset:   w.Asset,
		PayTo:   w.PayTo,
		Name:    w.Extra.Name,
		Version: w.Extra.Version,
	}
	_, errToken := terms.TokenDomain()
	_, errPayee := x402.ParseAddress(w.PayTo)
	amount, errAmount := x402.ParseUint256(w.Amount)
	switch m := extension.Extra.Method; {
	case w.Scheme != x402.Scheme:
		return w, fmt.Errorf("its scheme is %q", w.Scheme)
	case m != "" && m != "eip3009":
		return w, fmt.Errorf("its assetTransferMethod is %q", m)
	case errToken != nil || errPayee != nil || errAmount != nil || w.MaxTimeoutSeconds <= 0:
		return w, fmt.Errorf("it is not complete: %w", errors.Join(errToken, errPayee, errAmount))
	}
	w.raw = raw
	w.Value = amount
	// IsUSDC compares the address of the token. It ignores the name of the token in the offer,
	// because a service could call any token USDC.
	w.USDC = terms.IsUSDC()
	return w, nil
}

// Decimals is the number of decimals of USDC on every network, and Unit is one USDC in atomic
// units.
const (
	Decimals = 6
	Unit     = 1_000_000
)

// Price returns the amount with its token and network, as text for a person.
func (w Way) Price() string {
	if !w.USDC {
		return fmt.Sprintf("%s atomic units of the token %s on %s", w.Value, untrusted.Text(w.Asset), w.NetworkName())
	}
	return fmt.Sprintf("%s USDC on %s", Dollars(w.Value), w.NetworkName())
}

// NetworkName returns the name of the network.
func (w Way) NetworkName() string {
	return cmp.Or(x402.Network(w.Network).Name, untrusted.Text(w.Network))
}

// Dollars formats an amount of USDC in whole units of the token. The argument is the amount in
// atomic units: 5000 becomes "0.005".
func Dollars(atomic *big.Int) string {
	units := new(big.Rat).SetFrac(atomic, big.NewInt(Unit)).FloatString(Decimals)
	return strings.TrimSuffix(strings.TrimRight(units, "0"), ".")
}

// Signed is the content of a PAYMENT-SIGNATURE header.
type Signed struct {
	Version    int               `json:"x402Version"`
	Resource   json.RawMessage   `json:"resource,omitempty"`
	Accepted   json.RawMessage   `json:"accepted"`
	Payload    x402.ExactPayload `json:"payload"`
	Extensions json.RawMessage   `json:"extensions,omitempty"`
}

// Seal signs a payment in the way w, which is one of the ways of the offer o. It returns the
// content of the PAYMENT-SIGNATURE header. The signature is valid for at most MaxValidity.
func Seal(wallet *x402test.Wallet, o Offer, w Way, now time.Time) (Signed, error) {
	terms := w.Requirements
	terms.MaxTimeoutSeconds = min(terms.MaxTimeoutSeconds, MaxValidity)
	d, err := wallet.Draft(x402.PaymentRequired{Accepts: []x402.Requirements{terms}}, now)
	if err != nil {
		return Signed{}, err
	}
	exact := d.Payload.Payload
	digest, err := x402test.Digest(exact.Authorization, d.Terms)
	if err != nil {
		return Signed{}, err
	}
	exact.Signature = "0x" + hex.EncodeToString(wallet.Sign(digest))
	return Signed{x402.Version, o.Resource, w.raw, exact, o.Extensions}, nil
}
