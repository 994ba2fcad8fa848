package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// launchSettings is what a host needs to start pay-mcp: a name in the host's settings, and a
// command line.
type launchSettings struct {
	name    string // the name of pay-mcp in the host's settings
	command string
	args    []string
}

// host is a kind of program that uses a language model and starts MCP servers.
type host struct {
	programNames string // the names of the programs of this kind
	configPlace  string // the place for the configuration: settings files, or a terminal
	formatConfig func(launchSettings) string
}

// hosts returns the common hosts, with the configuration that each needs. Hosts in the same
// entry have the same form of configuration. Every host waits at least a minute for an answer.
func hosts() []host {
	return []host{
		{
			"Claude Code", "in a terminal",
			func(s launchSettings) string {
				words := []string{"claude", "mcp", "add", "--scope", "user", s.name, "--", s.command}
				return shellLine(append(words, s.args...))
			},
		},
		{
			"Claude Desktop, Cursor, Windsurf, Gemini CLI, Cline, LM Studio",
			"claude_desktop_config.json (Settings, Developer), ~/.cursor/mcp.json, ~/.codeium/windsurf/mcp_config.json, ~/.gemini/settings.json, cline_mcp_settings.json, mcp.json",
			func(s launchSettings) string {
				return indentJSON(map[string]any{"mcpServers": map[string]any{s.name: jsonEntry{Command: s.command, Args: s.args}}})
			},
		},
		{
			"VS Code", ".vscode/mcp.json",
			func(s launchSettings) string {
				return indentJSON(map[string]any{"servers": map[string]any{s.name: jsonEntry{
					Type:    "stdio",
					Command: s.command,
					Args:    s.args,
				}}})
			},
		},
		{
			"Codex", "~/.codex/config.toml",
			func(s launchSettings) string {
				var args []string
				for _, a := range s.args {
					args = append(args, tomlString(a))
				}
				return fmt.Sprintf("[mcp_servers.%s]\ncommand = %s\nargs = [%s]", s.name, tomlString(s.command), strings.Join(args, ", "))
			},
		},
	}
}

// jsonEntry is the entry for one server in a host's JSON settings.
type jsonEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

func indentJSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err.Error() // cannot happen: v holds only strings and lists of strings
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// tomlString returns s as a basic string of TOML, which has the same escapes as JSON.
func tomlString(s string) string { return string(untrusted.Compact(s)) }

// plainWord matches words that need no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+-]+$`)

// shellLine returns the words as a command line for a shell, with quotes where they are
// needed.
func shellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if !plainWord.MatchString(w) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// printHosts writes what a person must paste into each host.
func printHosts(out io.Writer, s launchSettings) {
	for _, h := range hosts() {
		fmt.Fprintf(out, "\n%s: %s\n\n", h.programNames, h.configPlace)
		for line := range strings.Lines(h.formatConfig(s)) {
			fmt.Fprint(out, "    ", line)
		}
		fmt.Fprintln(out)
	}
}

// acceptedName matches a server name that all hosts accept.
var acceptedName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,29}$`)

// nameFor returns a name for pay-mcp in a host's settings. It is the name that the paid server
// gives itself, if all hosts accept that name. Otherwise it is made from the host name in the
// URL.
func nameFor(said string, at *url.URL) string {
	if said = strings.ToLower(said); acceptedName.MatchString(said) {
		return said
	}
	short := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(at.Hostname()), "-")
	return "paid-" + strings.Trim(short[:min(len(short), 24)], "-")
}
