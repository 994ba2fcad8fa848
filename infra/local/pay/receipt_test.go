package main

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// signedAnswer has the parts of an answer that a test can change.
type signedAnswer struct {
	delivery receipt.Statement
	settled  x402.SettleResponse
	body     string
	format   string
	jws      func(string) string
	keys     func(w http.ResponseWriter, doc []byte)
}

func sellerKey(last byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = last
	return ed25519.NewKeyFromSeed(seed)
}

func publicOf(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) } //nolint:forcetypeassert // Public documents this type

const (
	soldPath = "/v1/tools/dns"
	payerOf  = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	hashOf   = "0x89c91c789e57059b17285e7ba1716a1f5ff4c5dace0ea5a5135f26158d0421b9"
)

// sellSigned starts a service that sells one answer with a signed receipt, and publishes the
// keys that sign receipts. The function change is called before the first request, and can
// change the answer, the receipt and the keys.
func sellSigned(t *testing.T, change func(*signedAnswer)) *service {
	t.Helper()
	public := []ed25519.PublicKey{publicOf(sellerKey(2)), publicOf(sellerKey(1))}
	var a signedAnswer
	header := ""
	s := sell(t, func(w http.ResponseWriter, _ int) {
		w.Header().Set(x402.HeaderResponse, header)
		fmt.Fprint(w, a.body)
	})
	paid := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != receipt.Path {
			paid.ServeHTTP(w, r)
			return
		}
		if r.Header.Get(x402.HeaderKey)+r.Header.Get(x402.HeaderSignature) != "" {
			t.Errorf("the keys were asked for with %v", r.Header)
		}
		doc, err := receipt.Document(r.Host, public)
		if err != nil {
			t.Error(err)
		}
		a.keys(w, doc)
	})
	a = signedAnswer{
		delivery: receipt.Statement{IssuedAt: 1795219500, Network: "eip155:8453", Payer: payerOf, Request: "GET " + soldPath + "?domain=example.com&type=A", ResourceURL: s.URL + soldPath, Transaction: hashOf, ResponseHash: receipt.HashOf([]byte(`{"ok":true}` + "\n"))},
		settled:  x402.SettleResponse{Success: true, Network: "eip155:8453", Payer: strings.ToLower(payerOf), Transaction: hashOf},
		body:     `{"ok":true}` + "\n",
		format:   x402.FormatJWS,
		jws:      func(jws string) string { return jws },
		keys:     func(w http.ResponseWriter, doc []byte) { _, _ = w.Write(doc) },
	}
	change(&a)
	signer, err := receipt.NewSigner(sellerKey(1), public)
	must(t, err)
	jws, err := signer.Sign(a.delivery)
	must(t, err)
	if jws = a.jws(jws); jws != "" {
		a.settled.Extensions.OfferReceipt.Info.Receipt = x402.SignedReceipt{Format: a.format, Signature: jws}
	}
	if header, err = x402.EncodeHeader(a.settled); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReceipt checks what "make pay" prints about the receipt of an answer. The answer itself
// must be printed in every case.
func TestReceipt(t *testing.T) {
	t.Parallel()
	const not, unchecked = "receipt: INVALID: ", "receipt: NOT CHECKED: the keys of the service cannot be read: "
	_, name, _ := strings.Cut(receipt.KeyID("", publicOf(sellerKey(1))), "#")
	keys := func(status int, body string) func(*signedAnswer) {
		return func(a *signedAnswer) {
			a.keys = func(w http.ResponseWriter, _ []byte) { w.WriteHeader(status); fmt.Fprint(w, body) }
		}
	}
	for name, c := range map[string]struct {
		change func(*signedAnswer)
		says   string
	}{
		"it holds":            {func(*signedAnswer) {}, "receipt: valid: signed by KEY at 2026-11-21T00:05:00Z for these 12 bytes\n"},
		"none":                {func(a *signedAnswer) { a.jws = func(string) string { return "" } }, "receipt: this answer came without one\n"},
		"another format":      {func(a *signedAnswer) { a.format = "eip712" }, "receipt: not checked: its format is not jws\n"},
		"version 1 alone":     {func(a *signedAnswer) { a.delivery.ResponseHash = "" }, "receipt: valid for the payment, signed by KEY; it does not cover the answer\n"},
		"a changed byte":      {func(a *signedAnswer) { a.body = `{"ok":true}  ` }, not + "it is for another answer: these 13 bytes have the SHA-256 0x"},
		"one byte less":       {func(a *signedAnswer) { a.body = `{"ok":true}` }, not + "it is for another answer: these 11 bytes"},
		"another transaction": {func(a *signedAnswer) { a.settled.Transaction = "0x1" }, not + `it is for the transaction "` + hashOf + `", but the answer names "0x1"`},
		"another payer":       {func(a *signedAnswer) { a.settled.Payer = "0x2" }, not + `it is for the payer "` + payerOf + `"`},
		"another network":     {func(a *signedAnswer) { a.settled.Network = "eip155:1" }, not + `it is for the payer "` + payerOf + `" on "eip155:8453", but`},
		"another question":    {func(a *signedAnswer) { a.delivery.Request = "GET " + soldPath + "?domain=mail.example.com&type=A" }, not + `it is for the question "GET /v1/tools/dns?domain=mail.example.com&type=A", but the question was GET /v1/tools/dns?domain=example.com&type=A`},
		"another type":        {func(a *signedAnswer) { a.delivery.Request = "GET " + soldPath + "?domain=example.com&type=MX" }, not + "it is for the question"},
		"another operation":   {func(a *signedAnswer) { a.delivery.Request = "GET /v1/tools/whois?domain=example.com" }, not + "it is for the question"},
		"no question":         {func(a *signedAnswer) { a.delivery.Request = "" }, "receipt: valid for these 12 bytes, signed by KEY; it does not name the request\n"},
		"another path":        {func(a *signedAnswer) { a.delivery.ResourceURL += "/more" }, not + `it is for "http://HOST/v1/tools/dns/more", which was not asked`},
		"another query":       {func(a *signedAnswer) { a.delivery.ResourceURL += "?domain=other.example" }, not + `it is for "http://HOST/v1/tools/dns?domain=other.example", which`},
		"the same query":      {func(a *signedAnswer) { a.delivery.ResourceURL += "?domain=example.com" }, "receipt: valid: "},
		"another host":        {func(a *signedAnswer) { a.delivery.ResourceURL = "https://other.example/" }, not + `it is signed by "did:web:other.example#` + name + `", and "127.0.0.1:`},
		"a forged signature":  {func(a *signedAnswer) { a.jws = func(jws string) string { return jws[:len(jws)-4] + "___w" } }, not + "receipt: invalid: the signature is not that of did:web:"},
		"no JWS":              {func(a *signedAnswer) { a.jws = func(string) string { return "x" } }, not + "receipt: invalid: not a compact JWS"},
		"a JWS that is long": {func(a *signedAnswer) {
			a.jws = func(jws string) string { return strings.Repeat("A", receipt.MaxSize) + jws }
		}, not + "receipt: invalid: not a compact JWS"},
		"no keys":               {keys(404, "{}"), unchecked + "/.well-known/did.json answers 404"},
		"keys that are not any": {keys(200, "<html>"), not + "receipt: invalid: the DID document cannot be read"},
		"another key":           {keys(200, `{"assertionMethod":[]}`), not + "receipt: invalid: the DID document does not list"},
		"a flood of keys":       {keys(200, strings.Repeat(" ", bill.MaxKeys+1)), unchecked + "/.well-known/did.json has more than 65536 bytes"},
		"keys from elsewhere": {func(a *signedAnswer) {
			a.keys = func(w http.ResponseWriter, _ []byte) { w.Header().Set("Location", "/x"); w.WriteHeader(302) }
		}, unchecked + "/.well-known/did.json answers 302"},
		"another name of this machine": {func(a *signedAnswer) {
			a.delivery.ResourceURL = strings.Replace(a.delivery.ResourceURL, "127.0.0.1", "localhost", 1)
		}, "receipt: valid: signed by did:web:localhost%3A"},
		"nobody there": {func(a *signedAnswer) { a.keys = func(http.ResponseWriter, []byte) { panic(http.ErrAbortHandler) } }, unchecked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sellSigned(t, c.change)
			u := s.URL + soldPath + "?domain=example.com"
			b := newBuyer(t, u, "a key")
			err := b.runStoppable(t, b.pay)
			host, _ := strings.CutPrefix(s.URL, "http://")
			want := strings.ReplaceAll(c.says, "KEY", receipt.KeyID(host, publicOf(sellerKey(1))))
			want = strings.ReplaceAll(want, "HOST", host)
			if err != nil || b.out.String() != "{\n  \"ok\": true\n}\n" {
				t.Errorf("%v, stdout %q", err, &b.out)
			}
			if n := strings.Count(b.notes.String(), "\nreceipt: "); n != 1 || !strings.Contains(b.notes.String(), want) {
				t.Errorf("%d lines on the receipt, want %s:\n%s", n, want, &b.notes)
			}
		})
	}
}

// TestQuestion checks the form in which a request is compared with a receipt. If the URL is an
// operation of this product, the parameters must be normalized. If the URL is of another
// service, the parameters must stay as they were sent, but sorted by name.
func TestQuestion(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{
		"/v1/tools/dns?domain=Example.COM.":                                "GET /v1/tools/dns?domain=example.com&type=A",
		"/v1/tools/dns?type=mx&x=key&domain=b%C3%BCcher.de":                "GET /v1/tools/dns?domain=xn--bcher-kva.de&type=MX",
		"/v1/tools/ssl-check?domain=example.com":                           "GET /v1/tools/ssl-check?domain=example.com&port=443",
		"/v1/bundles/host-intel?domain=example.com&dns_type=a&api_key=one": "GET /v1/bundles/host-intel?dns_type=A&domain=example.com",
		"/v1/tools/whois?domain=example.com&type=MX":                       "GET /v1/tools/whois?domain=example.com",
		"/v1/tools/ping":                 "GET /v1/tools/ping?",
		"/v1/tools/ping?probe=1":         "GET /v1/tools/ping?",
		"/weather%2Fnow?town=Oslo&day=1": "GET https://api.example.com/weather%2Fnow?day=1&town=Oslo",
		"/weather":                       "GET https://api.example.com/weather",
	} {
		u, err := url.Parse("https://api.example.com" + asked)
		must(t, err)
		if got := bill.Question(u); got != want {
			t.Errorf("%s: %s, want %s", asked, got, want)
		}
	}
}

// TestReceiptOverHTTP checks that the key of a service on another machine is not read over
// http, because an attacker on the network could replace it.
func TestReceiptOverHTTP(t *testing.T) {
	t.Parallel()
	u := &url.URL{Scheme: "http", Host: "10.0.0.1:80", Path: "/v1"}
	signer, err := receipt.NewSigner(sellerKey(1), []ed25519.PublicKey{publicOf(sellerKey(1))})
	must(t, err)
	jws, err := signer.Sign(receipt.Statement{ResourceURL: u.String()})
	must(t, err)
	_, _, err = bill.Delivery{RequestURL: u}.Verify(t.Context(), jws)
	checkError(t, err, "over http, anybody on the path could substitute others")
}
