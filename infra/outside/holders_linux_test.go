package outside

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// sectionName matches the title of a section in a Markdown file.
var sectionName = regexp.MustCompile(`(?m)^## (.+)$`)

// testsOfCommands lists the commands of README that this package does not type as part of a
// section. The value of a command names the test that covers the command: the test's folder
// and its name. "make bench" takes 12 minutes, so its test only checks that the target exists.
func testsOfCommands() map[string][2]string {
	return map[string][2]string{
		"make sam-build && sam deploy --no-confirm-changeset --parameter-overrides PayTo=0x… FacilitatorUrl=https://…": {"infra/samcli", "TestFirstDeployment"},
		"make deploy STACK=<name>":   {"infra/deploy", "TestMake"},
		"make rollback STACK=<name>": {"infra/deploy", "TestRollback"},
		"make bench":                 {"infra/local/e2e", "TestMakeTargets"},
		"make test":                  {"infra/outside", "TestContinuousIntegration"},
		"make help":                  {"infra/local/e2e", "TestMakeTargets"},
		"make pay":                   {"infra/outside", "TestReadmeOfAClone"},
		"make run":                   {"infra/outside", "TestReadmeOfAClone"},
		"make pay-mcp URL=http://127.0.0.1:8402/mcp": {"infra/paymcp", "TestMake"},
		"make pay-mcp URL=https://… DO=allow":        {"infra/paymcp", "TestAllow"},
	}
}

// TestEveryCommandOfReadme checks that a test covers every command that README prints.
func TestEveryCommandOfReadme(t *testing.T) {
	t.Parallel()
	text := string(testbed.Must(os.ReadFile(readme)))
	held := testsOfCommands()
	var first []step
	for _, section := range firstSections() {
		first = append(first, steps(text, section)...)
	}
	for _, s := range steps(text, beforeSections) {
		if !slices.ContainsFunc(first, func(typed step) bool { return commandOf(typed) == commandOf(s) }) {
			t.Errorf("nobody types %q above the first section", s.command)
		}
	}
	for _, name := range sectionName.FindAllStringSubmatch(text, -1) {
		if slices.Contains(append(firstSections(), sellSection, moneySection, judgeSection), name[1]) {
			continue // this package types the section's commands
		}
		for _, s := range append(steps(text, name[1]), quotedCommands(text, name[1])...) {
			if _, ok := held[s.command]; !ok {
				t.Errorf("nobody types %q of the section %q", s.command, name[1])
			}
		}
	}
	for command, where := range held {
		if !strings.Contains(text, command) {
			t.Errorf("README does not print %q any more", command)
		}
		found := false
		for _, file := range testbed.Must(filepath.Glob(filepath.Join(testbed.Root(), where[0], "*_test.go"))) {
			found = found || strings.Contains(string(testbed.Must(os.ReadFile(file))), "\nfunc "+where[1]+"(t *testing.T)")
		}
		if !found {
			t.Errorf("%s has no test %s, which is to type %q", where[0], where[1], command)
		}
	}
}
