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

// The values of the flag -registries.
const (
	registryHere   = "here"   // registries on this machine, with the versions that the repository pins
	registryPublic = "public" // the public registries
	registryNewest = "newest" // the public registries, with the newest versions instead of the printed ones
)

var registries = flag.String("registries", registryHere, "where printed commands install from: "+registryHere+", "+registryPublic+" or "+registryNewest)

// registry describes how the printed commands of one language install packages.
type registry struct {
	environment func(t *testing.T) []string // returns the variables that select the registry on this machine
	version     *regexp.Regexp              // matches a version in a printed command
	newest      string                      // replaces the version in a command, to install the newest one
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

// emptyFolder returns an empty workshop. A reader who has only the tools of the language would
// run the printed commands in such a folder.
func (r registry) emptyFolder(t *testing.T) workshop {
	w := newWorkshop(t)
	if *registries == registryHere {
		w.env = append(r.environment(t), "HOME="+t.TempDir())
	}
	return w
}

// install runs the printed command that installs the packages of a program.
func (r registry) install(t *testing.T, w workshop, command string) {
	if *registries == registryNewest {
		command = r.version.ReplaceAllString(command, r.newest)
	}
	out, err := w.shell(t, command).CombinedOutput()
	if err != nil {
		t.Fatalf("$ %s\n%s%v", command, out, err)
	}
	t.Logf("$ %s\n%s", command, out)
}

// npmPinned returns variables with which npm installs the packages of package-lock.json.
func npmPinned(t *testing.T) []string {
	testbed.Node(t, ".") // fills npm's cache with the packages
	config := func(name string) string {
		return strings.TrimSpace(string(programs.Run(t, exec.Command("npm", "config", "get", name))))
	}
	registry := httptest.NewServer(testbed.Must(npmproxy.New(testbed.Must(os.ReadFile("package-lock.json")), config("registry"))))
	t.Cleanup(registry.Close)
	return []string{"npm_config_registry=" + registry.URL, "npm_config_cache=" + config("cache")}
}

// pipPinned returns variables with which pip installs the packages of
// testdata/requirements.txt.
func pipPinned(t *testing.T) []string {
	return []string{"PIP_CONFIG_FILE=" + os.DevNull, "PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + testbed.Wheels(t, requirements)}
}

// goPinned returns variables with which the go command takes modules from the module cache of
// this machine. The call also puts the modules of testdata/go into that cache.
func goPinned(t *testing.T) []string {
	w := goWorkshop(t)
	programs.Run(t, w.shell(t, "go mod download"))
	caches := strings.Fields(string(programs.Run(t, exec.Command("go", "env", "GOCACHE", "GOMODCACHE"))))
	return append(modproxy.Cached(caches[1]), "GOCACHE="+caches[0], "GOMODCACHE="+caches[1])
}
