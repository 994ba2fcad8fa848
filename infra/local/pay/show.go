package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// show prints an answer's status, its payment headers, decoded, and what it
// says of an error.
func (p *payer) show(r x402test.Reply) {
	fmt.Fprintf(p.notes, "← %d %s\n", r.Status, http.StatusText(r.Status))
	for _, name := range []string{"Idempotent-Replayed", "Age", "Answer-Owed", "Retry-After", "X-Request-Id"} {
		if v := r.Header.Get(name); v != "" {
			fmt.Fprintf(p.notes, "  %s: %s\n", name, printable.Text(v))
		}
	}
	for _, name := range []string{"PAYMENT-REQUIRED", "PAYMENT-RESPONSE"} {
		if v := r.Header.Get(name); v != "" {
			fmt.Fprintf(p.notes, "  %s, decoded:\n%s\n", name, decoded(v))
		}
	}
	if f := failure(r.Body); f.Code != "" {
		fmt.Fprintf(p.notes, "  %s: %s\n  charged: %s, retryable: %s\n", printable.Text(f.Code), printable.Text(f.Message), word(f.Charged, "not known"), word(f.Retryable, "not said"))
	}
	fmt.Fprintln(p.notes)
}

// failed is the error of an answer; empty when it is none.
type failed struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Charged   *bool  `json:"charged"`
	Retryable *bool  `json:"retryable"`
}

func failure(body []byte) failed {
	var b struct {
		Error failed `json:"error"`
	}
	// The answer may be anything, and a 402's error is a string.
	if err := json.Unmarshal(body, &b); err != nil {
		return failed{}
	}
	return b.Error
}

func word(b *bool, unknown string) string {
	if b == nil {
		return unknown
	}
	return fmt.Sprint(*b)
}

func decoded(header string) string {
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return "    (not base64)"
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "    ", "  "); err != nil {
		return "    (not JSON)"
	}
	return "    " + string(printable.JSON(b.Bytes()))
}

// readable is a body as a person reads it.
func readable(body []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(body), "", "  "); err != nil {
		return printable.Lines(string(body))
	}
	return string(printable.JSON(b.Bytes()))
}
