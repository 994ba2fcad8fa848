package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// scenario is one of the official conformance suite, with the checks of it that
// must fail here, and why.
type scenario struct {
	name string
	// revision is the one it is played by, where it has several.
	revision string
	fail     []string
	why      string
}

func scenarios() []scenario {
	return []scenario{
		{name: "server-initialize"},
		{name: "ping"},
		{name: "tools-list", revision: "2025-11-25"},
		{name: "tools-list", revision: "2026-07-28"},
		{name: "server-sse-multiple-streams", revision: "2026-07-28"},
		{name: "input-required-result-unsupported-methods"},
		{name: "http-header-validation"},
		{name: "server-stateless", why: "they need tools for diagnosis, which a server for money does not have", fail: []string{
			"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
			"sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel",
		}},
		{name: "caching", why: "there are no prompts and no resources, and none are declared", fail: []string{
			"sep-2549-prompts-list-caching-hints", "sep-2549-resources-list-caching-hints", "sep-2549-resources-templates-list-caching-hints",
		}},
	}
}

// TestConformance runs the official suite's scenarios for a server with tools. A
// check that fails and should not, or should and does not, is named.
func TestConformance(t *testing.T) {
	t.Parallel()
	node, suite := bin(t, "node"), bin(t, "conformance")
	for name, start := range toolWorlds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			all := scenarios()
			if name == "local" { // elsewhere every origin is welcome
				all = append(all, scenario{name: "dns-rebinding-protection"})
			}
			for _, c := range all {
				to := t.TempDir()
				cmd := mcpCommand(t, node, suite, "server", "--url", s.tools(), "--scenario", c.name, "-o", to, "--timeout", fmt.Sprint(patience.Milliseconds()))
				if c.revision != "" {
					cmd.Args = append(cmd.Args, "--spec-version", c.revision)
				}
				said, err := cmd.CombinedOutput()
				passed, failed := verdicts(t, to)
				if passed == 0 || !slices.Equal(failed, slices.Sorted(slices.Values(c.fail))) || (err != nil) != (c.fail != nil) {
					t.Errorf("%s: %d checks pass, %q fail, want %q (%s): %v\n%.6000s", c.name, passed, failed, c.fail, c.why, err, said)
				}
				t.Logf("%s: %d checks pass, %d fail as they should", c.name, passed, len(failed))
			}
		})
	}
}

// verdicts are how many checks passed, and the ids of those that did not.
func verdicts(t *testing.T, dir string) (passed int, failed []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files with checks: %v", len(files), err)
	}
	var checks []struct{ ID, Status string }
	if err := testbed.ReadJSON(files[0], &checks); err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		switch c.Status {
		case "SUCCESS":
			passed++
		case "INFO", "SKIPPED":
		default:
			failed = append(failed, c.ID)
		}
	}
	slices.Sort(failed)
	return passed, slices.Compact(failed)
}

// The inspector, on its command line, lists the tools and shows the price.
func TestInspector(t *testing.T) {
	t.Parallel()
	node, inspector := bin(t, "node"), bin(t, "mcp-inspector")
	everywhere(t, func(t *testing.T, s service) {
		ask := func(v any, args ...string) {
			t.Helper()
			cmd := mcpCommand(t, node, append([]string{inspector, "--cli", s.tools(), "--transport", "http"}, args...)...)
			cmd.Env = append(cmd.Env, "HOME="+t.TempDir(), "PATH="+filepath.Dir(node)+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err := cmd.Output() // an error result ends it with a code
			if json.Unmarshal(out, v) != nil {
				t.Fatalf("%s: %v\n%.2000s", strings.Join(args, " "), err, out)
			}
		}
		var list struct{ Tools []struct{ Name string } }
		ask(&list, "--method", "tools/list")
		var got []string
		for _, tool := range list.Tools {
			got = append(got, tool.Name)
		}
		if !slices.Equal(got, toolNames()) {
			t.Errorf("tools %q", got)
		}
		var price x402test.ToolResult
		ask(&price, "--method", "tools/call", "--tool-name", catalog.DNS().Tool, "--tool-arg", "domain=example.com")
		if offer, err := price.Required(); err != nil || offer.Accepts[0].Amount != catalog.DNS().Amount {
			t.Errorf("%+v: %v", price, err)
		}
	})
}
