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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/clients"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

type subject struct {
	op     catalog.Operation // of a priced path
	origin string
	terms  x402.Terms
	payer  string   // the account that signed, with checksum; empty when nobody did
	hash   string   // of the payer's transfer, when there is one
	before exchange // the answer that a replay repeats
}

// The content types of what the service computes, and of its pages.
const (
	jsonType = "application/json; charset=utf-8"
	pageType = "text/html; charset=utf-8"
)

// check holds an answer to what package fault, the catalog and design §3 say
// about it. It is the only place that knows.
func check(tb testing.TB, e exchange, w want, s subject) {
	if e.status != w.of() {
		tb.Errorf("status %d, want %d (%s)\n%s", e.status, w.of(), w.code, e)
		return
	}
	if w.kind == fromGateway {
		return
	}
	checkDescribed(tb, e)
	checkHeaders(tb, e, w)
	checkReceipt(tb, e, w, s)
	is(tb, "has no body", len(e.body) == 0, w.headless || w.kind == bodiless)
	mentions(tb, "the body", string(e.body), w.contains...)
	switch w.kind {
	case anOffer:
		checkOffer(tb, e, w, s)
	case aFault:
		checkFault(tb, e, w, s)
	case aResult:
		is(tb, "Content-Type", e.header.Get("Content-Type"), jsonType)
		if w.body != "" {
			is(tb, "body", string(e.body), w.body)
		}
	}
	if w.replay && !bytes.Equal(e.body, s.before.body) {
		tb.Errorf("the replay differs:\n%s\n%s", e.body, s.before.body)
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

// checkHeaders is about CORS, caching, waiting, and headers that do not belong.
func checkHeaders(tb testing.TB, e exchange, w want) {
	h := e.header
	wanted := header{
		"Access-Control-Allow-Origin": "*", "X-Content-Type-Options": "nosniff",
		x402.HeaderReplayed: map[bool]string{true: "true"}[w.replay],
	}
	switch w.kind {
	case aResult:
		wanted["Cache-Control"] = "private, no-store"
	case anOffer, aFault:
		wanted["Cache-Control"] = "no-store"
	}
	if w.kind == anOffer || w.charged == moved {
		wanted["Vary"] = "Accept, PAYMENT-SIGNATURE, Idempotency-Key"
	}
	for _, headers := range []header{wanted, w.header} {
		for name, value := range headers {
			is(tb, name, h.Get(name), value)
		}
	}
	exposed := strings.Split(strings.ToLower(h.Get("Access-Control-Expose-Headers")), ", ")
	for name := range strings.FieldsSeq("payment-required payment-response retry-after idempotent-replayed age answer-owed ratelimit-policy") {
		if !slices.Contains(exposed, name) {
			tb.Errorf("Access-Control-Expose-Headers %q lacks %s", exposed, name)
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

// checkReceipt: PAYMENT-RESPONSE on every answer after a settlement, and after
// a refused one.
func checkReceipt(tb testing.TB, e exchange, w want, s subject) {
	raw := e.header.Get(x402.HeaderResponse)
	is(tb, "has PAYMENT-RESPONSE", raw != "", w.receipt)
	if raw == "" {
		return
	}
	var got x402.SettleResponse
	if err := decodeHeader(raw, &got); err != nil {
		tb.Errorf("PAYMENT-RESPONSE: %v", err)
		return
	}
	want := x402.SettleResponse{Success: true, Transaction: s.hash, Network: s.terms.Network, Payer: s.payer}
	if w.kind == anOffer && !w.paid {
		want.Success, want.Transaction = false, ""
		if got.ErrorReason == "" || !strings.Contains(w.says, got.ErrorReason) {
			tb.Errorf("PAYMENT-RESPONSE says %q, want %q", got.ErrorReason, w.says)
		}
		want.ErrorReason = got.ErrorReason
	} else if w.blind {
		want.Transaction = ""
	} else if !transactionHash.MatchString(got.Transaction) {
		tb.Errorf("PAYMENT-RESPONSE has transaction %q", got.Transaction)
	}
	checkSigned(tb, e, w, got)
	got.Extensions = x402.ResponseExtensions{}
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("PAYMENT-RESPONSE: %s", d)
	}
	if w.replay {
		is(tb, "PAYMENT-RESPONSE of a replay", raw, s.before.header.Get(x402.HeaderResponse))
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
	info, _ := fault.Of(w.code)
	answers := w.kind == aResult || w.kind == aFault && info.Class == fault.Answer
	if is(tb, "has a signed receipt", signed.Format == x402.FormatJWS, answers); !answers {
		return
	}
	s, kid, err := receipt.Verify(signed.Signature, func(string) (ed25519.PublicKey, error) { return receipt.ParsePublic(receiptPublicKey) })
	path, _, _ := strings.Cut(e.path, "?")
	here := strings.HasSuffix(s.ResourceURL, path) || strings.HasSuffix(s.ResourceURL, catalog.PathMCP)
	if err != nil || !receipt.Authorizes(kid, s) || !s.Covers(e.body) || s.Transaction != got.Transaction || s.Payer != got.Payer || !here {
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

// checkFault: the error body of design §3. That no field is missing is the
// description's.
func checkFault(tb testing.TB, e exchange, w want, s subject) {
	is(tb, "Content-Type", e.header.Get("Content-Type"), jsonType)
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
	if err := strictly(e.body, &body); err != nil {
		tb.Errorf("error body: %v: %s", err, e.body)
		return
	}
	f := body.Error
	is(tb, "code", f.Code, w.code)
	if f.Message == "" || !strings.Contains(f.Message, w.message) {
		tb.Errorf("message %q, want one with %q", f.Message, w.message)
	}
	is(tb, "charged", string(f.Charged), string(w.charged))
	var said *bool
	if json.Unmarshal(f.Charged, &said) == nil && !x402.ChargeOf(f.Code).Allows(said) {
		tb.Errorf("%s says charged %s, and the documents say %s", f.Code, f.Charged, x402.ChargeOf(f.Code))
	}
	is(tb, "retryable", f.Retryable, w.retryable())
	is(tb, "docs_url", body.DocsURL, catalog.ErrorURL(s.origin, w.code))
	if !w.replay {
		is(tb, "request_id", body.RequestID, e.header.Get("X-Request-Id"))
	}
	anywhere := []fault.Code{fault.MethodNotAllowed, fault.IdempotencyConflict, fault.InvalidIdempotencyKey}
	if s.op.Slug != "" && !s.op.Can(w.code) && !slices.Contains(anywhere, w.code) {
		tb.Errorf("%s answers %s, which the catalog does not list for it", s.op.Slug, w.code)
	}
}

// retryToken is the extension with a token of 16 bytes.
var retryToken = regexp.MustCompile(`^\{"info":\{"token":"[A-Za-z0-9_-]{22}"\},"schema":\{`)

// checkOffer: what must be paid, in the header and in the body.
func checkOffer(tb testing.TB, e exchange, w want, s subject) {
	var offer x402.PaymentRequired
	if err := decodeHeader(e.header.Get(x402.HeaderRequired), &offer); err != nil {
		tb.Errorf("PAYMENT-REQUIRED: %v", err)
		return
	}
	if offer.Error == "" || !strings.Contains(offer.Error, w.message) {
		tb.Errorf("the reason is %q, want one with %q", offer.Error, w.message)
	}
	is(tb, "x402Version", offer.X402Version, x402.Version)
	if token := offer.Extensions[x402.ExtensionToken]; !retryToken.Match(token) {
		tb.Errorf("the retry token is %s", token)
	}
	is(tb, "resource.url", offer.Resource.URL, s.origin+s.op.Path)
	if d := cmp.Diff([]x402.Requirements{s.terms.Requirements(s.op.Amount)}, offer.Accepts); d != "" {
		tb.Errorf("accepts: %s", d)
	}
	if w.html {
		is(tb, "Content-Type", e.header.Get("Content-Type"), pageType)
		mentions(tb, "Content-Security-Policy", e.header.Get("Content-Security-Policy"), "default-src 'none'", "frame-ancestors 'none'")
		mentions(tb, "the page", string(e.body), "<!DOCTYPE html>", s.op.Price())
		return
	}
	is(tb, "Content-Type", e.header.Get("Content-Type"), jsonType)
	if w.headless {
		return
	}
	type idempotency struct {
		Header string `json:"header"`
		Replay int    `json:"replay_seconds"`
		Window int    `json:"duplicate_window_seconds"`
	}
	var body struct {
		x402.PaymentRequired
		Code        fault.Code  `json:"code"`
		Message     string      `json:"message"`
		Idempotency idempotency `json:"idempotency"`
	}
	if err := strictly(e.body, &body); err != nil {
		tb.Errorf("402 body: %v: %s", err, e.body)
		return
	}
	if d := cmp.Diff(offer, body.PaymentRequired); d != "" {
		tb.Errorf("header and body of the 402 differ: %s", d)
	}
	is(tb, "code", body.Code, fault.PaymentRequired)
	is(tb, "idempotency", body.Idempotency, idempotency{"Idempotency-Key", 86400, 45})
	is(tb, "has a message", body.Message != "", true)
}

// describedOrigin is the origin that the judging description is rendered for.
const describedOrigin = "https://judge.example.com"

// description is the OpenAPI description that every answer of every world is held
// to. A case wants each world to serve the same.
var description = sync.OnceValue(func() string { return rendered(catalog.PathOpenAPI) })

func rendered(path string) string {
	config := must(boot.ReadLocal(func(string) string { return "" }))
	site := discovery.Site{Origin: describedOrigin, Terms: config.Terms, DuplicateWindow: config.DuplicateWindow}
	doc, _ := must(discovery.Render(site)).Find(path)
	return string(doc.Body)
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
	if e.status < http.StatusBadRequest && (path == "/" || path == "/robots.txt" || path == "/favicon.svg") {
		return
	}
	answer := clients.Answer{Method: e.method, Path: path, Status: e.status, Header: e.header, Body: e.body}
	if err := described().Check(answer); err != nil {
		tb.Error(err)
	}
}
