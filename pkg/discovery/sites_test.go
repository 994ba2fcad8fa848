package discovery

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// TestSites changes one part of a Site in each case, and checks which texts the documents and
// pages then contain and do not contain. They must describe what the deployment has, and
// promise nothing that it has turned off or does not have.
func TestSites(t *testing.T) {
	const docs, llms, full, api, manifest = catalog.PathDocs, catalog.PathLLMs, catalog.PathLLMsFull, catalog.PathOpenAPI, catalog.PathManifest
	const paywall, missing, challenge, tool, script = "paywall", "missing", "challenge", "tool", "script" // names of texts that are not documents
	const banner = `<aside class="play">This server takes play money. No real money moves.</aside>`
	const note = "This server takes play money: any account can pay, and no real money moves."
	type parts = map[string][]string // parts of texts, by the name of the text
	contact := func(contact string) func(*Site) { return func(s *Site) { s.Contact = contact } }
	caps := func(c Caps) func(*Site) { return func(s *Site) { s.Caps = c } }
	network := func(name string) func(*Site) { return func(s *Site) { s.Terms.Network = name } }
	play := func(s *Site) { s.PlayMoney, s.PlayWallet = true, "/* play */ " }
	for name, c := range map[string]struct {
		change    func(*Site)
		says, not parts
	}{
		"a receipt's key":  {func(*Site) {}, parts{docs: {receipt.Path}, llms: {receipt.Path}, full: {receipt.Path}}, nil},
		"no receipt's key": {func(s *Site) { s.ReceiptKeys = nil }, nil, parts{docs: {receipt.Path}, llms: {receipt.Path}, full: {receipt.Path}}},
		"a mailbox": {contact("mailto:op@example.com"), parts{
			api: {`"contact":{"name":"Hostfacts","email":"op@example.com"}`}, full: {"op@example.com"}, llms: {"mailto:op@example.com"},
			docs: {"op@example.com", `<a href="mailto:op@example.com">`},
		}, nil},
		"a page of the operator": {contact("https://example.com/contact"), parts{
			api: {`"contact":{"name":"Hostfacts","url":"https://example.com/contact"}`}, full: {"https://example.com/contact"},
			llms: {"https://example.com/contact"}, docs: {`<a href="https://example.com/contact">`},
		}, nil},
		"no contact": {contact(""), parts{
			api: {`"contact":{"name":"Hostfacts","url":"` + catalog.Homepage + `"}`}, full: {"This deployment lists no contact"},
			docs: {"This deployment lists no contact"},
		}, nil},
		"a proof": {func(s *Site) { s.OwnershipProofs = []string{"0xabc"} }, parts{
			api: {`"ownershipProofs":["0xabc"]`}, manifest: {`"ownershipProofs":["0xabc"]`},
		}, nil},
		"play money": {play, parts{
			paywall: {" ($0.005 of play money)</title>", banner, "in <abbr title=\"USD Coin\">USDC</abbr> on Base<", "data-play='yes'", "data-explorer=''", ">/* play */ "},
			script:  {"if (!page.play) checkBalance("}, docs: {banner, "Any account can pay", "USDC</abbr> on Base (eip155:8453) and", "on this server, without a wallet"},
			missing: {banner}, llms: {note}, full: {note}, api: {note}, tool: {"USDC per call on Base (eip155:8453), x402"},
		}, parts{paywall: {"basescan"}, docs: {"basescan"}}},
		"real money": {func(*Site) {}, nil, parts{paywall: {"play money", "play */"}, docs: {"takes play money", "here without"}, llms: {"play money"}, full: {"takes play money"}, missing: {"play money"}}},
		"a test network": {network("eip155:84532"), parts{
			paywall: {
				"data-chain='Base Sepolia' data-explorer='https://sepolia.basescan.org' data-rpc='https://sepolia.base.org'",
				`href="https://sepolia.basescan.org/address/`,
			}, docs: {"Base Sepolia, a test network (eip155:84532)"},
		}, nil},
		"an unknown network": {network("eip155:31337"), parts{
			paywall: {"data-chain='' data-explorer='' data-rpc=''"}, docs: {"eip155:31337"},
		}, parts{paywall: {"/address/"}, docs: {"(eip155:31337)"}}},
		"a window": {func(*Site) {}, parts{full: {"for 45 seconds after an answer over HTTP (90 over MCP)"}}, nil},
		"no window": {func(s *Site) { s.DuplicateWindow = 0 }, parts{
			full: {"while the first payment is undecided"}, challenge: {`"duplicate_window_seconds":0`, `"replay_seconds":86400`},
		}, parts{
			full: {" seconds after an", "over HTTP (", "a repeat within"}, docs: {" seconds after an", "a repeat within"}, tool: {" seconds after an", "over MCP"},
		}},
		"limits": {caps(Caps{PerMinute: 301, Undecided: 6, Refused: 21, Single: 51, Bundle: 19}), parts{full: {
			"- Request rate: 301 units", "- Concurrency: 51 paid lookups of each tool and 19 of each",
		}}, nil},
		"one limit": {caps(Caps{Bundle: 3}), parts{full: {
			"- Request rate: Not limited here.", "- Concurrency: Any number of paid lookups of each tool and 3 of each bundle",
		}}, nil},
		"no limits": {caps(Caps{}), parts{full: {"- Request rate: Not limited here.", "- Concurrency: Not limited here."}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dns := testSite(), catalog.DNS()
			c.change(&s)
			d := New(s)
			text := func(of string) string {
				switch of {
				case paywall:
					page, _ := Paywall(dns, s, newVisit(dns, "www.example.org"))
					return string(page)
				case missing:
					return string(d.Missing("").Body)
				case challenge:
					return string(encode(ChallengeOf(dns, s, Offer(dns, s), fault.New(fault.PaymentRequired, nil))))
				case tool:
					return toolText(s, dns)
				case script:
					return string(must(os.ReadFile("assets/paywall-wallet.js")))
				}
				return string(documentBody(t, d, of))
			}
			for of, parts := range c.says {
				wantTexts(t, of, text(of), parts...)
			}
			for of, parts := range c.not {
				for _, part := range parts {
					if strings.Contains(text(of), part) {
						t.Errorf("%s says %q", of, part)
					}
				}
			}
		})
	}
}

// TestWellKnown checks the files below /.well-known/. The operator's files must be served
// unchanged, with the content types that belong to their names. If the Site has a contact,
// there must be a security.txt, whose expiry date moves with the clock. If the Site has
// receipt keys, there must be a DID document that lists each key by its id. Without a contact
// or keys, these two files must not exist.
func TestWellKnown(t *testing.T) {
	old := must(receipt.ParsePublic("TLWr9q15-_WrvMr8wmnYXNJlHtS4hbWGnyQa7fCluik"))
	now, s := testSite().Now(), testSite()
	s.Now = func() time.Time { return now }
	s.ReceiptKeys = []ed25519.PublicKey{make(ed25519.PublicKey, ed25519.PublicKeySize), old}
	s.Claims = map[string]string{"glama.json": `{"a":1}`, "x402-trust.txt": "0x12\n"}
	d := New(s)
	served := func(d *Documents, path, kind, body string) {
		t.Helper()
		w := request(d, http.MethodGet, path, map[string]string{"Accept-Encoding": "gzip;q=0"})
		if w.Body.String() != body || w.Header().Get("Content-Type") != kind || (w.Code == http.StatusNotFound) != (body == "") {
			t.Errorf("%s: %d %v\n%s, want\n%s", path, w.Code, w.Header(), w.Body, body)
		}
	}
	served(d, "/.well-known/glama.json", typeJSON, `{"a":1}`)
	served(d, "/.well-known/x402-trust.txt", typeText, "0x12\n")
	for _, expires := range []string{"2027-05-19T00:00:00Z", "2028-11-09T00:00:00Z"} {
		served(d, pathSecurity, typeText, "Contact: "+s.Contact+"\nExpires: "+expires+"\nCanonical: "+s.Origin+"/.well-known/security.txt\n")
		now = now.AddDate(0, 0, 540)
	}
	for _, key := range s.ReceiptKeys {
		kid := receipt.KeyID(strings.TrimPrefix(s.Origin, "https://"), key)
		if got, err := receipt.FindKey(documentBody(t, d, receipt.Path), kid); err != nil || !got.Equal(key) {
			t.Errorf("%s: %v, %v", kid, got, err)
		}
	}
	s.Contact, s.ReceiptKeys = "", nil
	served(New(s), pathSecurity, "", "")
	served(New(s), receipt.Path, "", "")
}

// TestOrigins checks the icon of an offer and the name of the server. The offer must have the
// icon only if facilitators accept its URL. The name of the MCP server in the registry must
// begin with the host's labels in reverse order, because the registry demands a proof that the
// publisher owns this host.
func TestOrigins(t *testing.T) {
	for origin, want := range map[string][2]string{
		"https://api.example.com":      {"https://api.example.com/favicon.svg", "com.example.api/hostfacts"},
		"https://api.example.com:8443": {"https://api.example.com:8443/favicon.svg", "com.example.api/hostfacts"},
		"http://api.example.com":       {"", "com.example.api/hostfacts"}, "http://127.0.0.1:8402": {"", "1.0.0.127/hostfacts"},
		"https://192.0.2.1": {"", "1.2.0.192/hostfacts"}, "https://localhost": {"", "localhost/hostfacts"},
		"https://a.localhost": {"", "localhost.a/hostfacts"}, "https://host": {"", "host/hostfacts"},
		"https://[2001:db8::1]": {"", "[2001/hostfacts"}, "https://ho st": {"", "ho st/hostfacts"}, // these names need not be valid, because nobody can register a server under these hosts
	} {
		s := testSite()
		s.Origin = origin
		wantEqual(t, origin, want, [2]string{Offer(catalog.DNS(), s).Resource.IconURL, s.serverName()})
	}
}

// TestReadmeSaysWhatTheLedgerDoes checks that four statements in the README have the durations
// and numbers of package ledger.
func TestReadmeSaysWhatTheLedgerDoes(t *testing.T) {
	v, text := newView(testSite()), strings.Join(strings.Fields(string(must(os.ReadFile("../../README.md")))), " ")
	wantTexts(t, "README.md", text, "returns the stored answer for "+v.Kept,
		"at least "+v.Spacing+".", "After "+v.OwedFor+" a refund is due", fmt.Sprintf("silent in %d", v.Silent))
}

// TestTablesNameOperations checks the tables "limits" and "caveats" in the documents'
// templates. Their second column may name only existing operations.
func TestTablesNameOperations(t *testing.T) {
	v := newView(testSite())
	for _, r := range append(v.table("limits"), v.table("caveats")...) {
		for slug := range strings.SplitSeq(r.Type, ", ") {
			if _, ok := catalog.BySlug(slug); !ok && slug != "" {
				t.Errorf("%s is about %s, which is not an operation", r.Name, slug)
			}
		}
	}
}

// TestGoldenFiles compares the documents, the list of tools and the offers with golden files.
// A change of an offer must not go unnoticed: clients echo an offer's terms and extensions,
// and the service compares the echo with its present offer. So every byte of an offer must
// stay the same from one release to the next.
func TestGoldenFiles(t *testing.T) {
	d, offers := testDocuments(), object{}
	for _, op := range catalog.All() {
		offers = append(offers, member{op.Slug, Offer(op, testSite())})
	}
	wantGolden(t, "offers.json", encode(offers))
	wantGolden(t, "tools.json", Tools(testSite()))
	names := map[string]string{
		catalog.PathCatalog: "catalog.json", catalog.PathManifest: "manifest.json", catalog.PathOpenAPI: "openapi.json", catalog.PathServer: "server.json",
		catalog.PathLLMs: "llms.txt", catalog.PathLLMsFull: "llms-full.txt", catalog.PathDocs: "docs.html", receipt.Path: "did.txt",
	}
	whole := map[string]string{"/": "See /docs\n", pathRobots: "User-agent: *\nAllow: /\n", pathSecurity: string(testSite().security())}
	for path, file := range map[string]string{pathFavicon: "favicon.svg", pathIcon: "generated/favicon.ico", pathCard: "generated/card.png"} {
		whole[path] = string(must(os.ReadFile("assets/" + file)))
	}
	for _, doc := range d.documents {
		path, got := doc.Path, doc.Body()
		if name, ok := names[path]; ok {
			t.Run(name, func(t *testing.T) { wantGolden(t, name, got) })
		} else if want, ok := whole[path]; !ok || string(got) != want {
			t.Errorf("%s has no golden file, or is listed twice, or is %q", path, got)
		}
		delete(names, path)
		delete(whole, path)
	}
	if len(names)+len(whole) > 0 {
		t.Errorf("no paths of %v and %v", names, whole)
	}
}

// TestRoot checks the redirect from / to the documentation. TestEncodings checks the other
// documents.
func TestRoot(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		w := request(testDocuments(), method, "/", nil)
		if w.Code != http.StatusFound || w.Header().Get("Location") != "/docs" || (w.Body.Len() > 0) != (method == http.MethodGet) {
			t.Errorf("%s: %d with %v and %d bytes", method, w.Code, w.Header(), w.Body.Len())
		}
	}
}

// longHost has 64 characters. For longer hosts, the sizes that TestOffers checks are not
// promised.
const longHost = "the-facts-about-hosts.an-organisation.a-long-registry-name.test1"

// signer signs offers and receipts with one key, as a deployment does.
type signer struct{ *receipt.Signer }

func (s signer) Sign(_ context.Context, d receipt.Statement) (string, error) { return s.Signer.Sign(d) }

// TestOffers checks every offer, over HTTP and for the tool, and the header with a payment for
// that offer. Gateways must accept the sizes of both. Catalogs must accept the content of the
// offer: a catalog drops an offer that exceeds the catalog's limits, or whose extensions do
// not conform to their schemas.
func TestOffers(t *testing.T) {
	const mostPayment = 6656
	s, wallet := testSite(), must(x402test.NewWallet(rand.Reader))
	if s.Origin = "https://" + longHost; len(longHost) != 64 {
		t.Fatalf("the host has %d characters, want 64", len(longHost))
	}
	signs := signer{must(receipt.NewSigner(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), s.ReceiptKeys))}
	short := func(most int, texts ...string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return text == "" || len(text) > most || !untrusted.ASCII(text) })
	}
	for _, op := range catalog.All() {
		http, tool := Offer(op, s), ToolOffer(op, s)
		wantEqual(t, op.Slug, []x402.Requirements{{
			Scheme: "exact", Network: s.Terms.Network, Asset: s.Terms.Asset, Amount: op.Amount, PayTo: s.Terms.PayTo,
			MaxTimeoutSeconds: 300, Extra: x402.Extra{Name: "USD Coin", Version: "2", PaymentFlow: "upfront"},
		}}, http.Accepts)
		wantEqual(t, op.Slug, http.Accepts, tool.Accepts)
		if r := http.Resource; r.URL != s.Origin+op.Path || !short(400, r.Description) || !short(32, append(r.Tags, r.ServiceName)...) || len(r.Tags) > 5 {
			t.Errorf("%s: %+v", op.Slug, r)
		}
		for kind, plain := range map[string]x402.PaymentRequired{"http": http, "mcp": tool} {
			signed := must(must(x402.NewOffer(plain)).Signed(signs))
			offer := signed.Required("").WithToken(shownToken)
			headers := must(signed.Challenges("", shownToken))
			if len(headers) != 2 || len(headers[1]) >= x402.MaxOfferHeader || len(offer.Extensions) != 4 {
				t.Errorf("%s, %s: %d extensions, %d headers", op.Slug, kind, len(offer.Extensions), len(headers))
			}
			for name, raw := range offer.Extensions {
				checkExtension(t, op, kind, name, raw)
			}
			// As a payer does, add an id for the extension payment-identifier to the offer.
			// The id has the form that the x402 client's helper writes.
			offer.Extensions[x402.ExtensionIdentifier] = bytes.Replace(offer.Extensions[x402.ExtensionIdentifier],
				[]byte(`"required":false`), []byte(`"required":false,"id":"pay_7d5d747be160e280504c099d984bcfe0"`), 1)
			if payment := must(wallet.Pay(offer, s.Now())); len(payment) >= mostPayment {
				t.Errorf("%s, %s: a payment of %d bytes", op.Slug, kind, len(payment))
			}
		}
	}
}

// checkExtension validates an extension of an offer as a facilitator does before it lists the
// offer. The extension has an info and a schema. The info must conform to the schema, and the
// schema must not refer to another document. The schema must reject the info after a forbidden
// change, and accept it after a permitted change.
func checkExtension(t *testing.T, op catalog.Operation, kind, name string, raw []byte) {
	t.Helper()
	e := decode[struct{ Info, Schema json.RawMessage }](raw)
	if bytes.Contains(raw, []byte(`"$ref"`)) || bytes.Contains(raw, []byte(`"$id"`)) || bytes.Contains(raw, []byte(`{}`)) {
		t.Errorf("%s, %s: an empty schema or a reference in %s", op.Slug, name, raw)
	}
	const id = `"required":false,"id":"pay_7d5d747be160e280504c099d984bc`
	type change struct {
		old, other string
		ok         bool
	}
	changes := []change{{"", "", true}}
	switch {
	case name == x402.ExtensionIdentifier: // a payer may add an id, but must keep the member "required"
		const was = `"required":false`
		changes = append(changes, change{was, id + `fe0"`, true}, change{was, `"id":"pay_7d5d747be160e280504c099d984bc"`, false})
	case name == x402.ExtensionReceipt:
		changes = append(changes, change{`"offers":[`, `"receipts":[`, false})
	case name == "bazaar" && kind == "mcp":
		changes = append(changes, change{`"type":"mcp"`, `"type":"http"`, false})
	case name == "bazaar":
		changes = append(changes, change{`"type":"http"`, `"type":"mcp"`, false}, change{`"method":"GET"`, `"method":"POST"`, false},
			change{`"queryParams":{`, `"body":{},"queryParams":{`, false})
		if op.Kind != catalog.SmokeTest { // the parameter domain is required, except for the smoke test, which does not have it
			changes = append(changes, change{`"domain":`, `"host":`, false})
		}
	}
	s := validator(e.Schema)
	for _, c := range changes {
		info := bytes.Replace(e.Info, []byte(c.old), []byte(c.other), 1)
		if err := validate(s, info); (err == nil) != c.ok || c.old != "" && bytes.Equal(info, e.Info) {
			t.Errorf("%s, %s: %s for %s: %v", op.Slug, name, c.other, c.old, err)
		}
	}
}
