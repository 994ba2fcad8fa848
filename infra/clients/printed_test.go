package clients

import (
	"flag"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/modproxy"
	"github.com/hostfacts/hostfacts/infra/testbed/npmproxy"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// Where a printed command installs from.
const (
	ofHere   = "here"   // registries on this machine, which have what the repository pins
	ofPublic = "public" // those that a reader has
	ofNewest = "newest" // those, and the newest versions in place of the printed ones
)

var registries = flag.String("registries", ofHere, "where printed commands install from: "+ofHere+", "+ofPublic+" or "+ofNewest)

// registry is where the commands of one language install from.
type registry struct {
	environment func(t *testing.T) []string // that leads to what is pinned
	version     *regexp.Regexp              // in a printed command
	newest      string                      // in its place
}

func npm() registry {
	return registry{npmPinned, regexp.MustCompile(`@\d[^ ]*`), "@latest"}
}

func pip() registry {
	return registry{pipPinned, regexp.MustCompile(`==[^']*`), ""}
}

func goModules() registry {
	return registry{goPinned, regexp.MustCompile(`@v[^ ]*`), "@latest"}
}

// emptyFolder is a folder of somebody who has nothing but the tools of the language, and types
// what is printed.
func (r registry) emptyFolder(t *testing.T) workshop {
	w := newWorkshop(t)
	if *registries == ofHere {
		w.env = append(r.environment(t), "HOME="+t.TempDir())
	}
	return w
}

// install types the command that installs what a program needs.
func (r registry) install(t *testing.T, w workshop, command string) {
	if *registries == ofNewest {
		command = r.version.ReplaceAllString(command, r.newest)
	}
	out, err := w.shell(t, command).CombinedOutput()
	if err != nil {
		t.Fatalf("$ %s\n%s%v", command, out, err)
	}
	t.Logf("$ %s\n%s", command, out)
}

// npmPinned is npm with the packages of package-lock.json.
func npmPinned(t *testing.T) []string {
	testbed.Node(t, ".") // which has put them into npm's cache
	config := func(name string) string {
		return strings.TrimSpace(string(programs.Run(t, exec.Command("npm", "config", "get", name))))
	}
	registry := httptest.NewServer(testbed.Must(npmproxy.New(testbed.Must(os.ReadFile("package-lock.json")), config("registry"))))
	t.Cleanup(registry.Close)
	return []string{"npm_config_registry=" + registry.URL, "npm_config_cache=" + config("cache")}
}

// pipPinned is pip with the packages of requirements.
func pipPinned(t *testing.T) []string {
	return []string{"PIP_CONFIG_FILE=" + os.DevNull, "PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + testbed.Wheels(t, requirements)}
}

// goPinned is the go command with the modules of testdata/go, and whatever else is in the
// module cache of this machine.
func goPinned(t *testing.T) []string {
	w := goWorkshop(t)
	programs.Run(t, w.shell(t, "go mod download"))
	caches := strings.Fields(string(programs.Run(t, exec.Command("go", "env", "GOCACHE", "GOMODCACHE"))))
	return append(modproxy.Cached(caches[1]), "GOCACHE="+caches[0], "GOMODCACHE="+caches[1])
}
