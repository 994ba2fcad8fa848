package x402

import (
	"encoding/json"
	"maps"
)

// These are the constants of the protocol (x402 specification v2).
const (
	Version     = 2
	Scheme      = "exact"   // the only payment scheme offered
	PaymentFlow = "upfront" // this server settles the payment before it runs the job
	// MaxTimeoutSeconds is how many seconds a client may use an offer. Clients compute
	// validBefore from it.
	MaxTimeoutSeconds = 300

	// ExtensionIdentifier is the extension with which a payer can send a purchase key.
	ExtensionIdentifier = "payment-identifier"
	// ExtensionToken is the extension that carries the retry token of a challenge. A client
	// echoes the token, and a settlement does not publish it. Therefore the token
	// distinguishes the payer's retry from a copy of the payment that somebody has read on the
	// chain.
	ExtensionToken = "retry-token"
	// ExtensionReceipt is the extension for signed offers and receipts. FormatJWS is this
	// extension's name for a compact JWS.
	ExtensionReceipt = "offer-receipt"
	FormatJWS        = "jws"
)

// These are the headers of a payment (x402 version 2), and of the answer that it bought.
const (
	HeaderRequired  = "PAYMENT-REQUIRED"
	HeaderSignature = "PAYMENT-SIGNATURE"
	HeaderResponse  = "PAYMENT-RESPONSE"
	// HeaderKey carries a purchase key (draft-ietf-httpapi-idempotency-key-header).
	HeaderKey = "Idempotency-Key"
	// HeaderReplayed is "true" if the answer is a stored one that is sent again.
	HeaderReplayed = "Idempotent-Replayed"
	// HeaderAge is the age of a stored answer in seconds (RFC 9111 section 5.1).
	HeaderAge = "Age"
	// HeaderOwed lists the parts of a bundle that are still owed.
	HeaderOwed = "Answer-Owed"
)

// PaymentRequired says what must be paid. It is the PAYMENT-REQUIRED header, and part of the
// body of a 402.
type PaymentRequired struct {
	X402Version int                        `json:"x402Version"`
	Error       string                     `json:"error,omitempty"`
	Resource    Resource                   `json:"resource"`
	Accepts     []Requirements             `json:"accepts"`
	Extensions  map[string]json.RawMessage `json:"extensions,omitempty"`
}

// WithToken returns a copy with a retry token added to its extensions. The token must be
// base64url, because it is not escaped.
func (p PaymentRequired) WithToken(token string) PaymentRequired {
	return p.withExtension(ExtensionToken, tokenExtension(token))
}

// withExtension returns a copy with one extension added.
func (p PaymentRequired) withExtension(key string, extension json.RawMessage) PaymentRequired {
	extensions := map[string]json.RawMessage{}
	maps.Copy(extensions, p.Extensions)
	extensions[key] = extension
	p.Extensions = extensions
	return p
}

// Resource describes what is sold.
type Resource struct {
	URL         string   `json:"url"`
	Description string   `json:"description"`
	MimeType    string   `json:"mimeType"`
	ServiceName string   `json:"serviceName,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	IconURL     string   `json:"iconUrl,omitempty"`
}

// Requirements is one way to pay. Amount is in atomic units of the asset.
type Requirements struct {
	Scheme            string `json:"scheme"`
	Network           string `json:"network"` // CAIP-2
	Asset             string `json:"asset"`   // token contract
	Amount            string `json:"amount"`
	PayTo             string `json:"payTo"`
	MaxTimeoutSeconds int    `json:"maxTimeoutSeconds"`
	Extra             Extra  `json:"extra"`
}

// Extra holds the EIP-712 domain of the token, and the payment flow.
type Extra struct {
	Name        string `json:"name"`
	Version     string `json:"version"`
	PaymentFlow string `json:"paymentFlow,omitempty"`
}

// Payload is a signed payment in the form that is sent to the facilitator.
type Payload struct {
	X402Version int                        `json:"x402Version" doc:"2"`
	Resource    *Resource                  `json:"resource,omitempty" doc:"The offer's resource, unchanged; optional"`
	Accepted    json.RawMessage            `json:"accepted" doc:"The entry of accepts that was signed, unchanged"`
	Payload     ExactPayload               `json:"payload"`
	Extensions  map[string]json.RawMessage `json:"extensions,omitempty" doc:"The offer's extensions, unchanged, the retry token among them"`
}

// ExactPayload is the EIP-3009 form of an exact payment on an EVM chain.
type ExactPayload struct {
	Signature     string        `json:"signature" doc:"EIP-712 signature of the authorization, 0x and hexadecimal"`
	Authorization Authorization `json:"authorization"`
}

// Authorization is the message of EIP-3009's transferWithAuthorization. The numbers are
// decimal strings on the wire.
type Authorization struct {
	From        string `json:"from" doc:"Payer"`
	To          string `json:"to" doc:"accepted.payTo"`
	Value       string `json:"value" doc:"accepted.amount"`
	ValidAfter  string `json:"validAfter" doc:"Unix seconds, not in the future; 0 is fine"`
	ValidBefore string `json:"validBefore" doc:"Unix seconds, at least 6 seconds and at most 24 hours ahead; usually now plus maxTimeoutSeconds"`
	Nonce       string `json:"nonce" doc:"32 random bytes, 0x and hexadecimal; one per payment"`
}

// SettleResponse is the PAYMENT-RESPONSE header: the outcome of a settlement.
type SettleResponse struct {
	Success     bool   `json:"success" doc:"Whether the payment settled"`
	ErrorReason string `json:"errorReason,omitempty" doc:"Why the payment did not settle; absent if it did"`
	Transaction string `json:"transaction" doc:"Transaction hash; empty if nothing was broadcast"`
	Network     string `json:"network" doc:"CAIP-2 network of the transaction"`
	Payer       string `json:"payer,omitempty" doc:"Payer, if known"`
	// Extensions carries facts that are not about the settlement itself.
	Extensions ResponseExtensions `json:"extensions,omitzero" doc:"The signed receipt of the answer, when the service has a key for receipts"`
}

// ResponseExtensions holds the extensions of a PAYMENT-RESPONSE: offer-receipt, version 1,
// with the receipt of the delivered answer.
type ResponseExtensions struct {
	OfferReceipt struct {
		Info struct {
			Receipt SignedReceipt `json:"receipt"`
		} `json:"info"`
	} `json:"offer-receipt,omitzero"`
}

// SignedReceipt is a receipt with its signature; see package receipt.
type SignedReceipt struct {
	Format    string `json:"format"`    // FormatJWS
	Signature string `json:"signature"` // a compact JWS
}

// Terms says how all payers of a deployment pay: with which token, on which network, and to
// which account.
type Terms struct {
	Network string // CAIP-2, such as eip155:8453
	Asset   string // token contract
	PayTo   string // receiving account
	Name    string // EIP-712 domain name of the token
	Version string // EIP-712 domain version of the token
}

// Requirements returns the requirements of a payment of the given amount, in atomic units.
func (t Terms) Requirements(amount string) Requirements {
	return Requirements{
		Scheme:            Scheme,
		Network:           t.Network,
		Asset:             t.Asset,
		Amount:            amount,
		PayTo:             t.PayTo,
		MaxTimeoutSeconds: MaxTimeoutSeconds,
		Extra:             Extra{Name: t.Name, Version: t.Version, PaymentFlow: PaymentFlow},
	}
}
