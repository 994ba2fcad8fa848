package validators

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

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
