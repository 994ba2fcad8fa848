package browser

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/built"
)

var updateScreenshots = flag.Bool("update-screenshots", false, "write build/screenshots/*.png, and from them screenshots/*.png")

// root is the module, seen from this package.
const root = "../.."

// pictures is where a screenshot of every state is written when asked for. The
// few that README.md shows are kept in screenshots.
const pictures = root + "/build/screenshots"

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// tools finds the browser and Node, and skips the test by name where a machine
// lacks one.
func tools(t *testing.T) (node, chromium string) {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = path
			break
		}
	}
	if chromium == "" {
		t.Skip("needs a browser: chromium is not in PATH")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs Node to drive the browser: node is not in PATH")
	}
	if installed() == nil {
		return node, chromium
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("needs the npm packages that drive the browser: npm is not in PATH")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("needs the npm packages that drive the browser, and npm ci fails: %v: %.400s", err, out)
	}
	if err := installed(); err != nil {
		t.Fatalf("after npm ci: %v", err)
	}
	return node, chromium
}

// installed says whether the packages are there. npm writes the hidden lock
// file last.
func installed() error {
	for _, name := range []string{".package-lock.json", "axe-core", "playwright-core", "viem"} {
		if _, err := os.Stat(filepath.Join("node_modules", name)); err != nil {
			return errors.New("node_modules is missing or incomplete")
		}
	}
	return nil
}

// buildRunner builds the local runner.
func buildRunner(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "local")
	if err := built.Command(t.Context(), root, "./infra/local", path); err != nil {
		t.Fatal(err)
	}
	return path
}
