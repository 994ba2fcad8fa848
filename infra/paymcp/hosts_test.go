package main

import (
	"encoding/json"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// parseEntries parses a printed configuration, and returns the servers in it by name.
func parseEntries(t *testing.T, names, text string) map[string]jsonEntry {
	t.Helper()
	var file struct {
		MCPServers map[string]jsonEntry `json:"mcpServers" toml:"mcp_servers"`
		Servers    map[string]jsonEntry `json:"servers"`
	}
	switch names {
	case "Claude Code":
		words := strings.Fields(string(programs.Run(t, exec.Command("sh", "-c", `set -- `+text+`; printf '%s\n' "$@"`))))
		dash := slices.Index(words, "--")
		if dash < 2 || strings.Join(words[:5], " ") != "claude mcp add --scope user" {
			t.Fatalf("%q", words)
		}
		return map[string]jsonEntry{words[dash-1]: {Command: words[dash+1], Args: words[dash+2:]}}
	case "Codex":
		testbed.Check(toml.Unmarshal([]byte(text), &file))
	default:
		testbed.Check(json.Unmarshal([]byte(text), &file))
	}
	if names == "VS Code" {
		return file.Servers
	}
	return file.MCPServers
}

// TestPrinted checks that each host can read the configuration that is printed for it, and
// that the configuration starts a server with tools.
func TestPrinted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	printed := string(programs.Run(t, testbed.Command(t, testbed.PayMCP(t), "-dir", w.dir, "config", w.url)))
	for _, h := range hosts() {
		_, after, found := strings.Cut(printed, "\n"+h.programNames+": "+h.configPlace+"\n\n")
		text, _, _ := strings.Cut(after, "\n\n")
		if !found {
			t.Fatalf("%s is not there:\n%s", h.programNames, printed)
		}
		all := parseEntries(t, h.programNames, strings.TrimSpace(strings.ReplaceAll("\n"+text, "\n    ", "\n")))
		entry, there := all["hostfacts"]
		if !there || len(all) != 1 || h.programNames == "VS Code" && entry.Type != "stdio" {
			t.Errorf("%s reads %+v", h.programNames, all)
			continue
		}
		list, err := startHost(t, entry.Command, entry.Args...).ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 8 {
			t.Errorf("%s: %+v, %v", h.programNames, list, err)
		}
	}
}

// TestQuoting checks that a path with spaces, quotes and a backslash is written correctly in
// every form.
func TestQuoting(t *testing.T) {
	t.Parallel()
	s := launchSettings{name: "x", command: `/Users/Ann O'Neil/my "tools"\bin/pay-mcp`, args: []string{"https://api.example.com/mcp?a=1&b=<é>"}}
	for _, h := range hosts() {
		if h.programNames == "Claude Code" {
			line := strings.TrimPrefix(h.formatConfig(s), "claude mcp add --scope user x -- ")
			got := string(programs.Run(t, exec.Command("sh", "-c", `set -- `+line+`; printf '%s\n' "$@"`)))
			if got != s.command+"\n"+s.args[0]+"\n" {
				t.Errorf("a shell reads %q", got)
			}
			continue
		}
		entry := parseEntries(t, h.programNames, h.formatConfig(s))["x"]
		if entry.Command != s.command || !slices.Equal(entry.Args, s.args) {
			t.Errorf("%s reads %+v", h.programNames, entry)
		}
	}
}

// TestNames checks the name of pay-mcp in a host's settings. It must be the name of the paid
// server if all hosts accept that name. Otherwise it must come from the server's URL.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"hostfacts", "https://api.example.com/mcp", "hostfacts"}, {"Weather", "https://api.example.com/mcp", "weather"},
		{"My Server!", "https://api.example.com/mcp", "paid-api-example-com"}, {"", "http://[::1]:8402/mcp", "paid-1"},
		{strings.Repeat("x", 99), "https://" + strings.Repeat("y", 60) + ".example/", "paid-" + strings.Repeat("y", 24)},
	} {
		if got := nameFor(c[0], testbed.Must(url.Parse(c[1]))); got != c[2] || !acceptedName.MatchString(got) {
			t.Errorf("%s at %s is called %s", c[0], c[1], got)
		}
	}
}

// TestUsage checks that pay-mcp answers an invalid command line with the usage. It also checks
// the errors of "pay-mcp allow" without a terminal, and of "pay-mcp forget" with an unknown
// purchase.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"allow"}, {"config", "a", "b"}, {"forget", "http://127.0.0.1:1/mcp"}, {"-x"}, {"-wait", "1ms", "http://127.0.0.1:1/mcp"}} {
		out, err := testbed.Command(t, testbed.PayMCP(t), args...).CombinedOutput()
		if code, is := err.(*exec.ExitError); !is || code.ExitCode() != 2 || !strings.Contains(string(out), "usage: pay-mcp URL") { //nolint:errorlint // os/exec does not wrap this error
			t.Errorf("%q: %v %s", args, err, out)
		}
	}
	out, err := testbed.Command(t, testbed.PayMCP(t), "-dir", t.TempDir(), "allow", "http://127.0.0.1:1/mcp").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "it needs a person at a terminal") {
		t.Errorf("%v %s", err, out)
	}
	out, err = testbed.Command(t, testbed.PayMCP(t), "-dir", t.TempDir(), "forget", "http://127.0.0.1:1/mcp", "abc").CombinedOutput()
	if err == nil || !strings.Contains(string(out), `there is no purchase "abc" without an answer`) {
		t.Errorf("%v %s", err, out)
	}
}
