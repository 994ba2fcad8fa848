package x402_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// fixture holds the data that all schedules share. Every synctest bubble begins at the same
// fake time. Therefore an authorization that is signed once is valid in every bubble.
type fixture struct {
	offer, offerAfterDeploy, offerWithID, offerDearer *x402.Offer
	payer                                             string
	// These are the authorizations that clients may send. In the phase with faults, clients
	// send the short-lived ones or, if the schedule has long freezes, the long-lived ones. In
	// the phase without faults, the patient client sends those in patientClientAuths. Some of
	// the windows in patientClientAuths end every half day, until day 8 and again from day 36
	// to day 46.
	shortLivedAuths, longLivedAuths, patientClientAuths []signedAuthorization
}

type signedAuthorization struct {
	key, nonce, tx string
	digest         string // digest of the authorization in hexadecimal, as the ledger keeps it
	validBefore    time.Time
	payload        x402.ExactPayload // without a signature
	forms          map[form]paymentHeader
}

type form struct {
	signedByKey bool // the payer's key signs; otherwise a contract wallet signs
	attachment  attachment
}

// attachment says what a payment header contains besides the authorization.
type attachment int

const (
	withToken           attachment = iota // a signature, and the retry token of the payment's challenge
	withNothing                           // only a signature, as in a header from chain data or from an old client
	withStrangersToken                    // a signature, and the retry token of another challenge
	withExtensionID                       // a signature, the retry token and a payment-identifier
	withForgedSignature                   // a signature that the payer did not make, and no token
)

type paymentHeader struct {
	encoded   string // the value of the PAYMENT-SIGNATURE header
	signature string // the signature as a facilitator gets it: 0x and hexadecimal digits
	digest    string // digest of the signature, as the ledger keeps it
	token     string // digest of the retry token; empty if the header has no token
	forged    bool   // the payer did not make the signature
}

const (
	forgedByte = 9
	// halfDay is the time between the ends of two successive windows in
	// fixture.patientClientAuths.
	halfDay = 12 * time.Hour
)

func isForged(signature string) bool {
	return strings.HasPrefix(signature, "0x"+hex.EncodeToString(bytes.Repeat([]byte{forgedByte}, 8)))
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{}
	synctest.Test(t, func(t *testing.T) {
		wallet := must(x402test.NewWallet(rand.Reader))
		f.payer = wallet.Address().String()
		f.offer = offer(t, terms(), "5000", "Oslo")
		other := terms() // the terms after a deploy that changes the price, the payee and the extension
		other.PayTo = "0x1111111111111111111111111111111111111111"
		f.offerDearer = offer(t, terms(), "9000", "Oslo")
		f.offerAfterDeploy = offer(t, other, "7000", "Rome")
		required := f.offer.Required("")
		required.Extensions = map[string]json.RawMessage{
			x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false},"schema":{}}`),
		}
		f.offerWithID = must(x402.NewOffer(required))
		begun := time.Now()
		window := x402.MaxTimeoutSeconds * time.Second
		for _, after := range []time.Duration{0, 0, 3 * time.Minute, 8 * time.Minute} {
			f.shortLivedAuths = append(f.shortLivedAuths, f.signAuthorization(wallet, begun.Add(window+after)))
			f.longLivedAuths = append(f.longLivedAuths, f.signAuthorization(wallet, begun.Add(3*time.Hour+after)))
		}
		for _, days := range [][3]int{{0, 8, 8}, {36, 46, 2}} {
			for half := 2*days[0] + 1; half <= 2*days[1]; half++ {
				for range days[2] {
					f.patientClientAuths = append(f.patientClientAuths, f.signAuthorization(wallet, begun.Add(time.Duration(half)*halfDay)))
				}
			}
		}
	})
	return f
}

func (f *fixture) signAuthorization(wallet *x402test.Wallet, until time.Time) signedAuthorization {
	d := must(wallet.Draft(f.offer.Required(""), until.Add(-x402.MaxTimeoutSeconds*time.Second)))
	a := d.Payload.Payload.Authorization
	digest := must(x402test.Digest(a, d.Terms))
	b := signedAuthorization{
		digest: hex.EncodeToString(digest[:]), payload: d.Payload.Payload,
		key:   ledger.Key(terms().Network, strings.ToLower(terms().Asset), strings.ToLower(a.From), a.Nonce),
		nonce: a.Nonce, validBefore: until, forms: map[form]paymentHeader{},
		tx: "0x" + strings.Repeat("c", 8) + a.Nonce[10:],
	}
	bazaar, raw, ownToken := d.Payload.Extensions, wallet.Sign(digest), rand.Text()
	for _, signedByKey := range []bool{true, false} {
		for _, attached := range []attachment{withToken, withNothing, withStrangersToken, withExtensionID, withForgedSignature} {
			d.Payload.Extensions = maps.Clone(bazaar)
			if attached == withExtensionID {
				d.Payload.Extensions = map[string]json.RawMessage{
					x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false,"id":"` + payerPaymentID + `"}}`),
				}
			}
			token := ""
			if attached != withNothing && attached != withForgedSignature {
				if token = ownToken; attached == withStrangersToken {
					token = rand.Text()
				}
				d.Payload.Extensions["retry-token"] = json.RawMessage(`{"info":{"token":"` + token + `"}}`)
				token = digestHex(token)
			}
			signature := raw
			switch {
			case attached == withForgedSignature:
				signature = bytes.Repeat([]byte{forgedByte}, 200)
			case !signedByKey:
				signature = bytes.Repeat([]byte{7}, 200)
			}
			d.Payload.Payload.Signature = "0x" + hex.EncodeToString(signature)
			b.forms[form{signedByKey, attached}] = paymentHeader{
				encoded: must(x402.EncodeHeader(d.Payload)), signature: d.Payload.Payload.Signature,
				digest: digestHex(string(signature)), token: token, forged: attached == withForgedSignature,
			}
		}
	}
	return b
}

const payerPaymentID = "pay_7d5d747be160e280504c099d984bcfe0"
