package boot

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// keyPair returns the nth receipt key and its public key, in the formats of the settings.
func keyPair(n byte) (private, public string) {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	key := ed25519.NewKeyFromSeed(seed)
	return receipt.FormatKey(key), receipt.FormatPublic(key.Public().(ed25519.PublicKey)) //nolint:forcetypeassert // Public documents this type
}

// TestReceiptConfiguration checks every configuration of receipts. Answers must be signed with
// a published key, or they must be unsigned and /ready must say why. Offers must be signed
// with the same key as soon as that key is in memory. The secret must never be read for an
// offer. If the key is in the secret, /ready must say that offers are unsigned until the first
// answer.
func TestReceiptConfiguration(t *testing.T) {
	t.Parallel()
	one, onePublic := keyPair(1)
	_, twoPublic := keyPair(2)
	delivery := receipt.Statement{
		IssuedAt: 1_800_000_000, Network: "eip155:8453", Payer: "0x00", ResourceURL: "https://api.example.com/v1/tools/dns", ResponseHash: receipt.HashOf([]byte("{}")),
	}
	published := vars{"RECEIPT_PUBLIC_KEYS": onePublic}
	for name, c := range map[string]struct {
		vars   vars
		answer http.HandlerFunc // the answer of Secrets Manager
		signs  bool             // whether answers are signed
		says   string           // the warning of /ready
		fails  bool             // whether Sign returns an error
	}{
		"none":             {says: "RECEIPT_KEY is not set"},
		"a blank":          {vars: vars{"RECEIPT_KEY": " "}, says: "RECEIPT_KEY is not set"},
		"a key":            {vars: vars{"RECEIPT_KEY": one, "RECEIPT_PUBLIC_KEYS": onePublic}, signs: true},
		"the first of two": {vars: vars{"RECEIPT_KEY": one, "RECEIPT_PUBLIC_KEYS": onePublic + ", " + twoPublic}, signs: true},
		"the other of two": {vars: vars{"RECEIPT_KEY": one, "RECEIPT_PUBLIC_KEYS": twoPublic + "," + onePublic}, signs: true},
		"another key":      {vars: vars{"RECEIPT_KEY": one, "RECEIPT_PUBLIC_KEYS": twoPublic}, says: "none of the keys", fails: true},
		"none published":   {vars: vars{"RECEIPT_KEY": one}, says: "none of the keys", fails: true},
		"in the secret":    {vars: published, answer: secretAnswer(`{"token":"t","receipt_key":"` + one + `"}`), signs: true},
		"not in it":        {vars: published, answer: secretAnswer(`{"token":"t"}`), says: "RECEIPT_KEY is not set"},
		"a number in it":   {answer: secretAnswer(`{"receipt_key":17}`), says: "receipt_key", fails: true},
		"no key in it":     {answer: secretAnswer(`{"receipt_key":"hush"}`), says: "receipt_key of the secret must be", fails: true},
		"another in it":    {vars: vars{"RECEIPT_PUBLIC_KEYS": twoPublic}, answer: secretAnswer(`{"receipt_key":"` + one + `"}`), says: "none of the keys", fails: true},
		"no secret":        {answer: reply(503, ""), says: "read the secret", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := vars{}
			v := newVault(t, c.answer)
			if c.answer != nil {
				secret = v.secretVars()
			}
			config := deployedConfig(t, c.vars, secret)
			config.FacilitatorURL = "https://facilitator.example"
			p := componentsOf(config, discardLogger())
			signsOffer := func() bool {
				return must(p.Offering.Receipts.SignOffer(receipt.Offer{ResourceURL: delivery.ResourceURL})) != ""
			}
			checkEqual(t, "an offer is signed at once", signsOffer(), c.signs && c.answer == nil)
			checkEqual(t, "readings of the secret for an offer", v.requests.Load(), 0)
			checkEqual(t, "/ready says that offers wait for an answer", config.warnings()["offers"] != "", c.answer != nil && len(config.ReceiptKeys) > 0)
			jws, err := p.Offering.Receipts.Sign(t.Context(), delivery)
			if (err != nil) != c.fails || (jws != "") != c.signs {
				t.Errorf("signed %q, %v", jws, err)
			}
			checkEqual(t, "an offer is signed after an answer", signsOffer(), c.signs)
			if config.secret != nil {
				checkEqual(t, "the secret is read again", config.secret.hasBadValue.Load(), c.fails && config.secret.doc != nil)
			}
			if strings.Contains(fmt.Sprint(err), "hush") {
				t.Errorf("the error quotes the secret: %v", err)
			}
			if c.signs {
				signedByFirst(t, jws, config.ReceiptKeys)
			}
			checkWarning(t, p.probes, c.says)
		})
	}
}

// signedByFirst verifies a receipt with the published keys, and checks that the first key of
// keyPair signed it.
func signedByFirst(t *testing.T, jws string, published []ed25519.PublicKey) {
	t.Helper()
	_, key := keyPair(1)
	doc := must(receipt.Document("api.example.com", published))
	find := func(kid string) (ed25519.PublicKey, error) { return receipt.FindKey(doc, kid) }
	want := receipt.KeyID("api.example.com", must(receipt.ParsePublic(key)))
	if _, kid, err := receipt.Verify(jws, find); err != nil || kid != want {
		t.Errorf("key %s, %v; want %s", kid, err, want)
	}
}

// checkWarning checks that the probes of receipts are optional, and that each gives a warning
// that contains want. If want is empty, they must give no warning.
func checkWarning(t *testing.T, probes []service.Probe, want string) {
	t.Helper()
	for _, probe := range probes {
		if probe.Name != "receipts" {
			continue
		}
		said := fmt.Sprint(probe.Check(t.Context()))
		if _, public := errors.AsType[service.Public](probe.Check(t.Context())); public != (want != "") {
			t.Errorf("/ready has public words: %t, for %s", public, said)
		}
		if !probe.Optional || !strings.Contains(said, want) || want == "" && said != "<nil>" {
			t.Errorf("/ready says %s, want %q", said, want)
		}
	}
}
