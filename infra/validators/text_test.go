package validators

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// maxLLMs bounds llms.txt in bytes, 2,500 tokens of about four: it is read whole
// into somebody's context.
const maxLLMs = 10000

var noteLink = regexp.MustCompile(`^- \[[^\]]+\]\((\S+)\): \S`)

// llmsComplaints is the grammar of llmstxt.org: one title, a summary in a
// quotation, text without headings, then sections of explained links. Links
// must be absolute, and of this origin.
func llmsComplaints(text, origin string) (complaints, links []string) {
	say := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(text) > maxLLMs {
		say("it has %d bytes", len(text))
	}
	if len(lines) < 4 || !strings.HasPrefix(lines[0], "# ") || lines[1] != "" || !strings.HasPrefix(lines[2], "> ") || lines[3] != "" {
		say("it does not begin with a title and a summary")
	}
	sections, inSection := 0, 0
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "## "):
			if sections > 0 && inSection == 0 {
				say("line %d: the section before has no links", i+1)
			}
			sections, inSection = sections+1, 0
		case i > 0 && strings.HasPrefix(line, "#"):
			say("line %d: a heading of another level", i+1)
		case sections > 0 && line != "":
			m := noteLink.FindStringSubmatch(line)
			if m == nil {
				say("line %d: not an explained link: %q", i+1, line)
				continue
			}
			inSection++
			links = append(links, m[1])
			if !strings.HasPrefix(m[1], origin+"/") {
				say("line %d: a link that is not absolute, or not ours: %s", i+1, m[1])
			}
		}
		if strings.Contains(line, "<html") || strings.HasPrefix(strings.ToLower(line), "user-agent:") {
			say("line %d: of another format: %q", i+1, line)
		}
	}
	if sections == 0 || inSection == 0 {
		say("%d sections, the last with %d links", sections, inSection)
	}
	return complaints, links
}

func TestLLMs(t *testing.T) {
	t.Parallel()
	a := ask(t, http.MethodGet, origin+catalog.PathLLMs, "text/html")
	if got := a.header.Get("Content-Type"); a.status != http.StatusOK || got != "text/plain; charset=utf-8" {
		t.Errorf("%d %s", a.status, got)
	}
	complaints, links := llmsComplaints(string(a.body), origin)
	wantNone(t, complaints)
	for _, link := range links {
		if got := ask(t, http.MethodGet, link, ""); got.status != http.StatusOK {
			t.Errorf("%s: %d", link, got.status)
		}
	}
	// What a paid service adds (prose before the sections).
	prose, _, _ := strings.Cut(string(a.body), "\n## ")
	for _, want := range []string{"PAYMENT-REQUIRED", "PAYMENT-SIGNATURE", "PAYMENT-RESPONSE", "eip155:8453", "USDC", "`nxdomain`", "untrusted"} {
		if !strings.Contains(prose, want) {
			t.Errorf("the text before the sections does not say %s", want)
		}
	}
	for name, c := range map[string]struct{ old, other, about string }{
		"no title":        {"# Hostfacts\n", "Hostfacts\n", "does not begin"},
		"no summary":      {"\n> ", "\n", "does not begin"},
		"another heading": {"\nMoney:", "\n### Money", "another level"},
		"a bare link":     {"](" + origin + "/docs): ", "](" + origin + "/docs) ", "not an explained link"},
		"a relative link": {"](" + origin + "/docs)", "](/docs)", "not absolute"},
		"no sections":     {"\n## ", "\n", "0 sections"},
		"too long":        {"\n> ", "\n> " + strings.Repeat("x", maxLLMs), "bytes"},
		"an empty one":    {"\n## Documents\n", "\n## Empty\n\n## Documents\n", "has no links"},
		"a page":          {"\nMoney:", "\n<html>", "another format"},
	} {
		t.Run(name, func(t *testing.T) {
			complaints, _ := llmsComplaints(string(broken(t, a.body, c.old, c.other)), origin)
			wantOne(t, complaints, c.about)
		})
	}
}

// robotsComplaints is RFC 9309, and that nothing is disallowed.
func robotsComplaints(text string) []string {
	var complaints []string
	group, agents := false, []string{}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
		switch {
		case !ok:
			complaints = append(complaints, fmt.Sprintf("line %d is no record: %q", i+1, line))
		case key == "user-agent":
			group, agents = true, append(agents, value)
		case key == "allow" && group && strings.HasPrefix(value, "/"):
		case key == "sitemap":
		default:
			complaints = append(complaints, fmt.Sprintf("line %d keeps somebody away, or is out of place: %q", i+1, line))
		}
	}
	if !slices.Contains(agents, "*") {
		complaints = append(complaints, "it does not speak to everybody")
	}
	return complaints
}

func TestRobots(t *testing.T) {
	t.Parallel()
	a := ask(t, http.MethodGet, origin+"/robots.txt", "")
	if got := a.header.Get("Content-Type"); a.status != http.StatusOK || !strings.HasPrefix(got, "text/plain") {
		t.Errorf("%d %s", a.status, got)
	}
	wantNone(t, robotsComplaints(string(a.body)))
	wantOne(t, robotsComplaints(string(broken(t, a.body, "Allow: /", "Disallow: /v1"))), "keeps somebody away")
	wantOne(t, robotsComplaints(string(broken(t, a.body, "User-agent: *", "User-agent: a"))), "everybody")
	wantOne(t, robotsComplaints("<html>"), "no record")
}

// absentComplaints: a path that is not there is 404 in JSON, whoever asks, but for a
// browser elsewhere than below /.well-known. Registrars ask for one before they
// believe in any other.
func absentComplaints(a answer) []string {
	var complaints []string
	if a.status != http.StatusNotFound {
		complaints = append(complaints, fmt.Sprintf("status %d", a.status))
	}
	if got := a.header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
		complaints = append(complaints, "it is "+got)
	}
	body, err := parse[struct{ Error struct{ Code fault.Code } }](a.body)
	if err != nil || body.Error.Code != fault.UnknownPath {
		complaints = append(complaints, fmt.Sprintf("it says %.100s", a.body))
	}
	return complaints
}

func TestAbsentPaths(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/.well-known/x402-negative-control", "/.well-known/agent-card.json", "/.well-known/mcp.json", "/.well-known/", "/.well-known/x402/",
		"/llms.txt/", "/LLMS.TXT", "/openapi.yaml", "/favicon.ico", "/index.html", "/v2/catalog",
	} {
		for _, accept := range []string{"application/json", "text/html", "*/*", ""} {
			if accept == "text/html" && !strings.HasPrefix(path, "/.well-known/") {
				continue // a page, of which TestHTML is
			}
			for _, c := range absentComplaints(ask(t, http.MethodGet, origin+path, accept)) {
				t.Errorf("%s for %q: %s", path, accept, c)
			}
		}
	}
	manifest := ask(t, http.MethodGet, origin+catalog.PathManifest, "text/html")
	if manifest.status != http.StatusOK || manifest.header.Get("Content-Type") != "application/json" {
		t.Errorf("the manifest: %d %s", manifest.status, manifest.header.Get("Content-Type"))
	}
	wantOne(t, absentComplaints(manifest), "status 200")
	page := ask(t, http.MethodGet, origin+catalog.PathDocs, "text/html")
	page.status = http.StatusNotFound
	wantOne(t, absentComplaints(page), "it is text/html")
}
