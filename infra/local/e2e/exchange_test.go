package e2e

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
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
	// receipt: PAYMENT-RESPONSE is there. It says success, or, on a 402, why not. blind: nobody
	// has told the service the transaction. paid: it says success on a 402 too.
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

// spent is the offer again for an authorization that has paid: PAYMENT-RESPONSE says so.
func spent(reason string) want {
	w := declined(reason)
	w.paid = true
	return w
}

func fails(code fault.Code) want {
	w := want{kind: aFault, code: code, charged: unmoved}
	switch info, _ := catalog.CodeOf(code); info.Class {
	case fault.Answer, fault.Owed:
		w.charged, w.receipt = moved, true
	case fault.NoCharge:
		if !x402.ChargeOf(info).No {
			w.charged = unknown
		}
	}
	return w
}

// result is a 200 with exactly this body; empty stands for any that has the catalog's shape.
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

func (w want) empty() want { w.headless = true; return w }

func (w want) with(name, value string) want {
	h := header{name: value}
	maps.Copy(h, w.header)
	w.header = h
	return w
}

func (w want) of() int {
	if info, ok := catalog.CodeOf(w.code); ok {
		return info.Status
	}
	return w.status
}

func (w want) retryable() bool {
	info, _ := catalog.CodeOf(w.code)
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

// resign changes the signature of a payment.
func resign(change func([]byte) []byte) func(string) string {
	return func(header string) string {
		p, s := signedBy(header)
		p.Payload.Signature = "0x" + hex.EncodeToString(change(s.Signature))
		return must(x402.EncodeHeader(p))
	}
}

// signedBy is a payment, and the transfer that it signs.
func signedBy(header string) (p x402.Payload, s testbed.SignedTransfer) {
	if err := decodeHeader(header, &p); err != nil {
		panic(err)
	}
	s.Signature = must(hex.DecodeString(strings.TrimPrefix(p.Payload.Signature, "0x")))
	s.Authorization = p.Payload.Authorization
	return p, s
}

// flip makes a signature one of another account, and contractWallet replaces it by
// one that only the chain can judge.
var (
	flip           = resign(func(b []byte) []byte { return append(b[:64], b[64]^27^28) })
	contractWallet = resign(func([]byte) []byte { return append([]byte(contractSignature), make([]byte, 80)...) })
)

// named gives the payment a name of the payer's own. The echo repeats the schema that
// was offered.
func named(d *x402test.Draft) {
	const extension = "payment-identifier"
	info := []byte(`"info":{"required":false,"id":"e2e_identifier-1"}`)
	d.Payload.Extensions[extension] = regexp.MustCompile(`"info":\{[^}]*\}`).ReplaceAll(d.Payload.Extensions[extension], info)
}

type exchange struct {
	method, path string
	x402test.Reply
}

func (e exchange) String() string {
	return fmt.Sprintf("%s %.200s: %d %.1000s", e.method, e.path, e.Status, e.Body)
}

func codeOf(e exchange) string {
	var body struct{ Error struct{ Code string } }
	_ = json.Unmarshal(e.Body, &body) // a result has no error
	return body.Error.Code
}

// paidBy is the header of a paid request.
func paidBy(signature string) header { return header{x402.HeaderSignature: signature} }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err()
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
func (d *deployment) send(ctx context.Context, c *http.Client, method, path string, h header) (exchange, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, nil)
	if err != nil {
		return exchange{}, err
	}
	req.Header.Set("Accept", "application/json")
	for name, value := range h {
		req.Header.Set(name, value)
	}
	res, err := c.Do(req)
	if err != nil {
		return exchange{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	return exchange{method, path, x402test.Reply{Status: res.StatusCode, Header: res.Header, Body: body}}, err
}
