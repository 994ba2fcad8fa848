package discovery

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestGenerated checks that the embedded tool catalog is the one that package catalog gives.
// With -update, the test writes the catalog to its file.
func TestGenerated(t *testing.T) {
	wantFile(t, "assets/generated/catalog.json", string(encode(buildCatalog(blankSite()))))
}

// TestRelease checks that release.json has the hash of the present tools, instructions and
// registry entry of the MCP server. If one of them has changed, -update writes the new hash
// with the next release number. The test uses blankSite, because a release does not depend on
// the Site.
func TestRelease(t *testing.T) {
	const file = "assets/generated/release.json"
	r := decode[release](must(os.ReadFile(file)))
	s := blankSite()
	entry := slices.DeleteFunc(serverEntryOf(s), func(m member) bool { return m.Key == "version" })
	sum := sha256.Sum256(slices.Concat(Tools(s), []byte(ToolInstructions(s)), encode(entry)))
	if of := hex.EncodeToString(sum[:]); *update && of != r.Of {
		r = release{r.Number + 1, of}
	} else {
		r.Of = of
	}
	wantFile(t, file, string(encode(r))+"\n")
}

// TestCatalogOfAnySite checks that the embedded tool catalog, with the values of a Site, is the
// catalog that package catalog gives for that Site.
func TestCatalogOfAnySite(t *testing.T) {
	for _, s := range []Site{testSite(), {Origin: "http://127.0.0.1:8402", Terms: x402.Terms{Network: "eip155:84532", Asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e"}}} {
		wantEqual(t, s.Origin, string(encode(buildCatalog(s))), string(toolCatalogOf(s)))
	}
}

// buildCatalog makes the tool catalog of a Site from package catalog.
func buildCatalog(s Site) toolCatalog {
	c := toolCatalog{
		Service: catalog.Service, BaseURL: s.Origin, DocsURL: s.Origin + catalog.PathDocs,
		X402Version: x402.Version, Idempotency: idempotencyOf(s.DuplicateWindow), Playbooks: playbooksOf(s),
	}
	for _, op := range catalog.All() {
		c.Tools = append(c.Tools, toolEntry(s, op))
	}
	return c
}

// toolEntry returns an entry of the tool catalog.
func toolEntry(s Site, op catalog.Operation) tool {
	t := tool{
		Path: op.Path, Method: catalog.Method, Description: op.Description, DisplayPrice: op.Price(), Amount: op.Amount,
		Network: s.Terms.Network, Asset: s.Terms.Asset, Scheme: x402.Scheme, X402Version: x402.Version,
		ExampleURL: op.ExampleURL(s.Origin), ExampleResponse: json.RawMessage(op.Response), DocsURL: op.DocsURL(s.Origin),
	}
	if op.Kind == catalog.SmokeTest {
		t.DuplicateWindow = new(int)
	}
	for _, p := range op.Params {
		t.Parameters = append(t.Parameters, parameter{
			Name: p.Name, In: "query", Type: p.Type, Description: p.Description, Required: p.Required,
			Default: jsonValue(p.Type, p.Default), Enum: jsonValues(p.Type, p.Enum), Example: jsonValue(p.Type, p.Example),
		})
	}
	for _, f := range op.Fields {
		t.ResponseFields = append(t.ResponseFields, row{f.Name, f.TypeText(), describeWithFields(f)})
	}
	for _, o := range outcomes(op.AllErrors()) {
		message := o.Message + map[fault.Class]string{fault.Answer: " Charged.", fault.Owed: " Charged; answer owed."}[o.Class]
		t.Errors = append(t.Errors, toolError{Code: string(o.Code), Message: message, Status: o.Status})
	}
	return t
}

// describeWithFields returns a field's description. If the field is an array of objects, it
// adds the names of the objects' fields, as in "A and AAAA {address}; MX {preference,
// exchange}". For a single object it adds no names, because the example answer shows them.
func describeWithFields(f catalog.Field) string {
	text, separator := describe(f), ": "
	for _, item := range f.Items {
		if f.Type != "array" || len(item.Fields) == 0 {
			continue
		}
		text += separator
		if separator = "; "; len(f.Items) > 1 {
			text += item.Description + " "
		}
		for i, field := range item.Fields {
			text += []string{"{", ", "}[min(i, 1)] + field.Name
		}
		text += "}"
	}
	return text
}

// TestPaywallScript checks that the script of the paywall page has nothing that would turn
// text from strangers into markup or code, or would end the page's script element early. The
// script must also contain no sessionStorage, no parseFloat, no template action, and no
// absolute URL except the links to wallets.
func TestPaywallScript(t *testing.T) {
	for _, bad := range []string{
		"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setHTML", "parseFromString",
		"createContextualFragment", "</script", "<!--", "{{", "sessionStorage", "parseFloat", "http://", "https://",
	} {
		if strings.Contains(withoutWallets(readGenerated(paywallAssets, "paywall.js")), bad) {
			t.Errorf("the script has %q", bad)
		}
	}
}

// withoutWallets returns the script without the links that open the page in a wallet's own
// browser. A person follows these links; the page loads nothing from them.
func withoutWallets(script string) string {
	return strings.NewReplacer("https://link.metamask.io/dapp/", "", "https://go.cb-w.com/dapp?cb_url=", "").Replace(script)
}

// publishedKey is the private key that signed the payment in the recorded example. It is the
// smallest possible key. Everybody knows it, so nobody keeps money in its account.
const publishedKey = "0x0000000000000000000000000000000000000000000000000000000000000001"

// recordHandshake makes a paid call and returns the wireExample that is stored as the recording.
// It signs the offer of documentedOrigin with publishedKey, and lets a Gate settle and answer
// the payment.
func recordHandshake(t *testing.T) wireExample {
	t.Helper()
	dns := catalog.DNS()
	terms := x402.USDC()
	terms.PayTo = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	offer := Offer(dns, Site{Origin: documentedOrigin, Terms: terms})
	nonce := sha256.Sum256([]byte("the nonce of the documented example"))
	wallet := must(x402test.WalletFromHex(strings.TrimPrefix(publishedKey, "0x"), bytes.NewReader(nonce[:])))
	signature := must(wallet.Pay(offer.WithToken(shownToken), time.Now()))
	facilitator := must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now}))
	gate := &x402.Gate{
		Ledger:  ledger.New(&ledgertest.Memory{}, time.Now, func() string { return "write" }),
		Settler: x402.One(facilitator.InProcess()),
		Now:     time.Now, Log: slog.New(slog.DiscardHandler),
	}
	outcome := gate.Serve(t.Context(), x402.Request{
		Signature: signature, Offer: must(x402.NewOffer(offer)), Deadline: time.Now().Add(27 * time.Second),
		Prepare: func() (x402.Job, error) {
			return x402.Job{
				Fingerprint: "GET dns", Budget: time.Second, Timeout: lookup.Info(lookup.DNSTimeout),
				Run: func(context.Context) (x402.Reply, error) { return x402.Reply{Body: []byte(dns.Response)}, nil },
			}, nil
		},
		Error: func(f *fault.Error, _ x402.PaymentStatus) []byte { return []byte(f.Public()) },
	})
	if outcome.Status != http.StatusOK || outcome.Receipt == nil || !outcome.Receipt.Success {
		t.Fatalf("the Gate answered %d %v, receipt %+v", outcome.Status, outcome.Fault, outcome.Receipt)
	}
	signed := must(base64.StdEncoding.DecodeString(signature))
	p := decode[x402.Payload](signed)
	return wireExample{
		Signature: headerOf(x402.HeaderSignature, signed), Response: headerOf(x402.HeaderResponse, must(json.Marshal(outcome.Receipt))),
		Origin: p.Resource.URL, Payer: p.Payload.Authorization.From, Payee: terms.PayTo, Key: publishedKey, Signed: time.Now().UTC().Format(time.DateTime),
	}
}

// TestRecordedHandshakeIsReal compares the recorded headers with the headers that the code
// produces, byte by byte. The recorded signature must be the one that the published key makes
// for the present offer, and the recorded receipt must be the one that the Gate returns for
// that signature.
func TestRecordedHandshakeIsReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC))) // fake time, in the synctest bubble
		want := append(must(json.MarshalIndent(recordHandshake(t), "", "  ")), '\n')
		wantFile(t, "assets/handshake.json", string(want)) // after a change, run make update twice: the first run writes this file, and the second writes the documents, which embed it
	})
}

var update = flag.Bool("update", false, "write the golden files")

// testSite returns a Site whose origin is long: 60 characters.
func testSite() Site {
	return Site{
		Origin: "https://facts-about-hosts.an-organisation.some-registry.test",
		Terms: x402.Terms{
			Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
			PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Name: "USD Coin", Version: "2",
		},
		DuplicateWindow: 45 * time.Second,
		ReceiptKeys:     []ed25519.PublicKey{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)}, //nolint:forcetypeassert // Public documents this type
		Contact:         "mailto:operator@some-registry.test",
		Now:             func() time.Time { return time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC) },
		Caps:            Caps{PerMinute: 300, Undecided: 5, Refused: 20, Single: 50, Bundle: 20},
	}
}

// testDocuments returns the documents of testSite. They are made only once, because that takes
// a while.
var testDocuments = sync.OnceValue(func() *Documents { return New(testSite()) })

func documentBody(t *testing.T, d *Documents, path string) []byte {
	t.Helper()
	doc, ok := d.Find(path)
	if !ok {
		t.Fatalf("no document at %s", path)
	}
	return doc.Body()
}

// decode returns the value of a JSON text. It panics if the text is invalid.
func decode[T any](raw []byte) (v T) {
	if err := json.Unmarshal(raw, &v); err != nil {
		panic(err)
	}
	return v
}

// wantEqual fails the test if want and got differ.
func wantEqual(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wantGolden compares a text with a file below testdata/golden. It indents JSON, to make the
// file readable.
func wantGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	if strings.HasSuffix(name, ".json") {
		var b bytes.Buffer
		if err := json.Indent(&b, got, "", "  "); err != nil {
			t.Fatal(err)
		}
		got = append(b.Bytes(), '\n')
	}
	wantFile(t, "testdata/golden/"+name, string(got))
}

// wantFile compares a file with the expected text. With -update it first writes the text to the
// file.
func wantFile(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}
	wantEqual(t, file+", which make update writes", string(must(os.ReadFile(file))), want)
}

// validator compiles a JSON Schema of the 2020-12 draft.
func validator(v any) *jsonschema.Schema { return schemaAt(encode(v), "") }

// schemaAt compiles the schema at a JSON pointer in a document.
func schemaAt(document []byte, pointer string) *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("test:///schema.json", must(jsonschema.UnmarshalJSON(bytes.NewReader(document)))); err != nil {
		panic(err)
	}
	return must(c.Compile("test:///schema.json#" + pointer))
}

// validate returns an error if a JSON text does not conform to a schema.
func validate(s *jsonschema.Schema, raw []byte) error {
	return s.Validate(must(jsonschema.UnmarshalJSON(bytes.NewReader(raw))))
}

// wantTexts checks that a text contains all parts.
func wantTexts(t *testing.T, where, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not say %q", where, part)
		}
	}
}
