package samcli

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// The largest allowed sizes of binaries, in bytes. maxRegistry is for the functions that query
// registries, and so link the RDAP library. maxBinary is for the other functions.
const (
	maxBinary   = 13_000_000
	maxRegistry = 17_000_000
)

// TestBuild runs "sam build" with the environment of "make sam-build", and checks the binaries
// and the template that "sam build" makes. It writes nothing into the checkout.
func TestBuild(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	cmd := deployed.Python(t, "-m", "samcli", "build", "--build-dir", out)
	cmd.Dir = testbed.Root()
	cmd.Env = append(append(cmd.Env, goEnv(t)...), buildEnv(t)...)
	programs.Run(t, cmd)
	for _, slug := range slugs() {
		path := filepath.Join(out, sam.LogicalID(slug), "bootstrap")
		info, err := os.Stat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		binary, err := elf.Open(path)
		if err != nil {
			t.Errorf("%s: %v", slug, err)
			continue
		}
		limit := int64(maxBinary)
		if slug == "whois" || slug == "host-intel" || slug == sam.MCP {
			limit = maxRegistry
		}
		libraries, err := binary.ImportedLibraries()
		if binary.Machine != elf.EM_AARCH64 || err != nil || len(libraries) != 0 || binary.Section(".symtab") != nil || info.Size() > limit {
			t.Errorf("%s: %v, libraries %v, symbols %v, %d bytes; want arm64, none, none, %d at most",
				slug, binary.Machine, libraries, binary.Section(".symtab") != nil, info.Size(), limit)
		}
		_ = binary.Close()
		t.Logf("%-18s %5.2f MB", slug, float64(info.Size())/1e6)
	}
	// "sam deploy" reads the built template, so each CodeUri in it must name a built folder.
	built, err := os.ReadFile(filepath.Join(out, "template.yaml"))
	if err != nil || strings.Count(string(built), "CodeUri: ") != len(slugs()) || strings.Contains(string(built), "CodeUri: functions/") {
		t.Errorf("the built template names %d folders, want one for each of %d: %v", strings.Count(string(built), "CodeUri: "), len(slugs()), err)
	}
}

// TestBuildShop runs "sam build" for the shop's function, as the function's template says. It
// deploys nothing.
func TestBuildShop(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(testbed.Root(), "infra", "shop", "function")
	template := string(testbed.Must(os.ReadFile(filepath.Join(folder, "template.yaml"))))
	const says = "sam build && sam deploy --guided, in this folder"
	if !strings.Contains(template, says) {
		t.Fatalf("the template of the shop no longer says %q", says)
	}
	out := t.TempDir()
	cmd := deployed.Python(t, "-m", "samcli", "build", "--build-dir", out)
	cmd.Dir = folder
	// These are the flags of TestBuild, so that packages that both builds need are compiled
	// only once.
	cmd.Env = append(append(cmd.Env, goEnv(t)...), buildEnv(t)...)
	programs.Run(t, cmd)
	binary, err := elf.Open(filepath.Join(out, "Shop", "bootstrap"))
	if err != nil {
		t.Fatal(err)
	}
	if binary.Machine != elf.EM_AARCH64 {
		t.Errorf("built for %v, and the template says arm64", binary.Machine)
	}
	if err := binary.Close(); err != nil {
		t.Error(err)
	}
}

// buildEnv returns the variables that the Makefile sets for "sam build".
func buildEnv(t *testing.T) []string {
	t.Helper()
	makefile := testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), "Makefile")))
	recipe := regexp.MustCompile(`\n\tCGO_ENABLED=0 GOFLAGS="([^"]*)" sam build\n`).FindSubmatch(makefile)
	if recipe == nil {
		t.Fatal("the Makefile no longer says how sam build is run where this test looks for it")
	}
	return []string{"CGO_ENABLED=0", "GOFLAGS=" + strings.ReplaceAll(string(recipe[1]), "$$(date +%s)", "1800000000")}
}

// goEnv returns the variables of the Go tool whose defaults depend on HOME.
func goEnv(t *testing.T) []string {
	t.Helper()
	values := strings.Fields(string(programs.Run(t, exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPATH"))))
	return []string{"GOCACHE=" + values[0], "GOMODCACHE=" + values[1], "GOPATH=" + values[2]}
}
