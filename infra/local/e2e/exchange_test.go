package e2e

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

type kind int

const (
	aResult     kind = iota // 200 of a priced operation
	aFault                  // an error in our JSON form
	anOffer                 // a 402
	aDocument               // a free path
	bodiless                // the answer to OPTIONS, and 304
	fromGateway             // the gateway's own, which the code never sees
)

// money is what an answer says about the payment.
type money string

const (
	unmoved money = "false"
	moved   money = "true"
	unknown money = "null"
)

// want is what an answer must be. Only what the code of the answer does not
// say by itself is here.
type want struct {
	kind    kind
	code    fault.Code
	status  int    // of what has no code
	message string // part of it
	says    string // what PAYMENT-RESPONSE says of a refusal is a part of it
	charged money
	// replay: the stored answer, byte for byte.
	replay bool
	// receipt: PAYMENT-RESPONSE is there. It says success, or, on a 402, why
	// not. blind: nobody has told the service the transaction.
	// paid: it says success on a 402 too.
	receipt, blind, paid bool
	body                 string // of a result, exactly; {name} is the case's lab name
	header               header // further headers, exactly
	contains             []string
	html, headless       bool // a page; the answer to HEAD
}

func refused(reason string) want {
	return want{kind: anOffer, code: fault.PaymentRequired, message: reason, charged: unmoved}
}

func unpaid() want { return refused("Payment required") }

// declined is a settlement that was refused: both payment headers.
func declined(reason string) want {
	w := refused(reason)
	w.receipt, w.says = true, reason
	return w
}

// spent is the offer again for an authorization that has paid: PAYMENT-RESPONSE
// says so.
func spent(reason string) want {
	w := declined(reason)
	w.paid = true
	return w
}

func fails(code fault.Code) want {
	w := want{kind: aFault, code: code, charged: unmoved}
	switch info, _ := fault.Of(code); info.Class {
	case fault.Answer, fault.Owed:
		w.charged, w.receipt = moved, true
	case fault.Standing:
		if !x402.ChargeOf(code).No {
			w.charged = unknown
		}
	}
	return w
}

// result is a 200 with exactly this body; empty stands for any that has the
// catalog's shape.
func result(body string) want {
	return want{kind: aResult, status: http.StatusOK, charged: moved, receipt: true, body: body}
}

func document(status int, contentType, cache string, contains ...string) want {
	return want{kind: aDocument, status: status, header: header{"Content-Type": contentType, "Cache-Control": cache}, contains: contains}
}

func (w want) saying(part string) want { w.message = part; return w }

func (w want) charge(m money) want {
	w.charged, w.receipt = m, m == moved
	return w
}

// withoutHash is an answer for money that moved in a transaction that the
// service has not been told.
func (w want) withoutHash() want { w.blind = true; return w }

func (w want) replayed() want { w.replay = true; return w }
func (w want) page() want     { w.html = true; return w }

// empty is the answer to HEAD.
func (w want) empty() want { w.headless = true; return w }

func (w want) with(name, value string) want {
	h := header{name: value}
	maps.Copy(h, w.header)
	w.header = h
	return w
}

func (w want) of() int {
	if info, ok := fault.Of(w.code); ok {
		return info.Status
	}
	return w.status
}

// retryable says whether the same signature may come again.
func (w want) retryable() bool {
	info, _ := fault.Of(w.code)
	return info.Retry
}

// The ways to spoil a payment after it was signed. They panic on a header that
// is not what the wallet makes, which would be a fault of the suite.

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func reencode(change func(string) string) func(string) string {
	return func(header string) string {
		raw := must(base64.StdEncoding.DecodeString(header))
		return base64.StdEncoding.EncodeToString([]byte(change(string(raw))))
	}
}

func resign(change func([]byte) []byte) func(string) string {
	return reencode(func(s string) string {
		var p x402.Payload
		if err := json.Unmarshal([]byte(s), &p); err != nil {
			panic(err)
		}
		b := must(hex.DecodeString(strings.TrimPrefix(p.Payload.Signature, "0x")))
		p.Payload.Signature = "0x" + hex.EncodeToString(change(b))
		return string(must(json.Marshal(p)))
	})
}

// highS mirrors s to the other half of the curve's order: valid mathematics,
// and refused by the token.
var highS = resign(func(b []byte) []byte {
	order, _ := new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)
	new(big.Int).Sub(order, new(big.Int).SetBytes(b[32:64])).FillBytes(b[32:64])
	return flip(b)
})

// flip makes a signature one of another account.
func flip(b []byte) []byte {
	b[64] ^= 27 ^ 28
	return b
}

// contractWallet replaces the signature by one that only the chain can judge.
var contractWallet = resign(func([]byte) []byte { return append([]byte(contractSignature), make([]byte, 80)...) })

// named gives the payment a name of the payer's own. The echo repeats the schema that
// was offered.
func named(d *x402test.Draft) {
	const extension = "payment-identifier"
	info := []byte(`"info":{"required":false,"id":"e2e_identifier-1"}`)
	d.Payload.Extensions[extension] = regexp.MustCompile(`"info":\{[^}]*\}`).ReplaceAll(d.Payload.Extensions[extension], info)
}

// strayBits sets bits in the last letter that belong to no byte: another
// spelling of the same payment.
func strayBits(header string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for !strings.HasSuffix(header, "==") {
		header = reencode(func(s string) string { return s + " " })(header)
	}
	last := len(header) - 3
	return header[:last] + string(alphabet[strings.IndexByte(alphabet, header[last])+1]) + header[last+1:]
}

type exchange struct {
	method, path string
	status       int
	header       http.Header
	body         []byte
}

func (e exchange) String() string {
	return fmt.Sprintf("%s %.200s: %d %.1000s", e.method, e.path, e.status, e.body)
}

func codeOf(e exchange) string {
	var body struct{ Error struct{ Code string } }
	_ = json.Unmarshal(e.body, &body) // a result has no error
	return body.Error.Code
}

// paidBy is the header of a paid request; without a signature, of one that is not.
func paidBy(signature string) http.Header {
	if signature == "" {
		return nil
	}
	return http.Header{http.CanonicalHeaderKey(x402.HeaderSignature): {signature}}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// retryAfter is how long an answer asks its client to wait; 0 for one that does not.
func (e exchange) retryAfter() time.Duration { return x402test.Reply{Header: e.header}.RetryAfter() }

func (e exchange) offer(tb testing.TB) x402.PaymentRequired {
	tb.Helper()
	required, err := x402test.Reply{Status: e.status, Header: e.header, Body: e.body}.Required()
	if err != nil {
		tb.Fatal(err)
	}
	return required
}

type header map[string]string

// newClient follows no redirect and decodes nothing: answers are seen as sent.
func newClient() *http.Client {
	return &http.Client{
		Timeout: patience,
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: patience}).DialContext,
			MaxIdleConnsPerHost: 16, IdleConnTimeout: 5 * time.Second, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send makes one request. Accept is application/json unless h says otherwise.
// Where the store is a server with production's time-outs, a machine that is
// busy with something else can make it look unavailable; send then does what
// the answer asks a client to do. A claim whose reply was too late stands all
// the same, and then the next answer is 409 until its lease is over.
func (d *deployment) send(ctx context.Context, c *http.Client, method, path string, h http.Header) (exchange, error) {
	begun, slow := time.Now(), 0
	for {
		req, err := http.NewRequestWithContext(ctx, method, d.base+path, nil)
		if err != nil {
			return exchange{}, err
		}
		req.Header.Set("Accept", "application/json")
		maps.Copy(req.Header, h)
		res, err := c.Do(req)
		if err != nil {
			return exchange{}, err
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
		res.Body.Close()
		e := exchange{method: method, path: path, status: res.StatusCode, header: res.Header, body: body}
		switch {
		case err != nil || d.slow == nil:
			return e, err
		case d.slow(e) && slow < 2:
			slow++
		case e.status == http.StatusConflict && slow > 0 && time.Since(begun) < patience:
		default:
			return e, nil
		}
		if err := pause(ctx, e.retryAfter()); err != nil {
			return e, err
		}
	}
}

// get is send for a test that cannot go on without an answer.
func (d *deployment) get(tb testing.TB, c *http.Client, path, signature string) exchange {
	tb.Helper()
	e, err := d.send(tb.Context(), c, http.MethodGet, path, paidBy(signature))
	if err != nil {
		tb.Fatalf("GET %.200s: %v", path, err)
	}
	return e
}
