package testbed

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// Main runs the tests of a suite, and removes the programs that they have had
// built. It returns the exit code. The cache of go test sees what a test imports and
// not what it builds, so a suite imports pkg/operations: the programs are made of it.
func Main(m *testing.M) int {
	code := m.Run()
	_ = os.RemoveAll(programs.dir) // in the folder for temporary files
	return code
}

// Parallel has n tests of a suite run at once, unless the command line says how
// many: most of them wait for something and compute little. TestMain calls it.
func Parallel(n int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(n)) // a number
	}
}

// programs are those that were built for this process: one for all tests.
var programs shelf

// shelf is a temporary folder of programs, each of which is built at its first
// use.
type shelf struct {
	mu  sync.Mutex
	dir string
}

// get is the path of a program, or of a folder of them. build puts it there.
func (s *shelf) get(tb testing.TB, name string, build func(to string) error) string {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.dir == "" {
		s.dir, err = os.MkdirTemp("", "hostfacts-testbed-")
	}
	path := filepath.Join(s.dir, name)
	if _, absent := os.Stat(path); err == nil && absent != nil {
		err = build(path)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// LocalRunner is the package of the local runner.
const LocalRunner = "./infra/local"

// Program is the path of a program of this module, such as ./infra/local, as
// people run it.
func Program(tb testing.TB, pkg string) string {
	tb.Helper()
	root := Root(tb)
	return programs.get(tb, filepath.Join("plain", filepath.Base(pkg)), func(to string) error {
		return BuildCommand(context.Background(), root, pkg, to)
	})
}

// Watched is Program with the race detector, which needs a C compiler: the
// program ends with an error when the detector has seen something.
func Watched(tb testing.TB, pkg string) string {
	tb.Helper()
	root := Root(tb)
	return programs.get(tb, filepath.Join(watched, filepath.Base(pkg)), func(to string) error {
		return build(context.Background(), root, ".", watched, map[string]string{filepath.Base(pkg): to}, "-race", pkg)
	})
}

// Functions is a folder that holds <slug>/bootstrap for every function, built as
// make build builds them.
func Functions(tb testing.TB) string {
	tb.Helper()
	root := Root(tb)
	return programs.get(tb, "functions", func(to string) error {
		return BuildFunctions(context.Background(), root, to)
	})
}

// Shop is the command of the shop of infra/shop, a separate module, with its ledger in
// a folder. Its window is long enough for a machine that is busy with something else.
func Shop(tb testing.TB, dir, addr, facilitator string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command(programs.get(tb, "shop", func(to string) error { return buildShop(tb, "server", to) }))
	cmd.Dir = dir
	cmd.Env = Environment(map[string]string{
		"ADDR": addr, "FACILITATOR": facilitator, "PAY_TO": Account(1), "LEDGER_FILE": filepath.Join(dir, "ledger.db"), "WINDOW": "600s",
	})
	return cmd
}

// ShopFunction is a folder with the bootstrap of the shop's Lambda function.
func ShopFunction(tb testing.TB) string {
	tb.Helper()
	return programs.get(tb, "shop-function", func(to string) error { return buildShop(tb, "function", filepath.Join(to, "bootstrap")) })
}

func buildShop(tb testing.TB, program, to string) error {
	root, in := Root(tb), filepath.Join("infra", "shop")
	if _, err := os.ReadFile(filepath.Join(root, in, program, "main.go")); err != nil { // so that the cache of go test knows of it
		return err
	}
	return build(context.Background(), root, in, "shop", map[string]string{program: to}, "./"+program)
}
