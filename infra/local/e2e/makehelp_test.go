//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
)

// target is one target of the Makefile, with the text of its help and its recipe.
type target struct {
	section string
	name    string
	text    string
}

// targets returns the targets of the Makefile.
func targets(t *testing.T) (all []target) {
	section := ""
	for line := range strings.Lines(string(testbed.Must(os.ReadFile(filepath.Join(root, "Makefile"))))) {
		title, begins := strings.CutPrefix(line, "##@ ")
		name, is := strings.CutPrefix(line, ".PHONY: ")
		switch {
		case begins:
			section = strings.TrimSpace(title)
		case is:
			all = append(all, target{section: section, name: strings.TrimSpace(name)})
		case len(all) > 0:
			all[len(all)-1].text += line
		}
	}
	if len(all) < 15 {
		t.Fatalf("%d targets", len(all))
	}
	return all
}

// TestMakeNeedsGo checks that every target that "make help" lists in its group "Use", except
// help and clean, says what to do if Go is missing or too old.
func TestMakeNeedsGo(t *testing.T) {
	t.Parallel()
	skipInShort(t, "needs make")
	newerGoFolder, binWithoutGo := t.TempDir(), t.TempDir()
	makefile := testbed.Must(os.ReadFile(filepath.Join(root, "Makefile")))
	testbed.Check(os.WriteFile(filepath.Join(newerGoFolder, "Makefile"), makefile, 0o600))
	testbed.Check(os.WriteFile(filepath.Join(newerGoFolder, "go.mod"), []byte("module example.com/later\n\ngo 1.999.0\n"), 0o600))
	for _, name := range []string{"awk", "mkdir", "sed"} {
		testbed.Check(os.Symlink(testbed.Must(exec.LookPath(name)), filepath.Join(binWithoutGo, name)))
	}
	used := 0
	for _, target := range targets(t) {
		if target.section != "Use" || target.name == "help" || target.name == "clean" {
			continue
		}
		used++
		for _, c := range []struct {
			env      []string
			wantNote string
		}{
			{newcomerEnv("GOTOOLCHAIN=local"), "This needs Go 1.999.0 or later, from https://go.dev/dl; the one here is go version " + runtime.Version()},
			{[]string{"PATH=" + binWithoutGo}, "Go is not installed: this needs Go 1.999.0 or later, from https://go.dev/dl\n"},
		} {
			out, notes, code := runMake(t, c.env, "-C", newerGoFolder, target.name)
			if code == 0 || out != "" || !strings.Contains(notes, c.wantNote) {
				t.Errorf("make %s: exit status %d, stdout %q, want %q in stderr:\n%s", target.name, code, out, c.wantNote, notes)
			}
		}
	}
	if used < 5 {
		t.Errorf("%d commands", used)
	}
}

// TestMakeHelp checks that "make help" lists the commands without their settings, and that
// "make help OF=pay" shows the settings of "make pay". A wrong name must be an error.
func TestMakeHelp(t *testing.T) {
	t.Parallel()
	skipInShort(t, "needs make")
	setting := regexp.MustCompile(`(?m)^ {19}[A-Z_]+=`)
	help, _, code := runMake(t, newcomerEnv(), "help")
	checkEqual(t, "exit status", code, 0)
	if found := setting.FindString(help); found != "" || !strings.Contains(help, "\n  run ") || !strings.Contains(help, "make help OF=pay") {
		t.Errorf("make help shows the setting %q, or not the commands:\n%s", found, help)
	}
	help, _, code = runMake(t, newcomerEnv(), "help", "OF=pay")
	checkEqual(t, "exit status", code, 0)
	if !strings.HasPrefix(help, "  pay ") || !setting.MatchString(help) || strings.Contains(help, "\n  pay-mcp ") {
		t.Errorf("make help OF=pay shows:\n%s", help)
	}
	help, notes, code := runMake(t, newcomerEnv(), "help", "OF=nothing")
	if code == 0 || help != "" || !strings.Contains(notes, "There is no command nothing: make help lists them.") {
		t.Errorf("make help OF=nothing: exit status %d, stdout %q, stderr %q", code, help, notes)
	}
}

// TestMakeDefaults checks the defaults that "make help" prints for variables. Each must be
// marked as a default, and the recipes and programs must use it.
func TestMakeDefaults(t *testing.T) {
	t.Parallel()
	variable := regexp.MustCompile(`(?m)^##   ([A-Z_]+)=.*$`)
	bracket := regexp.MustCompile(`\(([^()]*)\)$`)
	used := regexp.MustCompile(`\$\$\{([A-Z_]+):-([^}]+)\}`)
	marked, compared := 0, 0
	lines := map[string]string{} // the lines of "make help", by target and variable, such as "run LOCAL_ADDR"
	for _, target := range targets(t) {
		for _, m := range variable.FindAllStringSubmatch(target.text, -1) {
			lines[target.name+" "+m[1]] = m[0]
			end := bracket.FindStringSubmatch(m[0])
			if end == nil {
				continue
			}
			marked++
			if !strings.HasPrefix(end[1], "default: ") && !strings.HasPrefix(end[1], "default with ") {
				t.Errorf("make %s: what is in brackets is a default, and is not marked as one: %s", target.name, m[0])
			}
		}
		for _, m := range used.FindAllStringSubmatch(target.text, -1) {
			compared++
			if line := lines[target.name+" "+m[1]]; !strings.HasSuffix(line, " (default: "+m[2]+")") {
				t.Errorf("make %s uses %s where %s is not typed, and make help says %q", target.name, m[2], m[1], line)
			}
		}
	}
	if marked < 20 || compared < 8 {
		t.Errorf("%d defaults are marked, %d compared", marked, compared)
	}
	checkProgramDefaults(t, lines)
}

// checkProgramDefaults checks the defaults that the programs contain and the Makefile does not.
// The map has the lines of "make help", by target and variable, such as "run LOCAL_ADDR".
func checkProgramDefaults(t *testing.T, lines map[string]string) {
	t.Helper()
	usage, _ := exec.Command(testbed.Program(t, "./infra/local/pay"), "-help").CombinedOutput() // the exit status is 0 or 2
	most := regexp.MustCompile(`default (\S+) with -key-file`).FindStringSubmatch(string(usage))
	if most == nil {
		t.Fatalf("pay -help does not say what it pays at most with a key:\n%s", usage)
	}
	ledger := testbed.Must(boot.ParseLocal(func(string) string { return "" })).LedgerFile
	for name, ends := range map[string]string{
		"run LOCAL_ADDR":     "(default: " + boot.LocalAddr + ")",
		"pay MAX":            "(default with KEY_FILE: " + most[1] + ")",
		"backup LEDGER_FILE": "(default: " + ledger + ")",
	} {
		if !strings.HasSuffix(lines[name], " "+ends) {
			t.Errorf("make %s: %q, want it to end with %q", name, lines[name], ends)
		}
	}
}

// TestMakeTimes checks the targets that run for a long time: screenshots, microbench, campaign
// and storm. Each must raise the time limit of "go test", whose default of ten minutes is too
// short for them.
func TestMakeTimes(t *testing.T) {
	t.Parallel()
	limit := regexp.MustCompile(`\bgo test\b.* -timeout (0|[3-9]\dm|\d+h)\b`)
	long := map[string]bool{"screenshots": true, "microbench": true, "campaign": true, "storm": true}
	for _, target := range targets(t) {
		if !long[target.name] {
			continue
		}
		delete(long, target.name)
		if !limit.MatchString(target.text) {
			t.Errorf("make %s may be ended by go test after ten minutes:\n%s", target.name, target.text)
		}
	}
	if len(long) > 0 {
		t.Errorf("there are no targets %v", long)
	}
}
