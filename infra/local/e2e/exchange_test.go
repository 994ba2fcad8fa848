package e2e

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// must is a value that the suite itself makes.
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

// contractWallet replaces a signature by one that only the chain can judge.
func contractWallet(header string) string {
	return resign(func([]byte) []byte { return append([]byte(contractSignature), make([]byte, 80)...) })(header)
}

// signedBy is a payment, and the transfer that it signs.
func signedBy(header string) (p x402.Payload, s testbed.SignedTransfer) {
	if err := json.Unmarshal(must(base64.StdEncoding.DecodeString(header)), &p); err != nil {
		panic(err)
	}
	s.Signature = must(hex.DecodeString(strings.TrimPrefix(p.Payload.Signature, "0x")))
	s.Authorization = p.Payload.Authorization
	return p, s
}

// exchange is a request, and its answer.
type exchange struct {
	method, path string
	x402test.Reply
}

func (e exchange) String() string {
	return fmt.Sprintf("%s %.200s: %d %.1000s", e.method, e.path, e.Status, e.Body)
}

// fault is what an error or an offer says: its code, whether the payer is charged, and
// why. A result says nothing.
func (e exchange) fault() (code, charged, says string) {
	var body struct {
		Code  string
		Error json.RawMessage // a text in an offer
	}
	var inner struct {
		Code, Message string
		Charged       json.RawMessage
	}
	if e.Status < http.StatusBadRequest || json.Unmarshal(e.Body, &body) != nil {
		return "", "", ""
	}
	if _ = json.Unmarshal(body.Error, &inner); inner.Code != "" {
		return inner.Code, string(inner.Charged), inner.Message
	}
	return body.Code, "", string(body.Error)
}

type header map[string]string

// paidBy is the header of a paid request.
func paidBy(signature string) header { return header{x402.HeaderSignature: signature} }

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
