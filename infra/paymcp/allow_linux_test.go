package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostfacts/hostfacts/infra/paymcp/purse"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// terminal returns both ends of a terminal: the one at which a person types, and the one that
// a program uses.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person = testbed.Must(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))
	t.Cleanup(func() { person.Close() })
	testbed.Check(unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n := testbed.Must(unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN))
	program = testbed.Must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0))
	t.Cleanup(func() { program.Close() })
	return person, program
}

// runAtTerminal runs pay-mcp at a terminal at which a person types the given lines. It returns
// what pay-mcp prints.
func runAtTerminal(t *testing.T, args []string, lines ...string) (string, error) {
	t.Helper()
	person, program := terminal(t)
	_, err := io.WriteString(person, strings.Join(lines, "\n")+"\n")
	testbed.Check(err)
	cmd := testbed.Command(t, testbed.PayMCP(t), args...)
	cmd.Stdin = program
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestAllow checks that a person can allow real money at a terminal. If the person cancels, or
// types something invalid, nothing may be allowed. Otherwise exactly what the person typed
// must be saved, and pay-mcp must then pay.
func TestAllow(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	dir := t.TempDir()
	key := writeKey(t, dir)
	args := []string{"-dir", dir, "allow", s.url}
	at := testbed.Must(parseTarget(s.url))
	p := testbed.Must(purse.Open(filepath.Join(dir, folderFor(at)), time.Now, time.After))
	for name, c := range map[string]struct {
		lines      []string
		wantOutput string
	}{
		"no":                  {[]string{"0.02", "0.05", key, "no"}, "cancelled; nothing is allowed"},
		"nothing typed":       {[]string{"", "", key, ""}, "cancelled; nothing is allowed"},
		"no amount":           {[]string{"1e3", "0.05", key, "yes"}, "is not an amount"},
		"too many decimals":   {[]string{"0.0000001", "0.05", key, "yes"}, "more decimals than the token"},
		"no key":              {[]string{"0.02", "0.05", dir + "/none", "yes"}, "the key cannot be used"},
		"a key that is shown": {[]string{"0.02", "0.05", key + ".open", "yes"}, "chmod 600"},
	} {
		testbed.Check(os.WriteFile(key+".open", []byte("x"), 0o644)) //nolint:gosec // the test needs a file that others can read
		out, err := runAtTerminal(t, args, c.lines...)
		if a, failed := p.ReadAllowance(at.String()); err == nil || !strings.Contains(out, c.wantOutput) || a != nil || failed != nil {
			t.Errorf("%s: %v %v %v\n%s", name, err, a, failed, out)
		}
	}
	out, err := runAtTerminal(t, args, "0.02", "", key, "yes")
	for _, want := range []string{
		"tool_0                       0.02 USDC on Base", "1. to " + strangerPayee + ", the token 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 on Base",
		"pays " + strangerPayee + " on Base: at most 0.02 USDC per call and 1 USDC in any 24 hours, without asking again.", "Allowed, as recorded in " + p.AllowanceFile(),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%v: it prints\n%s\nwant %s", err, out, want)
		}
	}
	info := testbed.Must(os.Stat(p.AllowanceFile()))
	a, err := p.ReadAllowance(at.String())
	if err != nil || info.Mode().Perm() != 0o600 || a.PerCall != "20000" || a.PerDay != "1000000" || a.KeyFile != key || a.PayTo != strangerPayee {
		t.Errorf("%+v %v %v", a, info.Mode(), err)
	}
	h := startHost(t, testbed.PayMCP(t), "-dir", dir, s.url)
	if r := h.call(t, "tool_0", map[string]any{}); !isPlainAnswer(r) {
		t.Error(textOf(r))
	}
	s.checkCharged(t, 1)
}

// TestMake checks that "make pay-mcp" prints what to paste into a host, and that a host can
// start pay-mcp through make. Neither make nor the compiler may write to stdout, which carries
// the MCP messages.
func TestMake(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	_, program := terminal(t)
	cmd := testbed.Command(t, "make", "-s", "-C", testbed.Root(), "pay-mcp", "URL="+s.url)
	cmd.Stdin = program
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+t.TempDir())
	binary := filepath.Join(testbed.Root(), "build", "pay-mcp")
	if out := string(programs.Run(t, cmd)); !strings.Contains(out, "claude mcp add --scope user stranger -- "+binary+" "+s.url+"\n") {
		t.Errorf("it prints\n%s", out)
	}
	goEnv := func(name string) string {
		return name + "=" + strings.TrimSpace(string(programs.Run(t, testbed.Command(t, "go", "env", name))))
	}
	h := startHost(t, "env", goEnv("GOCACHE"), goEnv("GOMODCACHE"), "make", "-s", "-C", testbed.Root(), "pay-mcp", "URL="+s.url)
	if r := h.call(t, "tool_0", map[string]any{}); !isPlainAnswer(r) {
		t.Errorf("%s\n%s", textOf(r), h.log)
	}
}

// TestAtATerminal types pay-mcp with a URL, but without a command, at a terminal. pay-mcp must
// print what to paste into a host. It must not wait for requests as a server.
func TestAtATerminal(t *testing.T) {
	t.Parallel()
	s := newStranger(t)
	out, err := runAtTerminal(t, []string{"-dir", t.TempDir(), s.url})
	if err != nil || !strings.Contains(out, "claude mcp add --scope user stranger -- ") || !strings.Contains(out, "6 tools at "+s.url+", paid by play money") {
		t.Errorf("%v\n%s", err, out)
	}
}
