package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const (
	maxWays     = 16   // of an offer that are looked at
	maxValidity = 3600 // seconds for which a signature holds, whatever the offer says
)

// offer is a PAYMENT-REQUIRED. What a client echoes stays as the server wrote it:
// servers compare it, and may have members of their own.
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
	token  token
}

// ask asks for the price without paying, and chooses a way to pay it.
func (p *payer) ask(ctx context.Context) (offer, way, error) {
	p.showRequest("")
	limited, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	r, err := p.client.Get(limited, p.url, "")
	if err != nil {
		return offer{}, way{}, unreachable(p.url, err)
	}
	p.show(r)
	if r.Status != http.StatusPaymentRequired {
		return offer{}, way{}, notForSale(p.url, r)
	}
	header := r.Header.Get(x402.HeaderRequired)
	if header == "" {
		return offer{}, way{}, fmt.Errorf("%s asks for a payment, but not by x402 version %d: its 402 has no %s header", printable.Text(p.url), x402.Version, x402.HeaderRequired)
	}
	o, err := readOffer(header)
	if err != nil {
		return o, way{}, said(err)
	}
	w, err := o.choose()
	if err != nil {
		return o, w, said(err)
	}
	return o, w, nil
}

// readOffer decodes a PAYMENT-REQUIRED header.
func readOffer(header string) (o offer, err error) {
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return o, fmt.Errorf("%s: %w", x402.HeaderRequired, err)
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return o, fmt.Errorf("%s: %w", x402.HeaderRequired, err)
	}
	if o.Version != x402.Version {
		return o, fmt.Errorf("%s is of x402 version %d, and this client speaks version %d", x402.HeaderRequired, o.Version, x402.Version)
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
	return way{}, fmt.Errorf("the offer has no way to pay that this client knows, which is the scheme exact with EIP-3009: %w", none)
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
	w.raw = raw
	if w.Scheme != x402.Scheme {
		return w, fmt.Errorf("its scheme is %q", w.Scheme)
	}
	if m := method.Extra.Method; m != "" && m != "eip3009" {
		return w, fmt.Errorf("its assetTransferMethod is %q", m)
	}
	terms := x402.Terms{Network: w.Network, Asset: w.Asset, PayTo: w.PayTo, Name: w.Extra.Name, Version: w.Extra.Version}
	if _, err := terms.TokenDomain(); err != nil {
		return w, err
	}
	if _, err := x402.ParseAddress(w.PayTo); err != nil {
		return w, fmt.Errorf("payTo: %w", err)
	}
	if w.amount, err = atomic(w.Amount); err != nil {
		return w, fmt.Errorf("amount: %w", err)
	}
	if w.MaxTimeoutSeconds <= 0 {
		return w, fmt.Errorf("maxTimeoutSeconds is %d", w.MaxTimeoutSeconds)
	}
	w.token = knownToken(w.Network, w.Asset)
	return w, nil
}

// price is the amount with its token and network, for a person.
func (w way) price() string {
	network := x402.Network(w.Network).Name
	if network == "" {
		network = printable.Text(w.Network)
	}
	if w.token.name == "" {
		return fmt.Sprintf("%s atomic units of the token %s on %s", w.amount, printable.Text(w.Asset), network)
	}
	return fmt.Sprintf("%s %s on %s", w.token.units(w.amount), w.token.name, network)
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
