package clients

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

func checkRobots(t *testing.T, s service) {
	t.Helper()
	a := s.ask(t, http.MethodGet, "/robots.txt", "")
	if got := a.Header.Get("Content-Type"); a.Status != http.StatusOK || !strings.HasPrefix(got, "text/plain") {
		t.Errorf("%d %s", a.Status, got)
	}
	wantNone(t, robotsComplaints(string(a.Body)))
	wantOne(t, robotsComplaints(string(broken(t, a.Body, "Allow: /", "Disallow: /v1"))), "keeps somebody away")
	wantOne(t, robotsComplaints(string(broken(t, a.Body, "User-agent: *", "User-agent: a"))), "everybody")
	wantOne(t, robotsComplaints("<html>"), "no record")
}
