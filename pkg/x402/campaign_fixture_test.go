package x402_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/facilitator"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// fixture is signed once: every bubble begins at the same moment, so the same
// payments serve every schedule, each with a ledger of its own.
type fixture struct {
	offer, deployed, named *x402.Offer
	payer                  string
	// draws are the authorizations that the clients of a storm draw from, and
	// later those that the patient client signs afterwards, each valid for half
	// a day at least before its end.
	draws, later []bill
	// replies are what the facilitator's client makes of every word, known or
	// not, at several statuses.
	replies []x402.Settlement
}

// bill is one authorization in every form in which somebody may send it.
type bill struct {
	key, nonce, tx string
	digest         string // of the authorization, as the ledger keeps it
	until          time.Time
	payload        x402.ExactPayload // without a signature
	forms          map[form]signed
}

// form is how an authorization is signed and sent.
type form struct {
	own  bool // signed by the payer's key, and not by a contract wallet
	with echo
}

// echo is what a header brings beside the authorization and its signature.
type echo int

const (
	withToken  echo = iota // the retry token of its challenge
	withNone               // nothing: what can be read on the chain, or an old client
	withOther              // another token, from a challenge of a stranger's own
	withName               // token and payment-identifier
	withForged             // the token's absence, and a signature that the payer never made
)

// signed is a PAYMENT-SIGNATURE.
type signed struct {
	header    string
	signature string // as a facilitator is sent it
	digest    string // of the signature, as the ledger keeps it
	token     string // the retry token's digest, empty without one
	forged    bool
}

const (
	forgedByte = 9
	// halfDay is between the ends of two authorizations of fixture.later.
	halfDay = 12 * time.Hour
)

// isForged says whether the payer never made this signature.
func isForged(signature string) bool {
	return strings.HasPrefix(signature, "0x"+hex.EncodeToString(bytes.Repeat([]byte{forgedByte}, 8)))
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{replies: replies(t)}
	synctest.Test(t, func(t *testing.T) {
		wallet, err := x402test.NewWallet(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		f.payer = wallet.Address().String()
		f.offers(t)
		begun := time.Now()
		window := x402.MaxTimeoutSeconds * time.Second
		for _, after := range []time.Duration{0, 0, 3 * time.Minute, 8 * time.Minute} {
			f.draws = append(f.draws, f.bill(t, wallet, begun.Add(window+after)))
		}
		for _, days := range [][3]int{{0, 8, 8}, {36, 46, 2}} {
			for half := 2*days[0] + 1; half <= 2*days[1]; half++ {
				for range days[2] {
					f.later = append(f.later, f.bill(t, wallet, begun.Add(time.Duration(half)*halfDay)))
				}
			}
		}
	})
	return f
}

// bill signs one authorization in every form.
func (f *fixture) bill(t *testing.T, wallet *x402test.Wallet, until time.Time) bill {
	t.Helper()
	d, err := wallet.Draft(f.offer.Required(""), until.Add(-x402.MaxTimeoutSeconds*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	a := d.Payload.Payload.Authorization
	digest, err := x402test.Digest(a, d.Terms)
	if err != nil {
		t.Fatal(err)
	}
	b := bill{
		digest: hex.EncodeToString(digest[:]), payload: d.Payload.Payload,
		key:   ledger.Key(terms().Network, strings.ToLower(terms().Asset), strings.ToLower(a.From), a.Nonce),
		nonce: a.Nonce, until: until, forms: map[form]signed{},
		tx: "0x" + strings.Repeat("c", 8) + a.Nonce[10:],
	}
	bazaar, raw := d.Payload.Extensions, wallet.Sign(digest)
	for _, own := range []bool{true, false} {
		for _, with := range []echo{withToken, withNone, withOther, withName, withForged} {
			d.Payload.Extensions = maps.Clone(bazaar)
			token := ""
			switch with {
			case withName:
				d.Payload.Extensions = map[string]json.RawMessage{
					x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false,"id":"` + campaignName + `"}}`),
				}
				fallthrough
			case withToken, withOther:
				token = rand.Text()
				d.Payload.Extensions["retry-token"] = json.RawMessage(`{"info":{"token":"` + token + `"}}`)
				token = digestHex(token)
			case withNone, withForged:
			}
			s := sealed(t, d, raw, own, with == withForged)
			s.token = token
			b.forms[form{own, with}] = s
		}
	}
	return b
}

// campaignName is what a payer calls his purchase who names it by the extension.
const campaignName = "pay_7d5d747be160e280504c099d984bcfe0"

func sealed(t *testing.T, d x402test.Draft, raw []byte, own, forged bool) signed {
	t.Helper()
	switch {
	case forged:
		raw = bytes.Repeat([]byte{forgedByte}, 200)
	case !own:
		raw = bytes.Repeat([]byte{7}, 200)
	}
	d.Payload.Payload.Signature = "0x" + hex.EncodeToString(raw)
	header, err := x402.EncodeHeader(d.Payload)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	return signed{header: header, signature: d.Payload.Payload.Signature, digest: hex.EncodeToString(sum[:]), forged: forged}
}

// replies asks the real client about a facilitator that answers with each word
// of the table, and with some that are in no table, at several statuses.
func replies(t *testing.T) []x402.Settlement {
	words := []string{"settlement_error", "settle_failed", "error", "rpc_error", "relayer_error", "tx_failed", "nonce_too_low", "Oops!", ""}
	for _, r := range facilitator.Reasons() {
		words = append(words, r.Code)
	}
	var status atomic.Int32
	var word atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rw.WriteHeader(int(status.Load()))
		_ = json.NewEncoder(rw).Encode(map[string]any{"success": false, "errorReason": word.Load(), "transaction": "", "network": terms().Network})
	}))
	defer server.Close()
	client, err := facilitator.New(facilitator.Config{URL: server.URL, ResendWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	var all []x402.Settlement
	for _, s := range []int32{200, 400, 401, 402, 403, 404, 429, 500} {
		status.Store(s)
		for _, what := range words {
			word.Store(what)
			all = append(all, client.Settle(t.Context(), x402.Payload{}, terms().Requirements("5000")))
		}
	}
	return all
}

// offers makes what is offered, what is offered after a deploy that changes
// price, payee and extension, and an offer to name payments.
func (f *fixture) offers(t *testing.T) {
	f.offer = offer(t, terms(), "5000", "Oslo")
	other := terms()
	other.PayTo = "0x1111111111111111111111111111111111111111"
	f.deployed = offer(t, other, "7000", "Rome")
	required := f.offer.Required("")
	required.Extensions = map[string]json.RawMessage{
		x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false},"schema":{}}`),
	}
	var err error
	if f.named, err = x402.NewOffer(required); err != nil {
		t.Fatal(err)
	}
}
