package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	maxWays     = 16   // of an offer that are looked at
	maxValidity = 3600 // seconds for which a signature holds, whatever the offer says
)

// offer is a PAYMENT-REQUIRED. What a client echoes stays as the server wrote it:
// servers compare it, and may have further members.
type offer struct {
	Version    int               `json:"x402Version"`
	Error      string            `json:"error"`
	Resource   json.RawMessage   `json:"resource"`
	Accepts    []json.RawMessage `json:"accepts"`
	Extensions json.RawMessage   `json:"extensions"`
}

// way is one way to pay of an offer.
type way struct {
	x402.Requirements
	raw    json.RawMessage
	amount *big.Int
	usdc   bool
}

// offered asks for the price without paying, and chooses a way to pay it.
func (p *payer) offered(ctx context.Context) (offer, way, error) {
	limited, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	r, err := p.client.Get(limited, p.url.String(), "")
	if err != nil {
		return offer{}, way{}, unreachable(p.url, err)
	}
	if r.Status != http.StatusPaymentRequired {
		return offer{}, way{}, notForSale(p.url, r)
	}
	header := r.Header.Get(x402.HeaderRequired)
	if header == "" {
		return offer{}, way{}, explain("%s asks for a payment, but not by x402 version %d: its 402 has no %s header", p.url, x402.Version, x402.HeaderRequired)
	}
	o, err := readOffer(header)
	if err != nil {
		return o, way{}, err
	}
	w, err := o.choose()
	return o, w, err
}

// readOffer decodes a PAYMENT-REQUIRED header.
func readOffer(header string) (o offer, err error) {
	raw, err := base64.StdEncoding.DecodeString(header)
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	switch {
	case err != nil:
		return o, explain("%s: %s", x402.HeaderRequired, err)
	case o.Version != x402.Version:
		return o, explain("%s is of x402 version %d, and this client speaks version %d", x402.HeaderRequired, o.Version, x402.Version)
	}
	return o, nil
}

// choose returns the first way to pay that this client knows.
func (o offer) choose() (way, error) {
	none := errors.New("it lists none")
	for i, raw := range o.Accepts[:min(len(o.Accepts), maxWays)] {
		w, err := readWay(raw)
		if err == nil {
			return w, nil
		}
		if i == 0 {
			none = err
		}
	}
	return way{}, explain("the offer has no way to pay that this client knows, which is the scheme exact with EIP-3009: %s", none)
}

// readWay reads one way to pay.
func readWay(raw json.RawMessage) (w way, err error) {
	var method struct {
		Extra struct {
			Method string `json:"assetTransferMethod"`
		} `json:"extra"`
	}
	if err := errors.Join(json.Unmarshal(raw, &w.Requirements), json.Unmarshal(raw, &method)); err != nil {
		return w, err
	}
	terms := x402.Terms{Network: w.Network, Asset: w.Asset, PayTo: w.PayTo, Name: w.Extra.Name, Version: w.Extra.Version}
	_, errToken := terms.TokenDomain()
	_, errPayee := x402.ParseAddress(w.PayTo)
	amount, errAmount := x402.ParseUint256(w.Amount)
	switch m := method.Extra.Method; {
	case w.Scheme != x402.Scheme:
		return w, fmt.Errorf("its scheme is %q", w.Scheme)
	case m != "" && m != "eip3009":
		return w, fmt.Errorf("its assetTransferMethod is %q", m)
	case errToken != nil || errPayee != nil || errAmount != nil || w.MaxTimeoutSeconds <= 0:
		return w, fmt.Errorf("it is not complete: %w", errors.Join(errToken, errPayee, errAmount))
	}
	w.raw, w.amount = raw, amount
	// What an offer says about its own token counts for nothing: a service could call
	// anything USDC.
	w.usdc = terms.IsUSDC()
	return w, nil
}

// USDC has six decimals wherever Circle issues it.
const (
	decimals = 6
	unit     = 1_000_000
)

// price is the amount with its token and network, for a person.
func (w way) price() string {
	network := cmp.Or(x402.Network(w.Network).Name, w.Network)
	if !w.usdc {
		return text("%s atomic units of the token %s on %s", w.amount.String(), w.Asset, network)
	}
	units := new(big.Rat).SetFrac(w.amount, big.NewInt(unit)).FloatString(decimals)
	return text("%s USDC on %s", strings.TrimSuffix(strings.TrimRight(units, "0"), "."), network)
}

// signed is a PAYMENT-SIGNATURE.
type signed struct {
	Version    int               `json:"x402Version"`
	Resource   json.RawMessage   `json:"resource,omitempty"`
	Accepted   json.RawMessage   `json:"accepted"`
	Payload    x402.ExactPayload `json:"payload"`
	Extensions json.RawMessage   `json:"extensions,omitempty"`
}

// seal signs a way to pay.
func seal(wallet *x402test.Wallet, o offer, w way, now time.Time) (string, error) {
	terms := w.Requirements
	terms.MaxTimeoutSeconds = min(terms.MaxTimeoutSeconds, maxValidity)
	d, err := wallet.Draft(x402.PaymentRequired{Accepts: []x402.Requirements{terms}}, now)
	if err != nil {
		return "", err
	}
	exact := d.Payload.Payload
	digest, err := x402test.Digest(exact.Authorization, d.Terms)
	if err != nil {
		return "", err
	}
	exact.Signature = "0x" + hex.EncodeToString(wallet.Sign(digest))
	return x402.EncodeHeader(signed{x402.Version, o.Resource, w.raw, exact, o.Extensions})
}
