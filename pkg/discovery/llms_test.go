package discovery

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

var listLink = regexp.MustCompile(`^- \[([^\]]+)\]\(([^) ]+)\): (.+)$`)

// checkLLMs is the grammar of llmstxt.org: a title, a summary in a quotation,
// prose and lists, then sections. It returns the links of sections that are
// lists of links.
func checkLLMs(t *testing.T, text string) []string {
	t.Helper()
	lines := strings.Split(text, "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "# ") || lines[1] != "" || !strings.HasPrefix(lines[2], "> ") {
		t.Fatalf("starts with %q", lines[:min(3, len(lines))])
	}
	var links []string
	sections, fenced := 0, false
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced:
		case strings.HasPrefix(line, "## "):
			sections++
			if lines[i-1] != "" || lines[i+1] != "" {
				t.Errorf("line %d: no empty line around %q", i+1, line)
			}
		case strings.HasPrefix(line, "#") && i > 0:
			t.Errorf("line %d: heading %q", i+1, line)
		case strings.HasPrefix(line, "- ["):
			m := listLink.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("line %d is not a link with a note: %q", i+1, line)
				continue
			}
			links = append(links, m[2])
		case line == "" && i > 0 && lines[i-1] == "" && i < len(lines)-1:
			t.Errorf("line %d: two empty lines", i+1)
		}
	}
	if sections == 0 || len(links) == 0 || fenced {
		t.Errorf("%d sections, %d links, open fence: %v", sections, len(links), fenced)
	}
	return links
}

func TestLLMsGrammarAndLinks(t *testing.T) {
	s := testSite()
	for name, d := range map[string]*Documents{"catalog": rendered(), "wide": renderedWide()} {
		for _, path := range []string{catalog.PathLLMs, catalog.PathLLMsFull} {
			t.Run(name+path, func(t *testing.T) {
				for _, link := range checkLLMs(t, string(body(t, d, path))) {
					rest, ok := strings.CutPrefix(link, s.Origin)
					if !ok {
						t.Errorf("%s is not one of ours", link)
						continue
					}
					served, anchor, _ := strings.Cut(rest, "#")
					if _, ok := d.Find(served); !ok {
						t.Errorf("%s is not served", link)
					}
					if anchor != "" && !ids(parse(t, body(t, d, served)))[anchor] {
						t.Errorf("%s: no such anchor", link)
					}
				}
			})
		}
	}
}

func TestRowsNameEveryPart(t *testing.T) {
	var names []string
	ops := wideOps()
	for _, r := range rows(ops[len(ops)-1].Fields) {
		names = append(names, r.Name+": "+r.Type)
	}
	want := []string{
		"domain: string", "reason: string or null", "owner: object or null", "owner.name: string", "owner.iana_id: string",
		"names: array of string", "hops: array of object", "hops[].index: integer", "hops[].location: string or null",
		"child: object", "child.expired: boolean", "child.error: object", "child.error.code: string", "child.error.message: string",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	for _, r := range rows(catalog.DNS().Fields) {
		if r.Name == "records[].exchange" && !strings.HasPrefix(r.Description, "MX: ") {
			t.Errorf("%+v does not say for which type", r)
		}
	}
}
