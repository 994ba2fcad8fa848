package e2e

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// subject is who asked for what, and of whom.
type subject struct {
	op     catalog.Operation // of a priced path
	origin string
	terms  x402.Terms
	payer  string   // the account that signed, with checksum; empty when nobody did
	hash   string   // of the payer's transfer, when there is one
	before exchange // the answer that a replay repeats
}

// jsonType is the content type of everything that the service computes.
const jsonType = "application/json; charset=utf-8"

// check holds an answer to what package fault, the catalog and design §3 say
// about it. It is the only place that knows.
func check(tb testing.TB, e exchange, w want, s subject) {
	tb.Helper()
	if e.status != w.of() {
		tb.Errorf("status %d, want %d (%s)\n%s", e.status, w.of(), w.code, e)
		return
	}
	if w.kind == fromGateway {
		return
	}
	checkDescribed(tb, e)
	checkEveryAnswer(tb, e, w)
	checkReceipt(tb, e, w, s)
	switch w.kind {
	case anOffer:
		checkOffer(tb, e, w, s)
	case aFault:
		checkFault(tb, e, w, s)
	case aResult:
		checkResult(tb, e, w)
	case aPreflight, aNotModified:
		is(tb, "body", string(e.body), "")
	case aDocument, fromGateway:
	}
	if w.replay && !bytes.Equal(e.body, s.before.body) {
		tb.Errorf("the replay differs:\n%s\n%s", e.body, s.before.body)
	}
	if w.bodiless != (len(e.body) == 0) && w.kind != aPreflight && w.kind != aNotModified {
		tb.Errorf("%d bytes of body", len(e.body))
	}
}

func is[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: %v, want %v", what, got, want)
	}
}

// mentions holds a text to parts of it.
func mentions(tb testing.TB, what, text string, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			tb.Errorf("%s lacks %q:\n%.2000s", what, part, text)
		}
	}
}

// checkEveryAnswer is about headers: CORS, caching, waiting, and none that
// does not belong.
func checkEveryAnswer(tb testing.TB, e exchange, w want) {
	tb.Helper()
	h := e.header
	is(tb, "Access-Control-Allow-Origin", h.Get("Access-Control-Allow-Origin"), "*")
	is(tb, "X-Content-Type-Options", h.Get("X-Content-Type-Options"), "nosniff")
	for _, name := range []string{"PAYMENT-REQUIRED", "PAYMENT-RESPONSE", "Retry-After", "Idempotent-Replayed", "Age", "Answer-Owed", "RateLimit-Policy"} {
		if !listed(h.Get("Access-Control-Expose-Headers"), name) {
			tb.Errorf("Access-Control-Expose-Headers %q lacks %s", h.Get("Access-Control-Expose-Headers"), name)
		}
	}
	if h.Get("X-Request-Id") == "" {
		tb.Error("no X-Request-Id")
	}
	is(tb, "Idempotent-Replayed", h.Get(x402.HeaderReplayed), map[bool]string{true: "true"}[w.replay])
	if age := h.Get("Age"); age != "" && (!w.replay || !regexp.MustCompile(`^[0-9]+$`).MatchString(age)) {
		tb.Errorf("Age %q, replayed: %v", age, w.replay)
	}
	is(tb, "has PAYMENT-REQUIRED", h.Get(x402.HeaderRequired) != "", w.kind == anOffer)
	switch w.kind {
	case aResult:
		is(tb, "Cache-Control", h.Get("Cache-Control"), "private, no-store")
	case anOffer, aFault:
		is(tb, "Cache-Control", h.Get("Cache-Control"), "no-store")
	case aDocument, aPreflight, aNotModified, fromGateway: // theirs stand in the table, if any
	}
	if w.kind == anOffer || w.charged == moved {
		is(tb, "Vary", h.Get("Vary"), "Accept, PAYMENT-SIGNATURE, Idempotency-Key")
	}
	checkWait(tb, h.Get("Retry-After"), w)
	for name, value := range w.header {
		is(tb, name, h.Get(name), value)
	}
	mentions(tb, "the body", string(e.body), w.contains...)
}

// listed says whether a comma-separated list has an element, in any case.
func listed(list, element string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(item), element) {
			return true
		}
	}
	return false
}

// checkWait: Retry-After on every 429 and 503 and on whatever else may be asked
// for again, a 409 that will pass included, in whole seconds, and nowhere else.
func checkWait(tb testing.TB, value string, w want) {
	tb.Helper()
	due := w.of() == http.StatusTooManyRequests || w.of() == http.StatusServiceUnavailable || w.kind == aFault && w.retryable()
	seconds, err := strconv.Atoi(value)
	switch {
	case !due && value != "":
		tb.Errorf("Retry-After %q on %d %s", value, w.of(), w.code)
	case due && (err != nil || seconds < 1 || seconds > 600):
		tb.Errorf("Retry-After %q on %d %s, want whole seconds", value, w.of(), w.code)
	}
}

var transactionHash = regexp.MustCompile(`^0x[0-9a-f]{64}$`)

// checkReceipt: PAYMENT-RESPONSE on every answer after a settlement, and after
// a refused one.
func checkReceipt(tb testing.TB, e exchange, w want, s subject) {
	tb.Helper()
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
		if got.ErrorReason == "" || !strings.Contains(w.message, got.ErrorReason) {
			tb.Errorf("PAYMENT-RESPONSE says %q, the offer %q", got.ErrorReason, w.message)
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
	tb.Helper()
	signed := got.Extensions.OfferReceipt.Info.Receipt
	info, _ := fault.Of(w.code)
	answers := w.kind == aResult || w.kind == aFault && info.Class == fault.Answer
	if is(tb, "has a signed receipt", signed.Format == x402.FormatJWS, answers); !answers {
		return
	}
	s, kid, err := receipt.Verify(signed.Signature, func(string) (ed25519.PublicKey, error) { return receipt.ParsePublic(receiptPublicKey) })
	path, _, _ := strings.Cut(e.path, "?")
	if err != nil || !receipt.Authorizes(kid, s) || !s.Covers(e.body) || s.Transaction != got.Transaction || s.Payer != got.Payer || !strings.HasSuffix(s.ResourceURL, path) && !strings.HasSuffix(s.ResourceURL, catalog.PathMCP) {
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

// checkFault: the error body of design §3, every field and no field more.
func checkFault(tb testing.TB, e exchange, w want, s subject) {
	tb.Helper()
	is(tb, "Content-Type", e.header.Get("Content-Type"), jsonType)
	var body struct {
		Error *struct {
			Code      *fault.Code     `json:"code"`
			Message   *string         `json:"message"`
			Charged   json.RawMessage `json:"charged"`
			Retryable *bool           `json:"retryable"`
		} `json:"error"`
		RequestID *string `json:"request_id"`
		DocsURL   *string `json:"docs_url"`
	}
	if w.bodiless { // HEAD
		return
	}
	if err := strictly(e.body, &body); err != nil {
		tb.Errorf("error body: %v: %s", err, e.body)
		return
	}
	f := body.Error
	if f == nil || f.Code == nil || f.Message == nil || f.Charged == nil || f.Retryable == nil || body.RequestID == nil || body.DocsURL == nil {
		tb.Errorf("the error body lacks a field: %s", e.body)
		return
	}
	is(tb, "code", *f.Code, w.code)
	if *f.Message == "" || !strings.Contains(*f.Message, w.message) {
		tb.Errorf("message %q, want one with %q", *f.Message, w.message)
	}
	is(tb, "charged", string(f.Charged), map[money]string{unmoved: "false", moved: "true", unknown: "null"}[w.charged])
	var said *bool
	if json.Unmarshal(f.Charged, &said) == nil && !x402.ChargeOf(*f.Code).Allows(said) {
		tb.Errorf("%s says charged %s, and the documents say %s", *f.Code, f.Charged, x402.ChargeOf(*f.Code))
	}
	is(tb, "retryable", *f.Retryable, w.retryable())
	is(tb, "docs_url", *body.DocsURL, catalog.ErrorURL(s.origin, w.code))
	if !w.replay {
		is(tb, "request_id", *body.RequestID, e.header.Get("X-Request-Id"))
	}
	if s.op.Slug != "" && !s.op.Can(w.code) && w.code != fault.MethodNotAllowed && w.code != fault.IdempotencyConflict && w.code != fault.InvalidIdempotencyKey {
		tb.Errorf("%s answers %s, which the catalog does not list for it", s.op.Slug, w.code)
	}
}

// retryToken is the extension with a token of 16 bytes.
var retryToken = regexp.MustCompile(`^\{"info":\{"token":"[A-Za-z0-9_-]{22}"\},"schema":\{`)

// checkOffer: what must be paid, in the header and in the body.
func checkOffer(tb testing.TB, e exchange, w want, s subject) {
	tb.Helper()
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
		is(tb, "Content-Type", e.header.Get("Content-Type"), "text/html; charset=utf-8")
		if csp := e.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
			tb.Errorf("Content-Security-Policy %q", csp)
		}
		if body := string(e.body); !strings.HasPrefix(body, "<!DOCTYPE html>") || !strings.Contains(body, s.op.Price()) {
			tb.Errorf("the page does not show the price %s: %.300s", s.op.Price(), body)
		}
		return
	}
	is(tb, "Content-Type", e.header.Get("Content-Type"), jsonType)
	if w.bodiless { // HEAD
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
	if body.Message == "" {
		tb.Error("a 402 without a message")
	}
}

// checkResult: the expected values. The fields are the description's.
func checkResult(tb testing.TB, e exchange, w want) {
	tb.Helper()
	is(tb, "Content-Type", e.header.Get("Content-Type"), jsonType)
	if w.body != "" {
		is(tb, "body", string(e.body), w.body)
	}
}
