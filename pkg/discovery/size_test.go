package discovery

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// Whoever gives a document to a model pays for each of its tokens, which are
// about four characters each. The origin of testSite is the longest that this is
// promised for.
func TestSizesInTokens(t *testing.T) {
	d := mustRender(t)
	for path, most := range map[string]int{
		catalog.PathLLMs: 2500, catalog.PathCatalog: 7000, catalog.PathOpenAPI: 16000, catalog.PathLLMsFull: 12000,
	} {
		tokens := (len([]rune(string(body(t, d, path)))) + 3) / 4
		t.Logf("%s: %d tokens of %d", path, tokens, most)
		if tokens > most {
			t.Errorf("%s has %d tokens, at most %d are allowed", path, tokens, most)
		}
	}
}

// TestErrorSentencesAreSaidOnce: what a code means is said in one place of each
// text for machines.
func TestErrorSentencesAreSaidOnce(t *testing.T) {
	d := mustRender(t)
	for _, path := range []string{catalog.PathLLMs, catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathLLMsFull} {
		// The error of a child in an example is no explanation.
		text := regexp.MustCompile(`"error":\{[^}]*\}`).ReplaceAllString(string(body(t, d, path)), "")
		for _, info := range fault.All() {
			if info.Code == fault.PaymentRequired {
				continue // an example of an offer carries it
			}
			for _, sentence := range regexp.MustCompile(`[^.]{25,}\.`).FindAllString(info.Message, -1) {
				sentence = strings.TrimSpace(sentence)
				if shared(sentence) {
					continue // such as "Retry with the same PAYMENT-SIGNATURE."
				}
				if n := strings.Count(text, sentence); n > 1 {
					t.Errorf("%s says %d times: %s", path, n, sentence)
				}
			}
		}
	}
}

// shared says whether the messages of several codes have a sentence.
func shared(sentence string) bool {
	n := 0
	for _, info := range fault.All() {
		n += strings.Count(info.Message, sentence)
	}
	return n > 1
}

// TestErrorAnchors: the documentation has one place for every code there is, and
// the error body that it shows points to its own.
func TestErrorAnchors(t *testing.T) {
	page := string(body(t, mustRender(t), catalog.PathDocs))
	for _, info := range fault.All() {
		if n := strings.Count(page, ` id="`+catalog.ErrorAnchor(info.Code)+`"`); n != 1 {
			t.Errorf("%s has %d anchors", info.Code, n)
		}
	}
	if !strings.Contains(page, "/docs#error-nxdomain") {
		t.Error("the error body on the page does not point to the anchor of its code")
	}
}
