package x402

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// MaxOfferHeader is the size, in bytes of base64, that PAYMENT-REQUIRED must stay below.
// A proxy that has not been told otherwise (nginx, proxy_buffer_size) reads the whole head of
// a response into 4,096 bytes, and answers 502 where it is longer: this leaves 512 of them to
// the status line and the other headers. A signature of the terms is not counted, because it
// is left out where there is no room for it.
const MaxOfferHeader = 3584

// ErrOfferSize says that an offer does not fit into its header (MaxOfferHeader).
var ErrOfferSize = errors.New("too long for its header")

// MaxWindow is how far ahead the window of an authorization may end: the ledger must
// outlive it.
const MaxWindow = 24 * time.Hour

// leastWindow is how much of it must be left on a first claim. Facilitators refuse less.
const leastWindow = 6 * time.Second

// Offer is the price and the terms of one operation. It does not change, so
// it is encoded once, and what a client echoes can be compared with it. Only the
// retry token is new in each challenge.
type Offer struct {
	required     PaymentRequired
	terms        json.RawMessage // required.Accepts[0]
	accepted     object          // the same as a tree, to match against
	domain       Domain
	asset, payTo Address
	amount       *big.Int
	// infos are by extension key what may be echoed: the info that this offer
	// advertises, and those of its siblings. Neither the retry token nor a signature is
	// among them: each challenge has another token, and a client need not echo either.
	infos     map[string][]object
	form      Form                       // PAYMENT-REQUIRED with the offer's own reason
	unsigned  *Offer                     // the same without a signature of its terms; nil where it has none
	forwarded map[string]json.RawMessage // the extensions that go to the facilitator with a payment
	// former is the offer before the last change, which can be paid until a time; without
	// one that is zero.
	former *Offer
	until  time.Time
}

// NewOffer returns an offer. required must have exactly one way to pay, and neither a retry
// token nor a signature: Challenges and Signed add them. siblings are the offers of the same
// operation on other transports: an echo of their extensions is accepted, too. The error
// names the term or extension that cannot be read, or says that the header is too long.
func NewOffer(required PaymentRequired, siblings ...PaymentRequired) (*Offer, error) {
	if len(required.Accepts) != 1 {
		return nil, fmt.Errorf("an offer has one way to pay, not %d", len(required.Accepts))
	}
	o := &Offer{required: required, infos: map[string][]object{}}
	err := o.readTerms(required.Accepts[0])
	for _, r := range append([]PaymentRequired{required}, siblings...) {
		err = errors.Join(err, o.readExtensions(r.Extensions))
	}
	if err != nil {
		return nil, fmt.Errorf("offer for %s: %w", required.Resource.URL, err)
	}
	// The facilitator lists the operation by the offer's own bazaar extension.
	// A payment's name is between the payer and this server: a facilitator
	// that keeps results by it would answer one payer with another's.
	o.forwarded = maps.Clone(required.Extensions)
	delete(o.forwarded, ExtensionIdentifier)
	return o, o.encode()
}

func (o *Offer) readTerms(r Requirements) error {
	var err error
	if o.terms, err = json.Marshal(r); err != nil {
		return err
	}
	if o.accepted, err = parseObject(o.terms); err != nil {
		return err
	}
	in := &reader{}
	o.asset = read(in, o.accepted, "", "asset", ParseAddress)
	o.payTo = read(in, o.accepted, "", "payTo", ParseAddress)
	if o.amount = read(in, o.accepted, "", "amount", ParseUint256); in.err != nil {
		return in.err
	}
	o.domain, err = Terms{
		Network: r.Network,
		Asset:   r.Asset,
		Name:    r.Extra.Name,
		Version: r.Extra.Version,
	}.TokenDomain()
	return err
}

func (o *Offer) readExtensions(extensions map[string]json.RawMessage) error {
	for key, raw := range extensions {
		tree, err := parseObject(raw)
		info, ok := tree["info"].(object)
		if err == nil && !ok {
			err = errors.New("info must be an object")
		}
		if err != nil {
			return fmt.Errorf("extension %s: %w", key, err)
		}
		o.infos[key] = append(o.infos[key], info)
	}
	return nil
}

// encode prepares the header.
func (o *Offer) encode() (err error) {
	if o.form, err = NewForm(func(token string) any { return o.required.WithToken(token) }); err != nil {
		return fmt.Errorf("offer for %s: %w", o.required.Resource.URL, err)
	}
	if n := len(o.form.Header(placeholder)); n >= MaxOfferHeader && o.unsigned == nil {
		return fmt.Errorf("offer for %s: %w, which would have %d bytes and must stay below %d", o.required.Resource.URL, ErrOfferSize, n, MaxOfferHeader)
	}
	return nil
}

// Succeeding returns the offer as it stands after a change: until a time, a payment that
// fits the former offer is accepted, too. Challenges ask for what is offered now.
func (o *Offer) Succeeding(former *Offer, until time.Time) *Offer {
	next := *o
	next.former = former
	next.until = until
	return &next
}

// accepts says whether new payments under some terms are accepted now.
func (o *Offer) accepts(r Requirements, now time.Time) bool {
	if now.Before(o.until) && o.former.accepts(r, now) {
		return true
	}
	own := o.required.Accepts[0]
	return r.Network == own.Network && r.Asset == own.Asset && r.Amount == own.Amount && r.PayTo == own.PayTo
}

// of is the offer that a payment is judged by: the former one for a payment that fits it,
// while it is accepted. One that fits both may be judged by either.
func (o *Offer) of(p *Payment, now time.Time) *Offer {
	if now.Before(o.until) && o.former.today(p, now) == nil {
		return o.former
	}
	return o
}

// Signed returns the offer with its terms signed (extension offer-receipt, version 1), or
// the offer itself if it is signed already or while r is nil or has no key in memory. The
// signed terms do not expire and have nothing of a single challenge, so that one signature
// serves all of them. It changes nothing about how a payment is judged: an echo of it is
// not compared, and no facilitator is sent it.
func (o *Offer) Signed(r Receipts) (*Offer, error) {
	if o.unsigned != nil || r == nil {
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
	next.unsigned = o
	next.required = o.required.with(ExtensionReceipt, offerExtension(jws))
	return &next, next.encode()
}

// Unsigned returns the offer without a signature of its terms.
func (o *Offer) Unsigned() *Offer {
	if o.unsigned == nil {
		return o
	}
	return o.unsigned
}

// offerExtension is the extension offer-receipt of an offer. Its JSON Schema is short, because
// it is sent with every challenge and comes back with every payment.
func offerExtension(jws string) json.RawMessage {
	return json.RawMessage(`{"info":{"offers":[{"format":"` + FormatJWS + `","acceptIndex":0,"signature":"` + jws + `"}]},` +
		`"schema":{"type":"object","required":["offers"]}}`)
}

// Challenges returns what the PAYMENT-REQUIRED header can be with a retry token (NewToken),
// from the one that says most to the shortest: with reason in place of the offer's own and
// a signature of the terms, then without the signature, then with the offer's own reason. The
// response has the first that there is room for, and its body says everything. An empty
// reason is the offer's own.
func (o *Offer) Challenges(reason, token string) ([]string, error) {
	own := []string{o.form.Header(token)}
	if o.unsigned != nil {
		own = append(own, o.unsigned.form.Header(token))
	}
	if reason == "" || reason == o.required.Error {
		return own, nil
	}
	var headers []string
	for _, offer := range []*Offer{o, o.unsigned} {
		if offer == nil {
			continue
		}
		header, err := EncodeHeader(offer.Required(reason).WithToken(token))
		if err != nil {
			return nil, err
		}
		headers = append(headers, header)
	}
	return append(headers, own[len(own)-1]), nil
}

// Required returns the offer with a reason, and without a retry token. An empty reason
// keeps the offer's own.
func (o *Offer) Required(reason string) PaymentRequired {
	required := o.required
	required.Error = cmp.Or(reason, required.Error)
	return required
}

// fixed checks scheme, network and token, which no deployment changes between two
// attempts of one payment. The token's address may be in another letter case.
func (o *Offer) fixed(p *Payment) error {
	for _, key := range []string{"scheme", "network"} {
		if o.accepted[key] != p.accepted[key] {
			return mismatch(key, o.accepted[key], p.accepted[key])
		}
	}
	asset, _ := p.accepted["asset"].(string)
	if at, err := ParseAddress(asset); err != nil || at != o.asset {
		return mismatch("asset", o.accepted["asset"], p.accepted["asset"])
	}
	return nil
}

// today checks what a deployment or the passing of time can change: the rest of
// accepted, payee, amount, the echo of the extensions, and the window. Letter case
// counts, as in the reference servers.
func (o *Offer) today(p *Payment, now time.Time) error {
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
	if err := o.echo(p); err != nil {
		return err
	}
	return window(p, now)
}

func mismatch(key string, want, got any) error {
	g, ok := got.(string)
	if !ok {
		return fmt.Errorf("accepted.%s does not match the offer", key)
	}
	return fmt.Errorf("accepted.%s is %s, the offer says %v", key, excerpt(g), want)
}

// echo checks extensions: an echoed extension must contain everything that was
// advertised of it. A client may leave one out, add to one, and send others.
func (o *Offer) echo(p *Payment) error {
	for key, infos := range o.infos {
		echoed, ok := p.extensions[key]
		if !ok || echoed == nil {
			continue
		}
		tree, ok := echoed.(object)
		if !ok || !slices.ContainsFunc(infos, func(info object) bool { return contains(info, tree["info"]) }) {
			return fmt.Errorf("extension_echo_mismatch: extensions.%s was altered", key)
		}
	}
	return nil
}

// window checks when the authorization can execute.
func window(p *Payment, now time.Time) error {
	in := func(d time.Duration) *big.Int { return big.NewInt(now.Add(d).Unix()) }
	wrong := ""
	switch {
	case p.ValidAfter.Cmp(in(0)) > 0:
		wrong = "validAfter is in the future"
	case p.ValidBefore.Cmp(in(leastWindow)) < 0:
		wrong = fmt.Sprintf("validBefore is past or less than %d seconds away", leastWindow/time.Second)
	case p.ValidBefore.Cmp(in(MaxWindow)) > 0:
		wrong = fmt.Sprintf("validBefore is more than %d hours away", MaxWindow/time.Hour)
	default:
		return nil
	}
	return fmt.Errorf("authorization.%s by this server's clock, which says %d", wrong, now.Unix())
}

// payload is a payment as it is sent to the facilitator: the terms that it is judged
// by, the offer's own description and extensions, and from the client only the
// authorization and signature. So a facilitator that lists what is sold never shows a
// client's words under our name.
func (o *Offer) payload(exact ExactPayload, terms json.RawMessage) Payload {
	resource := o.required.Resource
	return Payload{
		X402Version: Version,
		Resource:    &resource,
		Accepted:    terms,
		Payload:     exact,
		Extensions:  o.forwarded,
	}
}

// EncodeHeader returns v as the payment headers have it: JSON in standard base64 with
// padding. It fails when v cannot be marshalled.
func EncodeHeader(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode payment header: %w", err)
	}
	return base64.StdEncoding.EncodeToString(b), nil
}
