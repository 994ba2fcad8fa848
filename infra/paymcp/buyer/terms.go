package buyer

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// Terms limit what may be paid, to whom and in which token.
type Terms struct {
	// IsPlayMoney means that the key holds no money. Any payee is then allowed.
	IsPlayMoney           bool
	PayTo, Network, Asset string   // the only payee, network and token that are allowed; ignored for play money
	PerCall, PerDay       *big.Int // in atomic units
}

// firstAllowedWay returns the first way to pay that is allowed. If none is allowed, the error
// says why the first one is not.
func (t Terms) firstAllowedWay(o bill.Offer) (bill.Way, error) {
	ways, err := o.Ways()
	if err != nil {
		return bill.Way{}, err
	}
	var first error
	for _, w := range ways {
		err := t.checkWay(w)
		if err == nil {
			return w, nil
		}
		if first == nil {
			first = err
		}
	}
	return bill.Way{}, first
}

// checkWay returns nil if a way to pay is allowed, and otherwise an error that says why not.
func (t Terms) checkWay(w bill.Way) error {
	switch {
	case t.IsPlayMoney && !w.USDC:
		return fmt.Errorf("the server asks for %s, but play money exists only for the USDC of a known network", w.Price())
	case t.IsPlayMoney:
	case w.Network != t.Network:
		return fmt.Errorf("the server asks to be paid on %s, but the allowed network is %s", w.NetworkName(), t.Network)
	case !strings.EqualFold(w.Asset, t.Asset):
		return fmt.Errorf("the server asks for the token %s, but the allowed token is %s", untrusted.Text(w.Asset), t.Asset)
	case !strings.EqualFold(w.PayTo, t.PayTo):
		return fmt.Errorf("the server asks to pay %s, but the allowed payee is %s: the payee has changed", untrusted.Text(w.PayTo), t.PayTo)
	}
	if w.Value.Cmp(t.PerCall) > 0 {
		return fmt.Errorf("this costs %s, and the limit for one call is %s", w.Price(), t.formatIn(t.PerCall, w))
	}
	return nil
}

// Amount formats an amount of the allowed token.
func (t Terms) Amount(atomic *big.Int) string {
	if t.IsPlayMoney || (x402.Terms{Network: t.Network, Asset: t.Asset}).IsUSDC() {
		return bill.Dollars(atomic) + " USDC"
	}
	return atomic.String() + " atomic units of the token " + t.Asset
}

// formatIn formats an amount in the token of a way to pay.
func (t Terms) formatIn(atomic *big.Int, w bill.Way) string {
	w.Value = atomic
	return w.Price()
}

// signPayment signs a payment for w, which is one of the offer's ways to pay.
func signPayment(wallet *x402test.Wallet, o bill.Offer, w bill.Way, now time.Time) (*purse.Payment, error) {
	signed, err := bill.Seal(wallet, o, w, now)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(signed)
	if err != nil {
		return nil, err
	}
	until, err := x402.ParseUint256(signed.Payload.Authorization.ValidBefore)
	if err != nil {
		return nil, err
	}
	return &purse.Payment{
		Payload:     payload,
		Keyed:       takesKey(o),
		Payer:       signed.Payload.Authorization.From,
		PayTo:       w.PayTo,
		Network:     w.Network,
		Asset:       w.Asset,
		Amount:      w.Amount,
		Price:       w.Price(),
		Signed:      now,
		ValidBefore: time.Unix(until.Int64(), 0).UTC(),
	}, nil
}

// nonceOf returns the nonce of a payment's authorization.
func nonceOf(p *purse.Payment) string {
	var signed bill.Signed
	if json.Unmarshal(p.Payload, &signed) != nil {
		return ""
	}
	return signed.Payload.Authorization.Nonce
}

// resourceOf returns the URL of the resource in the payment's offer.
func resourceOf(p *purse.Payment) string {
	var signed struct {
		Resource x402.Resource `json:"resource"`
	}
	if json.Unmarshal(p.Payload, &signed) != nil {
		return ""
	}
	return signed.Resource.URL
}

// takesKey reports whether the server accepts a key that identifies the purchase.
func takesKey(o bill.Offer) bool {
	var extensions map[string]json.RawMessage
	if json.Unmarshal(o.Extensions, &extensions) != nil {
		return false
	}
	return extensions[x402.ExtensionIdentifier] != nil || extensions[x402.ExtensionToken] != nil
}

// offerWithKey returns the offer with the purchase's key in the extension payment-identifier.
// An offer without this extension stays as it is.
func offerWithKey(o bill.Offer, key string) bill.Offer {
	var extensions map[string]json.RawMessage
	var identifier, info map[string]json.RawMessage
	if json.Unmarshal(o.Extensions, &extensions) != nil || json.Unmarshal(extensions[x402.ExtensionIdentifier], &identifier) != nil {
		return o
	}
	if json.Unmarshal(identifier["info"], &info) != nil || info == nil {
		info = map[string]json.RawMessage{}
	}
	info["id"] = untrusted.Compact(key)
	identifier["info"] = untrusted.Compact(info)
	extensions[x402.ExtensionIdentifier] = untrusted.Compact(identifier)
	o.Extensions = untrusted.Compact(extensions)
	return o
}
