package catalog_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func TestCodes(t *testing.T) {
	seen := map[fault.Code]bool{}
	for _, i := range catalog.Codes() {
		if seen[i.Code] {
			t.Errorf("%s is in the table twice", i.Code)
		}
		seen[i.Code] = true
		if !strings.HasSuffix(i.Message, ".") || http.StatusText(i.Status) == "" || i.Status < 400 || !strings.HasSuffix(i.Remedy, ".") {
			t.Errorf("%s: status %d, message %q or remedy %q is not a sentence", i.Code, i.Status, i.Message, i.Remedy)
		}
		// Who may come back must be told when, but for 402, 400 and 404.
		if i.Retry != (i.After > 0) {
			t.Errorf("%s: retry %v, after %s", i.Code, i.Retry, i.After)
		}
		// What is owed is our fault, and what uses the payment up cannot be repeated.
		if i.Class == fault.Answer && i.Retry || i.Class == fault.Owed && (!i.Retry || i.Status < 500) {
			t.Errorf("%s is %s, with status %d and retry %v", i.Code, i.Class, i.Status, i.Retry)
		}
	}
}
