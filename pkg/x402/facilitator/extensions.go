package facilitator

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

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
// printable. Garbage is ignored, because the note must never change the outcome of a
// payment.
func extensionResponses(h http.Header) map[string]string {
	values := h.Values(headerExtensionResponses)
	if len(values) != 1 || len(values[0]) > maxExtensionHeader {
		return nil
	}
	// The reference servers pad, and others may not. What is not base64 is not an object.
	raw, _ := base64.RawStdEncoding.DecodeString(strings.TrimRight(values[0], "="))
	all, _ := untrusted.Parse(raw, maxDepth)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if isExtension(name) && len(names) < maxExtensions {
			names = append(names, name)
		}
	}
	out := map[string]string{}
	for _, name := range names {
		fields, _ := all[name].(untrusted.Object)
		for _, field := range extensionFields() {
			switch v := fields[field].(type) {
			case string, json.Number:
				if v != "" {
					out[name+"."+field] = foreign(fmt.Sprint(v), maxReason)
				}
			}
		}
	}
	return out
}

// isExtension reports whether a name looks like that of an extension.
func isExtension(name string) bool {
	return regexp.MustCompile(`^[0-9A-Za-z_.-]+$`).MatchString(name) && foreign(name, maxExtensionName) == name
}
