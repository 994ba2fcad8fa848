package discovery

import (
	"strings"
	"testing"
)

func TestWantsHTML(t *testing.T) {
	tests := []struct {
		accept string
		want   bool
	}{
		{"", false},
		{"*/*", false},
		{"application/json", false},
		{"application/json, text/plain;q=0.9, */*;q=0.8", false},
		{"text/html", true},
		{"TEXT/HTML", true},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7", true},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true},
		{"text/html, */*; q=0.01", true},
		{"text/html, */*", false},
		{"text/html;q=0.9, application/json", false},
		{"text/html, application/json", false},
		{"text/html, application/json;q=0.999", true},
		{"application/json;q=0, text/html;q=0.001", true},
		{"text/html;q=0", false},
		{"text/html;q=0.000, */*;q=0", false},
		{"text/*", true},
		{"text/*, application/json", false},
		{"text/*;q=0.5, application/*;q=0.4", true},
		{"text/*;q=0.5, */*;q=0.6", false},
		// The more specific range counts, whatever its order and quality.
		{"text/html;q=0.1, text/*, */*;q=0.5", false},
		{"*/*;q=0.1, application/json;q=0.9, text/html", true},
		{"application/*;q=0.9, application/json;q=0.1, text/html;q=0.5", true},
		// The most favourable of equals.
		{"text/html;q=0.1, text/html;q=0.7, application/json;q=0.3", true},
		{"application/json;q=0.1, text/html;q=0.7, application/json;q=0.8", false},
		// Parameters ask for a variant of HTML that does not exist.
		{"text/html;level=1, application/json;q=0.5", false},
		{"text/html;charset=utf-8", true},
		{"text/html;CHARSET=\"utf-8\";Q=0.9", true},
		{"application/json;odata=verbose, text/html;q=0.9", false},
		{"text/plain", false},
		{"application/vnd.api+json, text/html;q=0.2", true},
		// Empty elements and white space are fine.
		{" ,\t, text/html\t;\tq=1.000 , ", true},
		{"text/html;;q=1", true},
		// Separators inside quotes are text.
		{`application/xml;x="a,text/html;q=1", application/json`, false},
		{`application/xml;x="\",", text/html`, true},
		{`text/html;charset="unterminated, application/json`, true},
		// What cannot be read gets JSON.
		{"text/html;q=1.1", false},
		{"text/html;q=2", false},
		{"text/html;q=0.0001", false},
		{"text/html;q=-1", false},
		{"text/html;q=", false},
		{"text/html;q=.5", false},
		{"text/html;q=0.x", false},
		{"text/html;q", false},
		{"text/html;=1", false},
		{"text/html;q=1.", true},
		{"text/html;q=0.", false},
		{"text", false},
		{"text/", false},
		{"/html", false},
		{"*/html", false},
		{"text/html, nonsense", false},
		{"text/html, a b/c", false},
		{"text /html", false},
		{"text/html, \x00/\x00", false},
		{"text/html, " + strings.Repeat("a/b,", 250), true},
		{"text/html, " + strings.Repeat("a/b,", 300), false},
	}
	for _, tt := range tests {
		if got := WantsHTML(tt.accept); got != tt.want {
			t.Errorf("%q: %v", tt.accept, got)
		}
	}
}

func FuzzWantsHTML(f *testing.F) {
	for _, s := range []string{
		"", "*/*", "text/html", "text/html, */*;q=0.8", "text/html;q=0.5,application/json;q=0.4", `a/b;c="d,e";q=0.1`, "text/*;q=1.000,,;", "a/(", "a/b;c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		got := WantsHTML(accept)
		if got && !strings.Contains(strings.ToLower(accept), "text/") {
			t.Errorf("%q wants HTML without asking for text", accept)
		}
		if WantsHTML(accept+",application/json") || WantsHTML("application/json , "+accept) {
			t.Errorf("%q wants HTML although nothing is preferred over JSON", accept)
		}
		if got && len(accept) < maxAccept-20 && WantsHTML(accept+",;") {
			t.Errorf("%q with an unreadable element wants HTML", accept)
		}
	})
}
