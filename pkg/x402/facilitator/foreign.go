package facilitator

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
)

// maxDigits is how many characters of hexadecimal digits or base64 may stand in a row: as
// many as in an address.
const maxDigits = 40

// foreign is a facilitator's text as it may be logged and kept: fit to be read, and
// without any run of hexadecimal digits or base64 longer than an address, because some
// facilitators quote the call that they made, signature and all.
func foreign(s string, limit int) string {
	s = printable.Clip(s, limit)
	if len(s) <= maxDigits {
		return s
	}
	return regexp.MustCompile(`[0-9A-Za-z+/]{41,}`).ReplaceAllStringFunc(s, func(run string) string {
		if len(run) == maxDigits+2 && strings.HasPrefix(run, "0x") {
			return run
		}
		return run[:8] + "..."
	})
}

const (
	// headerExtensionResponses is the facilitator's note to the server about the
	// extensions of a payment, base64 of a JSON object keyed by extension. It is the
	// only feedback on discovery listing.
	headerExtensionResponses = "EXTENSION-RESPONSES"

	maxExtensionHeader = 8 << 10 // bytes, encoded
	maxExtensions      = 8
	maxExtensionName   = 64
)

// extensionFields are what may be logged of an extension's response. The rest can hold
// anything.
func extensionFields() []string { return []string{"status", "rejectedReason", "reason", "code"} }

// extensionResponses reduces the note to "extension.field" -> value, bounded and
// printable. It returns nil when there is nothing to keep; garbage is ignored, because the
// note must never change the outcome of a payment.
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
	all, _ := parseObject(raw)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return !isExtension(name) })
	var out map[string]string
	for _, name := range names[:min(len(names), maxExtensions)] {
		one, _ := parseObject(all[name])
		for _, field := range extensionFields() {
			v := scalar(one[field])
			if v == "" {
				continue
			}
			if out == nil {
				out = map[string]string{}
			}
			out[name+"."+field] = v
		}
	}
	return out
}

// isExtension reports whether a name looks like that of an extension.
func isExtension(name string) bool {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	return name != "" && strings.Trim(name, alphabet) == "" && foreign(name, maxExtensionName) == name
}

// scalar is a string or a number as bounded text, empty for anything else.
func scalar(raw json.RawMessage) string {
	var s string
	var n float64
	switch {
	case json.Unmarshal(raw, &s) == nil:
		return foreign(s, maxReason)
	case json.Unmarshal(raw, &n) == nil:
		return printable.Clip(string(raw), maxReason)
	}
	return ""
}
