package discovery

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// TestLLMsGrammar is the grammar of llmstxt.org: a title, a summary in a quotation,
// prose and lists, then sections that are lists of links with notes.
func TestLLMsGrammar(t *testing.T) {
	link := regexp.MustCompile(`^- \[[^\]]+\]\([^) ]+\): .+$`)
	for _, path := range []string{catalog.PathLLMs, catalog.PathLLMsFull} {
		lines := strings.Split(string(body(t, rendered(), path)), "\n")
		if !strings.HasPrefix(lines[0], "# ") || lines[1] != "" || !strings.HasPrefix(lines[2], "> ") {
			t.Errorf("%s starts with %q", path, lines[:3])
		}
		sections, links, fenced := 0, 0, false
		for i, line := range lines {
			bad := false
			switch {
			case strings.HasPrefix(line, "```"):
				fenced = !fenced
			case fenced:
			case strings.HasPrefix(line, "## "):
				sections++
				bad = lines[i-1] != "" || lines[i+1] != ""
			case strings.HasPrefix(line, "- ["):
				links++
				bad = !link.MatchString(line)
			default:
				bad = i > 0 && (strings.HasPrefix(line, "#") || line == "" && lines[i-1] == "" && i < len(lines)-1)
			}
			if bad {
				t.Errorf("%s, line %d: %q", path, i+1, line)
			}
		}
		if sections == 0 || links == 0 || fenced {
			t.Errorf("%s: %d sections, %d links, open fence: %v", path, sections, links, fenced)
		}
	}
}

// A document that is given to a model costs by its tokens, which are about four
// characters each. Each operation may take so many. The origin of testSite is the longest
// that this is promised for.
func TestSizesInTokens(t *testing.T) {
	d := rendered()
	for path, most := range map[string]int{
		catalog.PathLLMs: 380, catalog.PathCatalog: 900, catalog.PathOpenAPI: 2200, catalog.PathLLMsFull: 1550,
	} {
		most *= len(catalog.All())
		tokens := (len([]rune(string(body(t, d, path)))) + 3) / 4
		t.Logf("%s: %d tokens of %d", path, tokens, most)
		if tokens > most {
			t.Errorf("%s has %d tokens, at most %d are allowed", path, tokens, most)
		}
	}
}

// TestSignFromTheShortText: what an agent signs and sends stands in llms.txt.
func TestSignFromTheShortText(t *testing.T) {
	says(t, catalog.PathLLMs, string(body(t, rendered(), catalog.PathLLMs)), `"payload": {"signature", "authorization": {"from", "to", "value", "validAfter", "validBefore", "nonce"}}`,
		`domain name "USD Coin", version "2", chainId 8453`, "TransferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce)",
		"6 seconds to 24 hours ahead", testSite().Terms.Asset)
}

// TestErrorSentencesAreSaidOnce: what a code means is said in one place of each
// text for machines.
func TestErrorSentencesAreSaidOnce(t *testing.T) {
	d, messages := rendered(), ""
	for _, info := range catalog.Codes() {
		messages += info.Message + "\n"
	}
	for _, path := range []string{catalog.PathLLMs, catalog.PathCatalog, catalog.PathOpenAPI, catalog.PathLLMsFull} {
		// The error of a child in an example is no explanation.
		text := regexp.MustCompile(`"error":\{[^}]*\}`).ReplaceAllString(string(body(t, d, path)), "")
		for _, info := range catalog.Codes() {
			if info.Code == fault.PaymentRequired {
				continue // an example of an offer carries it
			}
			for _, sentence := range regexp.MustCompile(`[^.]{25,}\.`).FindAllString(info.Message, -1) {
				sentence = strings.TrimSpace(sentence)
				// Some are several codes' own, such as "Repeat the request unchanged."
				if n := strings.Count(text, sentence); n > 1 && strings.Count(messages, sentence) == 1 {
					t.Errorf("%s says %d times: %s", path, n, sentence)
				}
			}
		}
	}
}
