package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// safeText is text of several lines that is already safe for a terminal.
type safeText string

// formatSafe formats a line for a terminal. An argument that is neither a number nor a
// safeText may contain text from a server or a person, so it is made safe and put on one line.
func formatSafe(format string, args ...any) string {
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			args[i] = untrusted.Text(v)
		case error:
			args[i] = untrusted.Text(v.Error())
		case fmt.Stringer:
			args[i] = untrusted.Text(v.String())
		}
	}
	return fmt.Sprintf(format, args...)
}

// newSafeError returns an error with a formatted text that is safe for a terminal.
func newSafeError(format string, args ...any) error { return errors.New(formatSafe(format, args...)) }

func (p *payer) printNote(format string, args ...any) {
	fmt.Fprint(p.notes, formatSafe(format, args...))
}

// printStatus prints one line about the answer to a signature. If the line would repeat the
// previous one, printStatus prints a shorter line.
func (p *payer) printStatus(r x402test.Reply) {
	line := formatSafe("%d %s", r.Status, http.StatusText(r.Status))
	more := func(format string, args ...any) { line += ", " + formatSafe(format, args...) }
	for _, name := range []string{x402.HeaderReplayed, x402.HeaderAge, x402.HeaderOwed} {
		if v := r.Header.Get(name); v != "" {
			more("%s: %s", name, v)
		}
	}
	settled, _ := r.Receipt()
	if settled.Transaction != "" {
		more("transaction %s", settled.Transaction)
	}
	f := parseBodyError(r.Body)
	switch {
	case f.Code != "":
		more("%s: %s (charged: %s, retryable: %s)", f.Code, f.Message,
			cmp.Or(strings.TrimPrefix(string(f.Charged), "null"), "not known"), cmp.Or(string(f.Retryable), "not said"))
	case r.Status == http.StatusPaymentRequired:
		if o, err := parseOfferHeader(r.Header.Get(x402.HeaderRequired)); err == nil && o.Error != "" {
			more("%s", o.Error)
		}
	}
	if settled.ErrorReason != "" {
		more("%s", settled.ErrorReason)
	}
	if line == p.lastStatus {
		line = formatSafe("%d %s, as before", r.Status, http.StatusText(r.Status))
	} else {
		p.lastStatus = line
	}
	if v := r.Header.Get("X-Request-Id"); v != "" && r.Status != http.StatusOK {
		more("request %s", v)
	}
	p.printNote("status:  %s\n", safeText(line))
}

// printHeaders prints, with V=1, the first line of a request or an answer and its decoded
// payment headers.
func (p *payer) printHeaders(h http.Header, first string, args ...any) {
	if !p.verbose {
		return
	}
	p.printNote(first, args...)
	for _, name := range []string{x402.HeaderKey, x402.HeaderReplayed, x402.HeaderAge, x402.HeaderOwed, "Retry-After", "X-Request-Id"} {
		if v := h.Get(name); v != "" {
			p.printNote("  %s: %s\n", name, v)
		}
	}
	for _, name := range []string{x402.HeaderSignature, x402.HeaderRequired, x402.HeaderResponse} {
		if v := h.Get(name); v != "" {
			p.printNote("  %s, decoded:\n%s\n", name, decodeHeader(v))
		}
	}
}

// bodyError is the error in the body of an answer. If the body has no error, the fields of
// bodyError are empty.
type bodyError struct {
	Code      string          `json:"code"`
	Message   string          `json:"message"`
	Charged   json.RawMessage `json:"charged"`
	Retryable json.RawMessage `json:"retryable"`
}

func parseBodyError(body []byte) bodyError {
	var b struct {
		Error bodyError `json:"error"`
	}
	// The body may be anything. In a 402 the error is a string, not an object.
	if err := json.Unmarshal(body, &b); err != nil {
		return bodyError{}
	}
	return b.Error
}

// decodeHeader returns the JSON in a base64 header. It omits the JSON Schemas of the
// extensions, which are longer than the rest of the header.
func decodeHeader(header string) safeText {
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return "    (not base64)"
	}
	var top map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&top) != nil {
		return "    (not JSON)"
	}
	extensions, _ := top["extensions"].(map[string]any)
	for _, e := range extensions {
		if e, is := e.(map[string]any); is {
			delete(e, "schema")
		}
	}
	all, err := json.MarshalIndent(top, "    ", "  ")
	if err != nil {
		return "    (not JSON)"
	}
	return safeText("    " + string(untrusted.EscapeJSON(all)))
}

// formatBody formats the body of an answer for people. It indents JSON. In any form, the text
// is safe for a terminal.
func formatBody(body []byte) safeText {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(body), "", "  "); err != nil {
		return safeText(untrusted.Lines(string(body)))
	}
	return safeText(untrusted.EscapeJSON(b.Bytes()))
}
