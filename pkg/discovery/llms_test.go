package discovery

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/catalog"
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

// A document that is given to a model costs by its tokens, which are about four characters
// each. Each operation may take so many. Of the guidance for agents 4,000 characters are read
// (agentcash), of which each operation may take 40. The origin of testSite is the longest
// that this is promised for.
func TestSizes(t *testing.T) {
	guidance := newView(testSite()).said("guidance.txt.tmpl")
	for name, c := range map[string]struct {
		text       string
		fixed, per int // characters
	}{
		"guidance": {guidance, 3320, 40}, catalog.PathLLMs: {per: 4 * 380}, catalog.PathCatalog: {per: 4 * 900},
		catalog.PathOpenAPI: {per: 4 * 2200}, catalog.PathLLMsFull: {per: 4 * 1550},
	} {
		text, most := c.text, c.fixed+c.per*len(catalog.All())
		if text == "" {
			text = string(body(t, rendered(), name))
		}
		n := utf8.RuneCountInString(text)
		t.Logf("%s: %d characters of %d", name, n, most)
		if n > most {
			t.Errorf("%s has %d characters, at most %d are allowed", name, n, most)
		}
	}
}
