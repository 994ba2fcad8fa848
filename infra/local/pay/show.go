package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// status prints in a line what a signature was answered.
func (p *payer) status(r x402test.Reply) {
	parts := []string{strings.TrimSpace(fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status)))}
	for _, name := range []string{x402.HeaderReplayed, x402.HeaderAge, x402.HeaderOwed} {
		if v := r.Header.Get(name); v != "" {
			parts = append(parts, name+": "+printable.Text(v))
		}
	}
	settled, err := r.Receipt()
	if err == nil && settled.Transaction != "" {
		parts = append(parts, "transaction "+printable.Text(settled.Transaction))
	}
	f := failure(r.Body)
	switch {
	case f.Code != "":
		parts = append(parts, fmt.Sprintf("%s: %s (charged: %s, retryable: %s)", printable.Text(f.Code), printable.Text(f.Message), word(f.Charged, "not known"), word(f.Retryable, "not said")))
	case r.Status == http.StatusPaymentRequired:
		if o, err := readOffer(r.Header.Get(x402.HeaderRequired)); err == nil && o.Error != "" {
			parts = append(parts, printable.Text(o.Error))
		}
	}
	if err == nil && settled.ErrorReason != "" {
		parts = append(parts, printable.Text(settled.ErrorReason))
	}
	if v := r.Header.Get("X-Request-Id"); v != "" && r.Status != http.StatusOK {
		parts = append(parts, "request "+printable.Text(v))
	}
	fmt.Fprintf(p.notes, "status:  %s\n", strings.Join(parts, ", "))
}

// showRequest prints a request, decoded, when everything is to be shown.
func (p *payer) showRequest(signature string) {
	if !p.verbose {
		return
	}
	fmt.Fprintf(p.notes, "→ GET %s\n", printable.Text(p.url))
	if p.key != "" {
		fmt.Fprintf(p.notes, "  %s: %s\n", x402.HeaderKey, printable.Text(p.key))
	}
	if signature != "" {
		fmt.Fprintf(p.notes, "  %s, decoded:\n%s\n", x402.HeaderSignature, decoded(signature))
	}
}

// show prints an answer's status and its payment headers, decoded, when everything
// is to be shown.
func (p *payer) show(r x402test.Reply) {
	if !p.verbose {
		return
	}
	fmt.Fprintf(p.notes, "← %d %s\n", r.Status, http.StatusText(r.Status))
	for _, name := range []string{x402.HeaderReplayed, x402.HeaderAge, x402.HeaderOwed, "Retry-After", "X-Request-Id"} {
		if v := r.Header.Get(name); v != "" {
			fmt.Fprintf(p.notes, "  %s: %s\n", name, printable.Text(v))
		}
	}
	for _, name := range []string{x402.HeaderRequired, x402.HeaderResponse} {
		if v := r.Header.Get(name); v != "" {
			fmt.Fprintf(p.notes, "  %s, decoded:\n%s\n", name, decoded(v))
		}
	}
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
	if err := json.Indent(&b, withoutSchemas(raw), "    ", "  "); err != nil {
		return "    (not JSON)"
	}
	return "    " + string(printable.JSON(b.Bytes()))
}

// withoutSchemas leaves out the JSON Schemas of a header's extensions, which are
// longer than everything else. A text that has none is returned as it is.
func withoutSchemas(raw []byte) []byte {
	var top map[string]json.RawMessage
	var extensions map[string]map[string]json.RawMessage
	if json.Unmarshal(raw, &top) != nil || json.Unmarshal(top["extensions"], &extensions) != nil {
		return raw
	}
	for _, e := range extensions {
		delete(e, "schema")
	}
	all, err := json.Marshal(extensions)
	if err != nil {
		return raw
	}
	top["extensions"] = all
	short, err := json.Marshal(top)
	if err != nil {
		return raw
	}
	return short
}

// readable is a body as a person reads it.
func readable(body []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(body), "", "  "); err != nil {
		return printable.Lines(string(body))
	}
	return string(printable.JSON(b.Bytes()))
}
