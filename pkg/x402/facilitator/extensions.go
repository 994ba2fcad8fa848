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
	// headerExtensionResponses is the header in which the facilitator reports on the
	// extensions of a payment. Its value is the base64 of a JSON object whose members are
	// named after the extensions. No other feedback tells a seller whether its offer was
	// listed for discovery.
	headerExtensionResponses = "EXTENSION-RESPONSES"

	maxExtensionHeader = 8 << 10 // maximum length of the header's value, in bytes of base64
	maxExtensions      = 8
	maxExtensionName   = 64
)

// extensionFields returns the names of those members of an extension's response that may be
// logged. Other members may contain anything.
func extensionFields() []string { return []string{"status", "rejectedReason", "reason", "code"} }

// extensionResponses returns the responses in a header as a map from "extension.field" to a
// value. The values are clipped and printable. extensionResponses ignores everything that it
// cannot decode, because the header must never change the outcome of a payment.
func extensionResponses(h http.Header) map[string]string {
	values := h.Values(headerExtensionResponses)
	if len(values) != 1 || len(values[0]) > maxExtensionHeader {
		return nil
	}
	// The reference servers pad the base64; other servers may not. If decoding fails, no
	// object is found.
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
					out[name+"."+field] = loggableText(fmt.Sprint(v), maxReason)
				}
			}
		}
	}
	return out
}

// isExtension reports whether a name may be logged as the name of an extension: it has only
// letters, digits and a few signs, and is short.
func isExtension(name string) bool {
	return regexp.MustCompile(`^[0-9A-Za-z_.-]+$`).MatchString(name) && loggableText(name, maxExtensionName) == name
}
