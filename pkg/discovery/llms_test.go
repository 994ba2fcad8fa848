package discovery

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

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

// The guidance for agents is read up to 4,000 characters (agentcash). So much is left for
// more operations, at 40 characters each.
func TestGuidanceGrowsSlowly(t *testing.T) {
	var d struct {
		Info struct {
			Guidance string `json:"x-guidance"`
		}
	}
	if err := json.Unmarshal(body(t, rendered(), catalog.PathOpenAPI), &d); err != nil {
		t.Fatal(err)
	}
	const most, each = 3320, 40
	if n := len(d.Info.Guidance) - each*len(catalog.All()); n > most {
		t.Errorf("the guidance has %d characters beside %d for each operation, at most %d are allowed", n, each, most)
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
