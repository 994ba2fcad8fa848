package judge

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// decimals is the number of decimal places of USDC, which is the token of every known network.
const decimals = 6

// offer is the offer of a seller, in the seller's JSON. Members that this module does not know
// are kept, because a payment must repeat them.
type offer struct {
	resource    json.RawMessage
	extensions  map[string]json.RawMessage
	chosenEntry json.RawMessage // the entry that the payer has chosen from the offer
	terms       x402.Requirements
}

// readOffer reads a PaymentRequired, and chooses the first entry that can be paid on the
// network.
func readOffer(raw []byte, network string) (offer, error) {
	var required struct {
		X402Version int                        `json:"x402Version"`
		Resource    json.RawMessage            `json:"resource"`
		Accepts     []json.RawMessage          `json:"accepts"`
		Extensions  map[string]json.RawMessage `json:"extensions"`
	}
	if err := json.Unmarshal(raw, &required); err != nil {
		return offer{}, fmt.Errorf("its offer is not JSON: %w", err)
	}
	if required.X402Version != x402.Version {
		return offer{}, fmt.Errorf("its offer is of version %d of x402, and not of %d", required.X402Version, x402.Version)
	}
	o := offer{resource: required.Resource, extensions: required.Extensions}
	var others []string
	for _, one := range required.Accepts {
		var terms x402.Requirements
		if err := json.Unmarshal(one, &terms); err != nil {
			continue // an entry of another scheme may not fit into Requirements
		}
		others = append(others, printable(terms.Scheme+" on "+terms.Network))
		if terms.Scheme == x402.Scheme && terms.Network == network && terms.Extra.Name != "" {
			o.chosenEntry, o.terms = one, terms
			return o, nil
		}
	}
	if len(others) == 0 {
		return offer{}, errors.New("its offer has no way to pay")
	}
	return offer{}, fmt.Errorf("its offer has nothing that is paid here: it wants %s, and must want exact on %s, with the name of the token in extra",
		strings.Join(others, ", "), network)
}

// hasIdentifier reports whether the offer declares the extension payment-identifier.
func (o offer) hasIdentifier() bool {
	_, declared := o.extensions[x402.ExtensionIdentifier]
	return declared
}

// price returns the price of the offer in whole tokens, such as 0.01.
func (o offer) price() string {
	atomic, ok := new(big.Int).SetString(o.terms.Amount, 10)
	if !ok {
		return o.terms.Amount
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(decimals), nil)
	text := new(big.Rat).SetFrac(atomic, unit).FloatString(decimals)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// samePrice reports whether two prices in units of the token are equal. The second price may
// begin with a dollar sign.
func samePrice(a, b string) bool {
	x, ok := new(big.Rat).SetString(a)
	y, okay := new(big.Rat).SetString(strings.TrimPrefix(b, "$"))
	return ok && okay && x.Cmp(y) == 0
}

// sign signs a payment for the offer. The payment echoes the seller's terms and extensions. id is
// the value for the extension payment-identifier; empty means none.
func (o offer) sign(p Payer, id string, now time.Time) (payment, error) {
	header, err := p.Pay(x402.PaymentRequired{X402Version: x402.Version, Accepts: []x402.Requirements{o.terms}}, now)
	if err != nil {
		return payment{}, err
	}
	text, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return payment{}, err
	}
	var signed x402.Payload
	if err := json.Unmarshal(text, &signed); err != nil {
		return payment{}, err
	}
	return o.newPayment(signed.Payload, id)
}

// newPayment returns a payment for the offer that contains a given authorization and its
// signature. The chain publishes both, so even a stranger can make such a payment.
func (o offer) newPayment(signed x402.ExactPayload, id string) (payment, error) {
	extensions := map[string]json.RawMessage{}
	for name, one := range o.extensions {
		extensions[name] = one
	}
	if id != "" {
		named, err := withID(extensions[x402.ExtensionIdentifier], id)
		if err != nil {
			return payment{}, err
		}
		extensions[x402.ExtensionIdentifier] = named
	}
	p := payment{payload: signed}
	members := map[string]any{"x402Version": x402.Version, "accepted": o.chosenEntry, "payload": signed}
	if len(o.resource) > 0 {
		members["resource"] = o.resource
	}
	if len(extensions) > 0 {
		members["extensions"] = extensions
	}
	var err error
	p.raw, err = json.Marshal(members)
	return p, err
}

// withID adds a payer's id to the payment-identifier that a seller declares.
func withID(declared json.RawMessage, id string) (json.RawMessage, error) {
	extension := map[string]json.RawMessage{}
	if err := json.Unmarshal(declared, &extension); err != nil {
		return nil, fmt.Errorf("payment-identifier: %w", err)
	}
	info := map[string]json.RawMessage{}
	if len(extension["info"]) > 0 {
		if err := json.Unmarshal(extension["info"], &info); err != nil {
			return nil, fmt.Errorf("payment-identifier: %w", err)
		}
	}
	var err error
	if info["id"], err = json.Marshal(id); err != nil {
		return nil, err
	}
	if extension["info"], err = json.Marshal(info); err != nil {
		return nil, err
	}
	return json.Marshal(extension)
}

// payment is a signed payment in the form in which it is sent.
type payment struct {
	raw     []byte // a PaymentPayload in JSON
	payload x402.ExactPayload
}

// header returns the value of PAYMENT-SIGNATURE.
func (p payment) header() string { return base64.StdEncoding.EncodeToString(p.raw) }

// decodeHeader decodes a header from base64 to JSON.
func decodeHeader(text string) ([]byte, error) {
	if text == "" {
		return nil, errors.New("it is missing")
	}
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err == nil && !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		err = errors.New("it is not a JSON object")
	}
	return raw, err
}
