package facilitator

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

const (
	// headerExtensionResponses is the facilitator's note to the server about
	// the extensions of a payment, base64 of a JSON object keyed by extension.
	// It is the only feedback on discovery listing.
	headerExtensionResponses = "EXTENSION-RESPONSES"

	maxExtensionHeader = 8 << 10 // bytes, encoded
	maxExtensions      = 8
	maxExtensionName   = 64
)

// extensionFields are what may be logged of an extension's response. The rest
// can hold anything.
func extensionFields() []string { return []string{"status", "rejectedReason", "reason", "code"} }

// extensionResponses reduces the note to "extension.field" -> value, bounded
// and printable. It returns nil when there is nothing to keep; garbage is
// ignored, because the note must never change the outcome of a payment.
func extensionResponses(h http.Header) map[string]string {
	values := h.Values(headerExtensionResponses)
	if len(values) != 1 || len(values[0]) > maxExtensionHeader {
		return nil
	}
	// The reference servers pad, and others may not.
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(values[0], "="))
	if err != nil {
		return nil
	}
	all, err := parseObject(raw)
	if err != nil {
		return nil
	}
	var out map[string]string
	kept := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if kept == maxExtensions {
			break
		}
		if !isCode(name) || foreign(name, maxExtensionName) != name {
			continue
		}
		one, err := parseObject(all[name])
		if err != nil {
			continue
		}
		kept++
		for _, field := range extensionFields() {
			if v, ok := scalar(one[field]); ok {
				if out == nil {
					out = map[string]string{}
				}
				out[name+"."+field] = v
			}
		}
	}
	return out
}

// scalar returns a non-empty string or a number as bounded text.
func scalar(raw json.RawMessage) (string, bool) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return foreign(v, maxReason), v != ""
	case float64:
		return printable.Clip(string(raw), maxReason), true
	}
	return "", false
}
