package receipt_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

const (
	body = `{"domain":"example.com","type":"A","rcode":"NOERROR","resolver":"1.1.1.1","ttl":300,"records":[{"address":"192.0.2.1"}]}`
	kid  = "did:web:api.example.com#3iR-H6Xx_3rpt7eNMUVNazSZkUclb_cekBJZZL4mlUs"
	// vector is a receipt that package @x402/extensions 2.27 has signed with key(1). That
	// package also accepts this receipt.
	vector = "eyJhbGciOiJFZERTQSIsImtpZCI6ImRpZDp3ZWI6YXBpLmV4YW1wbGUuY29tIzNpUi1INlh4XzNycHQ3ZU5NVVZOYXpTWmtVY2xiX2Nla0JKWlpMNG1sVXMifQ." +
		"eyJpc3N1ZWRBdCI6MTc5NTIxOTUwMCwibmV0d29yayI6ImVpcDE1NTo4NDUzIiwicGF5ZXIiOiIweDcwOTk3OTcwQzUxODEyZGMzQTAxMEM3ZDAxYjUwZTBkMTdkYzc5QzgiLCJyZXNvdXJjZVVybCI6Imh0dHBzOi8vYXBpLmV4YW1wbGUuY29tL3YxL3Rvb2xzL2RucyIsInRyYW5zYWN0aW9uIjoiMHg4OWM5MWM3ODllNTcwNTliMTcyODVlN2JhMTcxNmExZjVmZjRjNWRhY2UwZWE1YTUxMzVmMjYxNThkMDQyMWI5IiwidmVyc2lvbiI6MX0." +
		"qlwZwceexESUZgXjmJ2TzR_WfWBValJJyc-jK5mUv57BONi_gWgUjiaprJkK-VDxaxVsrTaQSxSCkKFvPfryDw"
	// The same package has made these two signatures. The first signs the statement that
	// delivery returns. The second signs the offer in TestVectors.
	statementSignature = "u57Zv2dFZQx7RpXdBsTDhdXMsgUa_82gKYySUnPGDdr4oSD4uT1_vWIZUFlVCHjYbZuzGGAj-Ty2YqjyeJ9MAw"
	offerSignature     = "FOyf2TLEjg-BTYyuraXFLBDY5hxWKsn2kYIjIomHKZ9woqwCVGJw-oh9Ez9H4F2mTj9VWFshgh00oIupJnWfDA"
)

func key(last byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[len(seed)-1] = last
	return ed25519.NewKeyFromSeed(seed)
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) } //nolint:forcetypeassert // Public documents this type

func delivery() receipt.Statement {
	return receipt.Statement{
		IssuedAt: 1795219500, Network: "eip155:8453", Payer: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		Request: "GET /v1/tools/dns?domain=example.com&type=A", ResourceURL: "https://api.example.com/v1/tools/dns",
		Transaction: "0x89c91c789e57059b17285e7ba1716a1f5ff4c5dace0ea5a5135f26158d0421b9", ResponseHash: receipt.HashOf([]byte(body)),
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// signer returns a signer that signs with the first of several published keys.
func signer(k ed25519.PrivateKey, others ...ed25519.PublicKey) *receipt.Signer {
	return must(receipt.NewSigner(k, append([]ed25519.PublicKey{public(k)}, others...)))
}

// findIn returns a function that finds a key in the DID document of api.example.com. That host
// publishes the given keys.
func findIn(keys ...ed25519.PublicKey) func(string) (ed25519.PublicKey, error) {
	doc := must(receipt.Document("api.example.com", keys))
	return func(kid string) (ed25519.PublicKey, error) { return receipt.FindKey(doc, kid) }
}

// TestVectors checks that Sign and SignOffer make the same signatures as package
// @x402/extensions, and that Verify accepts a receipt of that package. Shown must return the
// signed offer with zeros in place of the signature.
func TestVectors(t *testing.T) {
	t.Parallel()
	jws := must(signer(key(1)).Sign(delivery()))
	if !strings.HasSuffix(jws, "."+statementSignature) {
		t.Errorf("Sign = %s; want the signature %s", jws, statementSignature)
	}
	for _, c := range []struct {
		jws         string
		isFull      bool // whether the receipt has the request and the digest of the body
		wantRequest string
	}{{jws, true, delivery().Request}, {vector, false, ""}} {
		s, id, err := receipt.Verify(c.jws, findIn(public(key(1))))
		hashed, encoded := s, s
		hashed.ResponseHashAlg, encoded.ResponseHashEncoding = "sha512", "gzip"
		if hashed.Covers([]byte(body)) || encoded.Covers([]byte(body)) {
			t.Errorf("%s: it covers a body by a digest of another kind", c.jws)
		}
		if err != nil || id != kid || !receipt.Authorizes(id, s) || s.IssuedAt != 1795219500 || s.Request != c.wantRequest ||
			s.Covers([]byte(body)) != c.isFull || s.Covers([]byte(body+" ")) {
			t.Errorf("%s: %+v, %s, %v; want %s", c.jws, s, id, err, kid)
		}
	}
	terms := receipt.Offer{
		Amount: "5000", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", Network: "eip155:8453", PayTo: "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
		ResourceURL: "https://api.example.com/v1/tools/dns", Scheme: "exact",
	}
	offer, err := signer(key(1)).SignOffer(terms)
	text, signed := strings.CutSuffix(offer, "."+offerSignature)
	if err != nil || !signed {
		t.Errorf("SignOffer = %s, %v; want the signature %s", offer, err, offerSignature)
	}
	shown, err := receipt.Shown(terms, public(key(1)))
	if want := text + "." + strings.Repeat("A", len(offerSignature)); err != nil || shown != want {
		t.Errorf("Shown = %s, %v; want %s", shown, err, want)
	}
}

// TestRevocation checks that publishing other keys, in any order, changes no key id and
// invalidates no signature. If a key is no longer published, everything that it signed becomes
// invalid. NewSigner must refuse a key that is not published.
func TestRevocation(t *testing.T) {
	t.Parallel()
	a, b, c := public(key(1)), public(key(2)), public(key(3))
	jws := must(signer(key(2), a).Sign(delivery()))
	name := receipt.KeyID("api.example.com", b)
	for what, keys := range map[string]struct {
		published []ed25519.PublicKey
		holds     bool
	}{
		"nothing removed":           {[]ed25519.PublicKey{b, a}, true},
		"in another order":          {[]ed25519.PublicKey{a, b}, true},
		"C added":                   {[]ed25519.PublicKey{c, b, a}, true},
		"A removed":                 {[]ed25519.PublicKey{b}, true},
		"A removed, C is new":       {[]ed25519.PublicKey{c, b}, true},
		"published twice":           {[]ed25519.PublicKey{b, b}, true},
		"B removed":                 {[]ed25519.PublicKey{a}, false},
		"B removed, C in its place": {[]ed25519.PublicKey{c, a}, false},
		"no key":                    {nil, false},
	} {
		_, id, err := receipt.Verify(jws, findIn(keys.published...))
		if (err == nil) != keys.holds || id != name || err != nil && !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%s: %s, %v; want the key %s, holds: %v", what, id, err, name, keys.holds)
		}
	}
	if _, err := receipt.NewSigner(key(3), []ed25519.PublicKey{a, b}); !errors.Is(err, receipt.ErrMismatch) {
		t.Errorf("a key that is not published: %v", err)
	}
}

// TestChanged checks that a receipt is invalid if any byte of it is changed, if text is added
// to it or cut off, or if it is verified with another key.
func TestChanged(t *testing.T) {
	t.Parallel()
	jws, ours := must(signer(key(1)).Sign(delivery())), findIn(public(key(1)))
	for i := range jws {
		changed := []byte(jws)
		changed[i]++
		if s, _, err := receipt.Verify(string(changed), ours); !errors.Is(err, receipt.ErrInvalid) || s != (receipt.Statement{}) {
			t.Errorf("with byte %d changed: %+v, %v", i, s, err)
		}
	}
	for _, jws := range []string{"", ".", "..", "a.b.c", jws + ".", jws[:len(jws)-1], strings.Repeat("a", receipt.MaxSize) + jws} {
		if _, _, err := receipt.Verify(jws, ours); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%.60q: %v", jws, err)
		}
	}
	if _, _, err := receipt.Verify(jws, findIn(public(key(2)))); !errors.Is(err, receipt.ErrInvalid) {
		t.Errorf("by another key: %v", err)
	}
}

// TestForm checks that Verify refuses signed text that does not have the form of version 1. It
// must also refuse a public key of the wrong size.
func TestForm(t *testing.T) {
	t.Parallel()
	const header, said = `{"alg":"EdDSA","kid":"k"}`, `{"version":1,"payer":"p"}`
	encode := base64.RawURLEncoding.EncodeToString
	for name, c := range map[string]struct {
		header, said string
		holds        bool
	}{
		"that of version 1":   {header, said, true},
		"of a long request":   {header, `{"version":1,"request":"` + strings.Repeat("r", 8<<10) + `"}`, true},
		"another algorithm":   {`{"alg":"none","kid":"k"}`, said, false},
		"no name of a key":    {`{"alg":"EdDSA"}`, said, false},
		"two names of keys":   {`{"alg":"EdDSA","kid":"k","kid":5}`, said, false},
		"another version":     {header, `{"version":2,"payer":"p"}`, false},
		"a payer of no text":  {header, `{"version":1,"payer":5}`, false},
		"longer than is read": {header, `{"version":1,"payer":"` + strings.Repeat("p", receipt.MaxSize) + `"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			jws := encode([]byte(c.header)) + "." + encode([]byte(c.said))
			jws += "." + encode(ed25519.Sign(key(1), []byte(jws)))
			for size, holds := range map[int]bool{ed25519.PublicKeySize: c.holds, 31: false} {
				k := public(key(1))[:size]
				_, _, err := receipt.Verify(jws, func(string) (ed25519.PublicKey, error) { return k, nil })
				if (err == nil) != holds || err != nil && !errors.Is(err, receipt.ErrInvalid) {
					t.Errorf("by a key of %d bytes: %v", size, err)
				}
			}
		})
	}
}

// TestFindKey checks that FindKey finds only Ed25519 keys that the DID document lists for
// assertions.
func TestFindKey(t *testing.T) {
	t.Parallel()
	doc := string(must(receipt.Document("api.example.com", []ed25519.PublicKey{public(key(1))})))
	for old, replaced := range map[string]string{`"OKP"`: `"EC"`, `"Ed25519"`: `"X25519"`, `"assertionMethod"`: `"authentication"`} {
		if got, err := receipt.FindKey([]byte(strings.Replace(doc, old, replaced, 1)), kid); !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%s in place of %s: %v, %v", replaced, old, got, err)
		}
	}
}

// TestUnsignable checks that a statement is not signed if its resource URL has no host, or if
// canonical JSON would have to escape one of its texts.
func TestUnsignable(t *testing.T) {
	t.Parallel()
	s := signer(key(1))
	for name, change := range map[string]func(*receipt.Statement){
		"no resource": func(d *receipt.Statement) { d.ResourceURL = "" }, "a path": func(d *receipt.Statement) { d.ResourceURL = "/v1" },
		"not a URL": func(d *receipt.Statement) { d.ResourceURL = "http://[" },
		"quotes":    func(d *receipt.Statement) { d.Payer = `"` }, "not ASCII": func(d *receipt.Statement) { d.Transaction = "é" },
		"control": func(d *receipt.Statement) { d.Network = "\n" }, "a request": func(d *receipt.Statement) { d.Request = `GET /\` },
	} {
		d := delivery()
		change(&d)
		if got, err := s.Sign(d); got != "" || err == nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	k := key(1)
	if got, err := receipt.ParseKey(receipt.FormatKey(k)); err != nil || !got.Equal(k) {
		t.Errorf("%v, %v", got, err)
	}
	// The key is from RFC 8037, appendix A.3.
	ofRFC, err := receipt.ParsePublic("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if id := receipt.KeyID("h", ofRFC); err != nil || id != "did:web:h#kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Errorf("%s, %v", id, err)
	}
	if got, err := receipt.ParsePublic("TLWr9q15-_WrvMr8wmnYXNJlHtS4hbWGnyQa7fCluik"); err != nil || !bytes.Equal(got, public(k)) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "AA", receipt.FormatKey(k) + "A", receipt.FormatKey(k) + "=", strings.Repeat("+", 43)} {
		_, err := receipt.ParseKey(text)
		_, err2 := receipt.ParsePublic(text)
		if err == nil || err2 == nil {
			t.Errorf("%q is taken for a key", text)
		}
	}
}

// FuzzVerify checks that, for any input, Verify returns either a statement or ErrInvalid.
func FuzzVerify(f *testing.F) {
	f.Add(vector, []byte(`{}`))
	doc := must(receipt.Document("api.example.com", []ed25519.PublicKey{public(key(1))}))
	f.Add(strings.Replace(vector, "eyJ", "e30", 1), doc)
	f.Fuzz(func(t *testing.T, jws string, doc []byte) {
		s, _, err := receipt.Verify(jws, func(kid string) (ed25519.PublicKey, error) { return receipt.FindKey(doc, kid) })
		if (err == nil) == (s == receipt.Statement{}) || err != nil && !errors.Is(err, receipt.ErrInvalid) {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestAuthorizesWholeHosts checks that the key of a host speaks only for exactly that host.
// For example, a key of example.com does not speak for example.community.
func TestAuthorizesWholeHosts(t *testing.T) {
	t.Parallel()
	if got := receipt.DID("127.0.0.1:8402"); got != "did:web:127.0.0.1%3A8402" { // the port is a part of the name
		t.Error(got)
	}
	s := receipt.Statement{ResourceURL: "https://api.example.com/v1/tools/ping"}
	for host, want := range map[string]bool{
		"api.example.com": true, "api.example.com.evil.example": false, "api.example.community": false, "api.example.com:8443": false,
		"other.example.com": false,
	} {
		if got := receipt.Authorizes(receipt.KeyID(host, public(key(1))), s); got != want {
			t.Errorf("the key of %s speaks for %s: %v", host, s.ResourceURL, got)
		}
	}
	for _, nowhere := range []string{"", "/v1/tools/ping", "http://["} {
		if receipt.Authorizes(receipt.KeyID("", public(key(1))), receipt.Statement{ResourceURL: nowhere}) {
			t.Errorf("the key of no host speaks for %q", nowhere)
		}
	}
}
