package service_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// TestSampleIsWhatIsSent checks that the 402 in the documentation has the size and the content
// of a real one. Only the token and the signature may differ. The test uses host names of
// several lengths, and a service with and without a key for receipts.
func TestSampleIsWhatIsSent(t *testing.T) {
	t.Parallel()
	for _, length := range []int{14, 40, 64, 200} {
		for _, signed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d characters, signed: %v", length, signed), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, func(p *parts) {
					p.Origin = func(*http.Request) string { return "https://" + hostOf(length) }
					public, private, _ := ed25519.GenerateKey(rand.Reader) // never fails
					if signed {
						p.ReceiptKeys = []ed25519.PublicKey{public}
						p.Receipts = signer{testbed.Must(receipt.NewSigner(private, p.ReceiptKeys))}
					}
				})
				shown := sectionTexts(s.send(http.MethodGet, catalog.PathDocs, "").Body)
				sent := s.send(http.MethodGet, catalog.DNS().ExampleURL(""), "")
				header := sent.Header.Get(x402.HeaderRequired)
				raw := testbed.Must(base64.StdEncoding.DecodeString(header))
				asSent := shown[fmt.Sprintf("%s as sent, %d bytes", x402.HeaderRequired, len(header))]
				checkEqual(t, "the header as sent", withoutSignature(testbed.Must(base64.StdEncoding.DecodeString(asSent))), withoutSignature(raw))
				checkEqual(t, "the header, decoded", withoutSignature([]byte(shown[x402.HeaderRequired+", decoded"])), withoutSignature(raw))
				body := shown["The body of the 402"]
				checkEqual(t, "the body", withoutSignature([]byte(body)), withoutSignature(sent.Body))
				checkEqual(t, "the body is signed", strings.Contains(body, x402.ExtensionReceipt), signed)
			})
		}
	}
}

// sectionTexts returns the texts in the foldable sections of a page. The keys are the
// summaries of the sections.
func sectionTexts(page []byte) map[string]string {
	shown := map[string]string{}
	for n := range testbed.Must(html.Parse(bytes.NewReader(page))).Descendants() {
		if n.Data != "details" || testbed.Attribute(n, "class") != "raw" {
			continue
		}
		parts := map[string]string{}
		for inside := range n.Descendants() {
			parts[inside.Data] = testbed.Text(inside)
		}
		shown[parts["summary"]] = parts["pre"]
	}
	return shown
}

// withoutSignature returns the given JSON in compact form, without the token and the signature
// of the terms.
func withoutSignature(raw []byte) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return err.Error() + ": " + string(raw)
	}
	text := regexp.MustCompile(`"token":"[^"]+"`).ReplaceAllString(b.String(), `"token":""`)
	return regexp.MustCompile(`("signature":"[^".]+\.[^".]+\.)[\w-]+"`).ReplaceAllString(text, `$1"`)
}
