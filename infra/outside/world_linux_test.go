package outside

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/modproxy"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// module is the path of the module that sellers import.
const module = "github.com/hostfacts/hostfacts"

func TestMain(m *testing.M) {
	code := testbed.Isolate(m, 2)
	removeProxy()
	os.Exit(code)
}

// loopback brings up the loopback interface if the tests have their own network namespace.
var loopback = sync.OnceFunc(func() {
	if testbed.NoNamespaces() == nil {
		testbed.Check(testbed.IP("link set lo up"))
	}
})

// proxy has the folder of the module proxy. Its field tree describes the module of this
// repository, which is packed into that folder.
var proxy struct {
	sync.Once
	folder string
	tree   modproxy.Packed
}

// packModule returns the packed module. The first call packs the current files of this
// repository.
func packModule(t *testing.T) modproxy.Packed {
	t.Helper()
	proxy.Do(func() {
		proxy.folder = testbed.Must(os.MkdirTemp("", "proxy"))
		proxy.tree = testbed.Must(modproxy.Pack(proxy.folder, testbed.Root(), module))
	})
	return proxy.tree
}

// removeProxy removes the packed module and the folder of the proxy from this machine.
func removeProxy() {
	if proxy.folder != "" {
		testbed.Check(proxy.tree.Forget())
		testbed.Check(os.RemoveAll(proxy.folder))
	}
}

// readerEnvironment returns the environment of a reader. It is the tests' environment, with
// these changes: of the variables whose names begin with GO, only GOROOT stays; the variables
// of the module proxy, the home folder and the caches of this machine are added.
func readerEnvironment(t *testing.T, home string) []string {
	t.Helper()
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GO") && !strings.HasPrefix(variable, "GOROOT=")
	})
	caches := strings.Fields(string(programs.Run(t, exec.Command("go", "env", "GOCACHE", "GOMODCACHE"))))
	return append(append(environment, packModule(t).Environment()...), "HOME="+home, "GOCACHE="+caches[0], "GOMODCACHE="+caches[1])
}
