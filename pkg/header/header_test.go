package header_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/header"
)

// Browsers compare the allowed names in lower case, and each list names a header
// once.
func TestLists(t *testing.T) {
	t.Parallel()
	for what, list := range map[string][]string{"exposed": header.Exposed(), "allowed": header.Allowed()} {
		seen := map[string]bool{}
		for _, name := range list {
			if key := http.CanonicalHeaderKey(name); seen[key] {
				t.Errorf("%s: %s twice", what, name)
			} else {
				seen[key] = true
			}
			if what == "allowed" && name != strings.ToLower(name) {
				t.Errorf("%s is not in lower case", name)
			}
		}
	}
}
