package x402_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
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
	nonces                 []struct{ key, nonce string }
	// Each authorization in its forms: by a key; by a contract wallet; by
	// nobody; and with an identifier.
	own, contract, forged, identified []signed
	until                             time.Time
	// replies are what the facilitator's client makes of every word, known or
	// not, at several statuses.
	replies []x402.Settlement
}

// signed is a PAYMENT-SIGNATURE.
type signed struct {
	header string
	digest string // of the signature, as the ledger keeps it
	pay    int
	forged bool
}

const forgedByte = 9

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
		f.offers(t)
		f.until = time.Now().Add(x402.MaxTimeoutSeconds * time.Second)
		for i := range 2 {
			d, err := wallet.Draft(f.offer.Required(""), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			a := d.Payload.Payload.Authorization
			f.nonces = append(f.nonces, struct{ key, nonce string }{
				ledger.Key(terms().Network, strings.ToLower(terms().Asset), strings.ToLower(a.From), a.Nonce), a.Nonce,
			})
			header, err := wallet.Seal(d)
			if err != nil {
				t.Fatal(err)
			}
			f.own = append(f.own, signed{header: header, pay: i})
			f.contract = append(f.contract, contractSigned(t, d, i, 7))
			f.forged = append(f.forged, contractSigned(t, d, i, forgedByte))
			d.Payload.Extensions = map[string]json.RawMessage{
				x402.ExtensionIdentifier: json.RawMessage(`{"info":{"required":false,"id":"pay_7d5d747be160e280504c099d984bcfe0"}}`),
			}
			f.identified = append(f.identified, contractSigned(t, d, i, 7))
		}
	})
	return f
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

func contractSigned(t *testing.T, d x402test.Draft, pay int, with byte) signed {
	t.Helper()
	signature := bytes.Repeat([]byte{with}, 200)
	d.Payload.Payload.Signature = "0x" + hex.EncodeToString(signature)
	header, err := x402.EncodeHeader(d.Payload)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(signature)
	return signed{header: header, digest: hex.EncodeToString(sum[:]), pay: pay, forged: with == forgedByte}
}
