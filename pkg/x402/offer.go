package x402

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// MaxOfferHeader is a limit in bytes. The PAYMENT-REQUIRED header, in base64, must be shorter
// than this. A proxy with default settings (nginx, proxy_buffer_size) reads the whole head of a
// response into 4,096 bytes, and answers 502 if the head is longer. The limit leaves 512 of
// these bytes for the status line and the other headers. A signature of the terms does not
// count, because it is left out if the header has no room for it.
const MaxOfferHeader = 3584

// ErrOfferSize says that an offer is too long for its header (MaxOfferHeader).
var ErrOfferSize = errors.New("too long for its header")

// MaxWindow is how far in the future the window of an authorization may end. The record in the
// ledger must be kept until that end, so there must be a limit.
const MaxWindow = 24 * time.Hour

// leastWindow is how much of an authorization's window must be left when the authorization is
// claimed for the first time or sent again. Facilitators refuse a payment with less time.
const leastWindow = 6 * time.Second

// Offer is the price and the terms of one operation. An Offer does not change. Therefore it is
// encoded only once, and the terms that a client echoes can be compared with it. Only the
// retry token differs from challenge to challenge.
type Offer struct {
	required     PaymentRequired
	terms        json.RawMessage // required.Accepts[0] as JSON
	accepted     object          // the same terms as a tree, for comparing
	domain       Domain
	asset, payTo Address
	amount       *big.Int
	// infos maps an extension's key to the info objects that a client may echo: those of this
	// offer and of its siblings (NewOffer). A client need not echo the retry token, which
	// differs in each challenge, or the signature of the terms. Therefore these two are not in
	// infos.
	infos          map[string][]object
	form           Form                       // PAYMENT-REQUIRED with the default reason
	unsignedOffer  *Offer                     // this offer without its signature; nil if this offer is unsigned
	sentExtensions map[string]json.RawMessage // the extensions that are sent to the facilitator with a payment
	// formerOffer is the offer before the last change, or nil. Payments that fit it are still
	// accepted for some time.
	formerOffer *Offer
	formerUntil time.Time // when payments for the former offer stop being accepted; zero if there is none
}

// NewOffer returns an offer. required must have exactly one way to pay. It must have no retry
// token and no signature, because Challenges and Signed add these. siblings are the offers of
// the same operation on other transports. A client may echo the extensions of a sibling
// instead of those of this offer. The error names the term or extension that cannot be read,
// or says that the header is too long.
func NewOffer(required PaymentRequired, siblings ...PaymentRequired) (*Offer, error) {
	if len(required.Accepts) != 1 {
		return nil, fmt.Errorf("an offer has one way to pay, not %d", len(required.Accepts))
	}
	o := &Offer{required: required, infos: map[string][]object{}}
	problems := []error{
		o.parseTerms(required.Accepts[0]),
		o.parseExtensions(required.Extensions),
	}
	for _, sibling := range siblings {
		problems = append(problems, o.parseExtensions(sibling.Extensions))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("offer for %s: %w", required.Resource.URL, err)
	}
	// The extensions are sent to the facilitator, which uses the bazaar extension to list the
	// operation. The payment identifier is not sent, because only the payer and this server
	// use it. If the facilitator got the identifier, it might store results by identifier, and
	// give one payer the result of another.
	o.sentExtensions = maps.Clone(required.Extensions)
	delete(o.sentExtensions, ExtensionIdentifier)
	return o, o.encode()
}

func (o *Offer) parseTerms(r Requirements) error {
	var err error
	o.terms, err = json.Marshal(r)
	if err != nil {
		return err
	}
	o.accepted, err = parseObject(o.terms)
	if err != nil {
		return err
	}
	accepted := section{members: o.accepted, err: &err}
	o.asset = parseMember(accepted, "asset", ParseAddress)
	o.payTo = parseMember(accepted, "payTo", ParseAddress)
	o.amount = parseMember(accepted, "amount", ParseUint256)
	if err != nil {
		return err
	}
	terms := Terms{
		Network: r.Network,
		Asset:   r.Asset,
		Name:    r.Extra.Name,
		Version: r.Extra.Version,
	}
	o.domain, err = terms.TokenDomain()
	return err
}

func (o *Offer) parseExtensions(extensions map[string]json.RawMessage) error {
	for key, raw := range extensions {
		tree, err := parseObject(raw)
		if err != nil {
			return fmt.Errorf("extension %s: %w", key, err)
		}
		info, ok := tree["info"].(object)
		if !ok {
			return fmt.Errorf("extension %s: info must be an object", key)
		}
		o.infos[key] = append(o.infos[key], info)
	}
	return nil
}

// encode prepares the header. If the offer is unsigned, encode also checks the header's size.
func (o *Offer) encode() error {
	url := o.required.Resource.URL
	form, err := NewForm(func(token string) any { return o.required.WithToken(token) })
	if err != nil {
		return fmt.Errorf("offer for %s: %w", url, err)
	}
	o.form = form
	size := len(form.Header(placeholder))
	if size >= MaxOfferHeader && o.unsignedOffer == nil {
		return fmt.Errorf("offer for %s: %w, which would have %d bytes and must stay below %d",
			url, ErrOfferSize, size, MaxOfferHeader)
	}
	return nil
}

// Succeeding returns the offer as the successor of a former offer. Payments that fit the
// former offer are accepted as well, but only before the given time. Challenges show only the
// terms of the new offer.
func (o *Offer) Succeeding(former *Offer, until time.Time) *Offer {
	next := *o
	next.formerOffer = former
	next.formerUntil = until
	return &next
}

// accepts reports whether new payments with the terms r are accepted at the given time.
func (o *Offer) accepts(r Requirements, now time.Time) bool {
	if now.Before(o.formerUntil) && o.formerOffer.accepts(r, now) {
		return true
	}
	offered := o.required.Accepts[0]
	sameToken := r.Network == offered.Network && r.Asset == offered.Asset
	return sameToken && r.Amount == offered.Amount && r.PayTo == offered.PayTo
}

// matchingOffer returns the offer with which a payment is compared. This is the former offer
// if payments for the former offer are still accepted and this payment fits it. Otherwise it
// is o. A payment that fits both offers may be compared with either.
func (o *Offer) matchingOffer(p *Payment, now time.Time) *Offer {
	if now.Before(o.formerUntil) && o.formerOffer.checkCurrent(p, now) == nil {
		return o.formerOffer
	}
	return o
}

// Signed returns the offer with its terms signed (extension offer-receipt, version 1). It
// returns the offer itself if the offer is signed already, if r is nil, or if r has no key in
// memory. The signed terms do not expire, and are the same in every challenge, so one
// signature serves all challenges. The signature does not affect payments. A client may echo
// any signature or none, and no signature is sent to a facilitator.
func (o *Offer) Signed(r Receipts) (*Offer, error) {
	if o.unsignedOffer != nil || r == nil {
		return o, nil
	}
	terms := o.required.Accepts[0]
	jws, err := r.SignOffer(receipt.Offer{
		Amount:      terms.Amount,
		Asset:       terms.Asset,
		Network:     terms.Network,
		PayTo:       terms.PayTo,
		ResourceURL: o.required.Resource.URL,
		Scheme:      terms.Scheme,
	})
	if err != nil {
		return nil, fmt.Errorf("sign the offer for %s: %w", o.required.Resource.URL, err)
	}
	if jws == "" {
		return o, nil
	}
	next := *o
	next.unsignedOffer = o
	next.required = o.required.withExtension(ExtensionReceipt, offerExtension(jws))
	return &next, next.encode()
}

// Unsigned returns the offer without the signature of its terms.
func (o *Offer) Unsigned() *Offer {
	if o.unsignedOffer == nil {
		return o
	}
	return o.unsignedOffer
}

// offerExtension returns the offer-receipt extension of an offer. Its JSON Schema is short,
// because the extension is sent with every challenge and comes back with every payment.
func offerExtension(jws string) json.RawMessage {
	return json.RawMessage(`{"info":{"offers":[{"format":"` + FormatJWS + `","acceptIndex":0,"signature":"` + jws + `"}]},` +
		`"schema":{"type":"object","required":["offers"]}}`)
}

// Challenges returns the possible values of the PAYMENT-REQUIRED header with a retry token
// (NewToken), the longest first. The first value has the given reason and, if the offer is
// signed, the signature of the terms. The next value has no signature. The last value has no
// signature either, and has the default reason. Values that would be equal are returned once.
// The response carries the first value that fits into its header; the body of the response is
// always complete. An empty reason selects the default reason of the offer.
func (o *Offer) Challenges(reason, token string) ([]string, error) {
	forms := []*Offer{o}
	if o.unsignedOffer != nil {
		forms = append(forms, o.unsignedOffer)
	}
	var headers []string
	if reason == "" || reason == o.required.Error {
		for _, form := range forms {
			headers = append(headers, form.form.Header(token))
		}
		return headers, nil
	}
	for _, form := range forms {
		header, err := EncodeHeader(form.Required(reason).WithToken(token))
		if err != nil {
			return nil, err
		}
		headers = append(headers, header)
	}
	return append(headers, o.Unsigned().form.Header(token)), nil
}

// Required returns the wire form of the offer with the given reason and without a retry token.
// An empty reason selects the default reason of the offer.
func (o *Offer) Required(reason string) PaymentRequired {
	required := o.required
	required.Error = cmp.Or(reason, required.Error)
	return required
}

// checkFixed checks the scheme, network and token of a payment. No deployment changes these
// three between two attempts of one payment. The letter case of the token's address does not
// matter.
func (o *Offer) checkFixed(p *Payment) error {
	for _, key := range []string{"scheme", "network"} {
		if o.accepted[key] != p.accepted[key] {
			return mismatch(key, o.accepted[key], p.accepted[key])
		}
	}
	text, _ := p.accepted["asset"].(string)
	asset, err := ParseAddress(text)
	if err != nil || asset != o.asset {
		return mismatch("asset", o.accepted["asset"], p.accepted["asset"])
	}
	return nil
}

// checkCurrent checks what a deployment or the passing of time can change: the other members
// of accepted, the spelling of asset, the payee, the amount, the echo of the extensions, and
// the window. Letter case matters, as it does in the reference servers.
func (o *Offer) checkCurrent(p *Payment, now time.Time) error {
	for _, key := range []string{"asset", "amount", "payTo", "maxTimeoutSeconds"} {
		if o.accepted[key] != p.accepted[key] {
			return mismatch(key, o.accepted[key], p.accepted[key])
		}
	}
	if !contains(o.accepted["extra"], p.accepted["extra"]) {
		return fmt.Errorf("accepted.extra does not match the offer")
	}
	if p.To != o.payTo {
		return fmt.Errorf("authorization.to is %s, the payee is %s", p.To.Checksum(), o.payTo.Checksum())
	}
	if p.Value.Cmp(o.amount) != 0 {
		return fmt.Errorf("authorization.value is %s, the price is %s", p.Value, o.amount)
	}
	if err := o.checkEcho(p); err != nil {
		return err
	}
	return checkWindow(p, now)
}

func mismatch(key string, want, got any) error {
	text, ok := got.(string)
	if !ok {
		return fmt.Errorf("accepted.%s does not match the offer", key)
	}
	return fmt.Errorf("accepted.%s is %s, the offer says %v", key, excerpt(text), want)
}

// checkEcho checks the extensions of a payment. If the client echoes an extension of the
// offer, the echo must contain everything that was advertised. A client may leave extensions
// out, add members to them, and send other extensions.
func (o *Offer) checkEcho(p *Payment) error {
	for key, infos := range o.infos {
		echoed, ok := p.extensions[key]
		if !ok || echoed == nil {
			continue
		}
		tree, ok := echoed.(object)
		if !ok || !containsAny(infos, tree["info"]) {
			return fmt.Errorf("extension_echo_mismatch: extensions.%s was altered", key)
		}
	}
	return nil
}

// containsAny reports whether an echo contains everything that one of the info objects has.
func containsAny(infos []object, echo any) bool {
	for _, info := range infos {
		if contains(info, echo) {
			return true
		}
	}
	return false
}

// checkWindow checks the window of the authorization: the window has begun, enough time is
// left until it ends, and it does not end too far in the future.
func checkWindow(p *Payment, now time.Time) error {
	earliest := now.Add(leastWindow)
	latest := now.Add(MaxWindow)
	problem := ""
	switch {
	case isAfter(p.ValidAfter, now):
		problem = "validAfter is in the future"
	case isBefore(p.ValidBefore, earliest):
		problem = fmt.Sprintf("validBefore is past or less than %d seconds away", leastWindow/time.Second)
	case isAfter(p.ValidBefore, latest):
		problem = fmt.Sprintf("validBefore is more than %d hours away", MaxWindow/time.Hour)
	default:
		return nil
	}
	return fmt.Errorf("authorization.%s by this server's clock, which says %d", problem, now.Unix())
}

// isBefore reports whether a time in Unix seconds, which may be any uint256, is before t.
func isBefore(seconds *big.Int, t time.Time) bool { return seconds.Cmp(big.NewInt(t.Unix())) < 0 }

// isAfter reports whether a time in Unix seconds, which may be any uint256, is after t.
func isAfter(seconds *big.Int, t time.Time) bool { return seconds.Cmp(big.NewInt(t.Unix())) > 0 }

// payload returns a payment in the form that is sent to the facilitator. The result has the
// terms with which the payment is compared, and the description and extensions of the offer.
// Only the authorization and its signature come from the client. Therefore a facilitator that
// lists what is sold never shows a client's text under our name.
func (o *Offer) payload(exact ExactPayload, terms json.RawMessage) Payload {
	resource := o.required.Resource
	return Payload{
		X402Version: Version,
		Resource:    &resource,
		Accepted:    terms,
		Payload:     exact,
		Extensions:  o.sentExtensions,
	}
}

// EncodeHeader returns v in the form of a payment header: JSON in standard base64 with
// padding. It fails if v cannot be marshalled.
func EncodeHeader(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode payment header: %w", err)
	}
	return base64.StdEncoding.EncodeToString(b), nil
}
