package clients

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// pictures is where a screenshot of every state is written when asked for, below the
// module's folder. The few that README.md shows are kept in screenshots.
const pictures = "build/screenshots"

// driver is the Node process that drives one Chromium.
type driver struct{ *dialogue }

func newDriver(t *testing.T) driver {
	t.Helper()
	args := []string{"testdata/browser/driver.mjs", testbed.Find(t, "a browser", "chromium", "chromium-browser", "google-chrome")}
	if *updateScreenshots {
		args = append(args, filepath.Join(testbed.Root(t), pictures))
	}
	d := driver{begin(t, exec.CommandContext(t.Context(), testbed.Node(t, "."), args...))}
	var browser struct{ Version string }
	d.next(t, &browser)
	t.Logf("Chromium: %s", browser.Version)
	return d
}

// run plays a visit and returns what came of it: the address of the wallet that paid,
// and the JSON on show.
func (d driver) run(t *testing.T, origin string, v visit) (payer, answer string) {
	t.Helper()
	d.say(t, map[string]any{"name": v.script, "origin": origin, "path": v.path, "args": v.args})
	var o struct {
		Failed, Payer string
		Answer        json.RawMessage
	}
	if d.next(t, &o); o.Failed != "" {
		t.Fatal(strings.TrimSpace(o.Failed))
	}
	return o.Payer, string(o.Answer)
}
