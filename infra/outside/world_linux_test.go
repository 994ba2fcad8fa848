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

// module is what somebody imports.
const module = "github.com/hostfacts/hostfacts"

func TestMain(m *testing.M) {
	code := testbed.Isolate(m, 2)
	forget()
	os.Exit(code)
}

// loopback has the network of the suite, if it has one, reach itself.
var loopback = sync.OnceFunc(func() {
	if testbed.NoNamespaces() == nil {
		testbed.Check(testbed.IP("link set lo up"))
	}
})

// proxy is the folder of the proxy that the tree was packed into, and what is there.
var proxy struct {
	sync.Once
	folder string
	tree   modproxy.Packed
}

// packed is the tree as it is, packed once.
func packed(t *testing.T) modproxy.Packed {
	t.Helper()
	proxy.Do(func() {
		proxy.folder = testbed.Must(os.MkdirTemp("", "proxy"))
		proxy.tree = testbed.Must(modproxy.Pack(proxy.folder, testbed.Root(), module))
	})
	return proxy.tree
}

// forget removes what the tests have left on this machine.
func forget() {
	if proxy.folder != "" {
		testbed.Check(proxy.tree.Forget())
		testbed.Check(os.RemoveAll(proxy.folder))
	}
}

// goes is the environment of somebody who has the go command, the caches of this machine,
// and nothing that was set for the suite.
func goes(t *testing.T, home string) []string {
	t.Helper()
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GO") && !strings.HasPrefix(variable, "GOROOT=")
	})
	caches := strings.Fields(string(programs.Run(t, exec.Command("go", "env", "GOCACHE", "GOMODCACHE"))))
	return append(append(environment, packed(t).Environment()...), "HOME="+home, "GOCACHE="+caches[0], "GOMODCACHE="+caches[1])
}
