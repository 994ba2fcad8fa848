package called_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// notInstallable lists the programs of infra that only make runs, and only in a clone of the
// repository. All other programs can be installed, so they must be able to print their
// version.
var notInstallable = []string{"infra/bench", "infra/demo", "infra/demo/thirty", "infra/local/invoke"}

// TestProgramsPrintTheirVersion checks that each program that can be installed prints its version.
func TestProgramsPrintTheirVersion(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	programs := installablePrograms(t)
	runCommand(t, exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", folder}, programs...)...))
	for _, program := range programs {
		name := filepath.Base(program)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			printed := runCommand(t, exec.CommandContext(t.Context(), filepath.Join(folder, name), "--version"))
			names := strings.HasPrefix(printed, name+" ") && strings.Contains(printed, " of github.com/hostfacts/hostfacts")
			if !names || strings.Count(printed, "\n") != 1 {
				t.Errorf("printed %q", printed)
			}
		})
	}
}

// installablePrograms returns the import paths of the programs below infra that are not in
// notInstallable.
func installablePrograms(t *testing.T) (programs []string) {
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`,
		"github.com/hostfacts/hostfacts/infra/...")
	for _, program := range strings.Fields(runCommand(t, list)) {
		if !isOneOf(program, notInstallable) {
			programs = append(programs, program)
		}
	}
	if len(programs) < 6 {
		t.Fatalf("found only %q", programs)
	}
	return programs
}

func isOneOf(program string, folders []string) bool {
	for _, folder := range folders {
		if strings.HasSuffix(program, "/hostfacts/"+folder) {
			return true
		}
	}
	return false
}

func runCommand(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	printed, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return string(printed)
}
