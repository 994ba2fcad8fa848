package browser

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

var updateScreenshots = flag.Bool("update-screenshots", false, "write build/screenshots/*.png, and from them screenshots/*.png")

// root is the module, seen from this package.
const root = "../.."

// pictures is where a screenshot of every state is written when asked for. The
// few that README.md shows are kept in screenshots.
const pictures = root + "/build/screenshots"

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	// Each browser waits for its pages, and for their clocks, as well as it computes.
	testbed.Parallel(2)
	os.Exit(testbed.Main(m))
}

// tools finds the browser and Node, and skips the test by name where a machine
// lacks one.
func tools(t *testing.T) (node, chromium string) {
	t.Helper()
	chromium = testbed.Find(t, "a browser", "chromium", "chromium-browser", "google-chrome")
	return testbed.Node(t, "."), chromium
}
