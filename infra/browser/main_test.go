package browser

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
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
	installing.Lock()
	defer installing.Unlock()
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

// installing is held by the test that installs packages; the others wait for it.
var installing sync.Mutex

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

// builtIn is a folder for the built local runner, which is runner; making it is
// the first use.
var (
	builtIn = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "hostfacts-browser-") })
	runner  = sync.OnceValues(func() (string, error) {
		dir, err := builtIn()
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, "local")
		return path, built.Command(context.Background(), root, "./infra/local", path)
	})
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Each browser waits for its pages, and for their clocks, as well as it computes.
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("3")
	}
	code := m.Run()
	if dir, err := builtIn(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// buildRunner builds the local runner, once.
func buildRunner(t *testing.T) string {
	t.Helper()
	path, err := runner()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
