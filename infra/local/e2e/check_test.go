package e2e

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// The content types of what the service computes, and of its pages.
const (
	jsonType = "application/json; charset=utf-8"
	pageType = "text/html; charset=utf-8"
)

// judge holds an answer to what package fault, the catalog and design §3 say
// about it. It is the only place that knows.
func (r *run) judge(e exchange, w want) {
	if e.Status != w.of() {
		r.Errorf("status %d, want %d (%s)\n%s", e.Status, w.of(), w.code, e)
		return
	}
	if w.kind == fromGateway {
		return
	}
	if r.d.stranger {
		r.checkStranger(e, w)
		return
	}
	checkDescribed(r, e)
	checkHeaders(r, e, w)
	r.checkReceipt(e, w)
	is(r, "has no body", len(e.Body) == 0, w.headless || w.kind == bodiless)
	mentions(r, "the body", string(e.Body), w.contains...)
	switch w.kind {
	case anOffer:
		r.checkOffer(e, w)
	case aFault:
		r.checkFault(e, w)
	case aResult:
		is(r, "Content-Type", e.Header.Get("Content-Type"), jsonType)
		if w.body != "" {
			is(r, "body", string(e.Body), w.body)
		}
	}
	if w.replay && !bytes.Equal(e.Body, r.first.Body) {
		r.Errorf("the replay differs:\n%s\n%s", e.Body, r.first.Body)
	}
}

// checkStranger: what the library says at every seller.
func (r *run) checkStranger(e exchange, w want) {
	is(r, "code", codeOf(e), map[kind]string{aFault: string(w.code)}[w.kind])
	is(r, x402.HeaderReplayed, e.Header.Get(x402.HeaderReplayed), map[bool]string{true: "true"}[w.replay])
	is(r, "has PAYMENT-RESPONSE", e.Header.Get(x402.HeaderResponse) != "", w.receipt)
	if w.kind == aResult {
		is(r, "body", string(e.Body), w.body)
	}
}

func is[T comparable](tb testing.TB, what string, got, want T) {
	if got != want {
		tb.Errorf("%s: %v, want %v", what, got, want)
	}
}

func mentions(tb testing.TB, what, text string, parts ...string) {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			tb.Errorf("%s lacks %q:\n%.2000s", what, part, text)
		}
	}
}

const exposed = "PAYMENT-REQUIRED, PAYMENT-RESPONSE, Retry-After, Idempotent-Replayed, Age, Answer-Owed, " +
	"RateLimit-Policy, RateLimit, X-Request-Id"

// checkHeaders is about CORS, caching, waiting, and headers that do not belong.
func checkHeaders(tb testing.TB, e exchange, w want) {
	h := e.Header
	wanted := header{
		"Access-Control-Allow-Origin": "*", "X-Content-Type-Options": "nosniff", "Access-Control-Expose-Headers": exposed,
		x402.HeaderReplayed: map[bool]string{true: "true"}[w.replay],
	}
	switch w.kind {
	case aResult:
		wanted["Cache-Control"] = "private, no-store"
	case anOffer, aFault:
		wanted["Cache-Control"] = "no-store"
	}
	if w.kind == anOffer || w.charged == moved {
		wanted["Vary"] = "Accept, Accept-Encoding, PAYMENT-SIGNATURE, Idempotency-Key"
	}
	for _, headers := range []header{wanted, w.header} {
		for name, value := range headers {
			is(tb, name, h.Get(name), value)
		}
	}
	is(tb, "has X-Request-Id", h.Get("X-Request-Id") != "", true)
	is(tb, "has PAYMENT-REQUIRED", h.Get(x402.HeaderRequired) != "", w.kind == anOffer)
	if age := h.Get("Age"); age != "" && (!w.replay || !regexp.MustCompile(`^[0-9]+$`).MatchString(age)) {
		tb.Errorf("Age %q, replayed: %v", age, w.replay)
	}
	// Retry-After is on every 429 and 503 and on whatever else may be asked for again,
	// a 409 that will pass included, in whole seconds, and nowhere else.
	due := w.of() == http.StatusTooManyRequests || w.of() == http.StatusServiceUnavailable || w.kind == aFault && w.retryable()
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); due && (err != nil || seconds < 1 || seconds > 600) || !due && value != "" {
		tb.Errorf("Retry-After %q on %d %s; due: %v", value, w.of(), w.code, due)
	}
}

var transactionHash = regexp.MustCompile(`^0x[0-9a-f]{64}$`)

// checkReceipt: PAYMENT-RESPONSE on every answer after a settlement, and after a refused one.
func (r *run) checkReceipt(e exchange, w want) {
	raw := e.Header.Get(x402.HeaderResponse)
	is(r, "has PAYMENT-RESPONSE", raw != "", w.receipt)
	if raw == "" {
		return
	}
	var got x402.SettleResponse
	if err := decodeHeader(raw, &got); err != nil {
		r.Errorf("PAYMENT-RESPONSE: %v", err)
		return
	}
	hash := "" // of the payer's transfer, when there is one
	if r.moved != nil && w.kind == aResult {
		hash = r.moved()
	} else if list := r.lab.facilitator.Moved(r.payer); len(list) > 0 {
		hash = list[0].Transaction
	}
	want := x402.SettleResponse{Success: true, Transaction: hash, Network: r.lab.terms.Network, Payer: r.account.Checksum()}
	if w.kind == anOffer && !w.paid {
		want.Success, want.Transaction = false, ""
		if got.ErrorReason == "" || !strings.Contains(w.says, got.ErrorReason) {
			r.Errorf("PAYMENT-RESPONSE says %q, want %q", got.ErrorReason, w.says)
		}
		want.ErrorReason = got.ErrorReason
	} else if w.blind {
		want.Transaction = ""
	} else if !transactionHash.MatchString(got.Transaction) {
		r.Errorf("PAYMENT-RESPONSE has transaction %q", got.Transaction)
	}
	checkSigned(r, e, w, got)
	got.Extensions = x402.ResponseExtensions{}
	if d := cmp.Diff(want, got); d != "" {
		r.Errorf("PAYMENT-RESPONSE: %s", d)
	}
	if w.replay {
		is(r, "PAYMENT-RESPONSE of a replay", raw, r.first.Header.Get(x402.HeaderResponse))
	}
}

// What every world of this suite signs receipts with: a seed of zeros.
const (
	receiptKey       = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	receiptPublicKey = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik"
)

// checkSigned: an answer that was paid for has a signed receipt for these very
// bytes, and nothing else has one.
func checkSigned(tb testing.TB, e exchange, w want, got x402.SettleResponse) {
	signed := got.Extensions.OfferReceipt.Info.Receipt
	info, _ := catalog.CodeOf(w.code)
	answers := w.kind == aResult || w.kind == aFault && info.Class == fault.Answer
	if is(tb, "has a signed receipt", signed.Format == x402.FormatJWS, answers); !answers {
		return
	}
	s, kid, err := receipt.Verify(signed.Signature, func(string) (ed25519.PublicKey, error) { return receipt.ParsePublic(receiptPublicKey) })
	path, _, _ := strings.Cut(e.path, "?")
	here := strings.HasSuffix(s.ResourceURL, path) || strings.HasSuffix(s.ResourceURL, catalog.PathMCP)
	if err != nil || !receipt.Authorizes(kid, s) || !s.Covers(e.Body) || s.Transaction != got.Transaction || s.Payer != got.Payer || !here {
		tb.Errorf("receipt %+v by %s, %v, of %+v", s, kid, err, got)
	}
}

func decodeHeader(value string, v any) error {
	raw, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return err
	}
	return strictly(raw, v)
}

// strictly decodes JSON that may hold nothing but what v has room for.
func strictly(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("something follows the JSON value")
	}
	return nil
}

// checkFault: the error body of design §3. That no field is missing, and that the
// operation has the code, is the description's.
func (r *run) checkFault(e exchange, w want) {
	is(r, "Content-Type", e.Header.Get("Content-Type"), jsonType)
	var body struct {
		Error struct {
			Code      fault.Code      `json:"code"`
			Message   string          `json:"message"`
			Charged   json.RawMessage `json:"charged"`
			Retryable bool            `json:"retryable"`
		} `json:"error"`
		RequestID string `json:"request_id"`
		DocsURL   string `json:"docs_url"`
	}
	if w.headless {
		return
	}
	if err := strictly(e.Body, &body); err != nil {
		r.Errorf("error body: %v: %s", err, e.Body)
		return
	}
	f := body.Error
	is(r, "code", f.Code, w.code)
	if f.Message == "" || !strings.Contains(f.Message, w.message) {
		r.Errorf("message %q, want one with %q", f.Message, w.message)
	}
	is(r, "charged", string(f.Charged), string(w.charged))
	is(r, "retryable", f.Retryable, w.retryable())
	is(r, "docs_url", body.DocsURL, catalog.ErrorURL(r.d.origin, w.code))
	if !w.replay {
		is(r, "request_id", body.RequestID, e.Header.Get("X-Request-Id"))
	}
}

// retryToken is the extension with a token of 16 bytes.
var retryToken = regexp.MustCompile(`^\{"info":\{"token":"[A-Za-z0-9_-]{22}"\},"schema":\{`)

// checkOffer: what must be paid, in the header and in the body.
func (r *run) checkOffer(e exchange, w want) {
	var offer x402.PaymentRequired
	if err := decodeHeader(e.Header.Get(x402.HeaderRequired), &offer); err != nil {
		r.Errorf("PAYMENT-REQUIRED: %v", err)
		return
	}
	if offer.Error == "" || !strings.Contains(offer.Error, w.message) {
		r.Errorf("the reason is %q, want one with %q", offer.Error, w.message)
	}
	is(r, "x402Version", offer.X402Version, x402.Version)
	if token := offer.Extensions[x402.ExtensionToken]; !retryToken.Match(token) {
		r.Errorf("the retry token is %s", token)
	}
	op, _ := opOf(e.path)
	is(r, "resource.url", offer.Resource.URL, r.d.origin+op.Path)
	if d := cmp.Diff([]x402.Requirements{r.lab.terms.Requirements(op.Amount)}, offer.Accepts); d != "" {
		r.Errorf("accepts: %s", d)
	}
	if w.html {
		is(r, "Content-Type", e.Header.Get("Content-Type"), pageType)
		mentions(r, "Content-Security-Policy", e.Header.Get("Content-Security-Policy"), "default-src 'none'", "frame-ancestors 'none'")
		mentions(r, "the page", string(e.Body), "<!DOCTYPE html>", op.Price())
		return
	}
	is(r, "Content-Type", e.Header.Get("Content-Type"), jsonType)
	if w.headless {
		return
	}
	var body struct {
		x402.PaymentRequired
		Code        fault.Code      `json:"code"`
		Message     string          `json:"message"`
		Idempotency json.RawMessage `json:"idempotency"`
	}
	if err := strictly(e.Body, &body); err != nil {
		r.Errorf("402 body: %v: %s", err, e.Body)
		return
	}
	if d := cmp.Diff(offer, body.PaymentRequired); d != "" {
		r.Errorf("header and body of the 402 differ: %s", d)
	}
	is(r, "code", body.Code, fault.PaymentRequired)
	const idempotency = `{"header":"Idempotency-Key","replay_seconds":86400,"duplicate_window_seconds":45}`
	is(r, "idempotency", string(body.Idempotency), idempotency)
}

// describedOrigin is the origin that the judging description is rendered for.
const describedOrigin = "https://judge.example.com"

// description is the OpenAPI description that every answer of every world is held
// to. A case wants each world to serve the same.
var description = sync.OnceValue(func() string { return rendered(catalog.PathOpenAPI) })

func rendered(path string) string {
	config := must(boot.ReadLocal(func(string) string { return "" }))
	site := discovery.Site{Origin: describedOrigin, Terms: config.Terms, DuplicateWindow: config.DuplicateWindow}
	doc, _ := must(discovery.New(site)).Find(path)
	return string(doc.Body())
}

var described = sync.OnceValue(func() *clients.OpenAPI {
	return must(clients.ParseOpenAPI([]byte(description()), []byte(rendered(catalog.PathDocs))))
})

// checkDescribed holds an answer to the OpenAPI description. That leaves out the paths
// that browsers and crawlers ask for anyway.
func checkDescribed(tb testing.TB, e exchange) {
	path := e.path // as clients spell it
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	if e.Status < http.StatusBadRequest && (path == "/" || path == "/robots.txt" || path == "/favicon.svg") {
		return
	}
	answer := clients.Answer{Method: e.method, Path: path, Status: e.Status, Header: e.Header, Body: e.Body}
	if err := described().Check(answer); err != nil {
		tb.Error(err)
	}
}
