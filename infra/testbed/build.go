package testbed

import (
	"cmp"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// Parallel lets n tests of a suite run at once, because most tests wait and compute little. A
// number on the command line takes precedence. TestMain calls Parallel.
func Parallel(n int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(n)) // cannot fail: it is a number
	}
}

const (
	// LocalRunner is the package of the local runner.
	LocalRunner = "./infra/local"
	// AllFunctions are the packages of the functions.
	AllFunctions = "./functions/..."
	// CDKApp is the package of the CDK app, which is a separate module.
	CDKApp = "github.com/hostfacts/hostfacts/infra/cdk"
)

// The kinds of programs. The programs of a kind are in the folder of build/tests that has the
// name of the kind.
const (
	plain     = "commands"
	watched   = "watched"
	functions = "functions"
	ofShop    = "shop"
	ofPayMCP  = "paymcp"
	ofCDK     = "cdk"
)

// moduleOf maps a kind of programs to the folder of their module, if it is not this module.
var moduleOf = map[string]string{ofShop: "infra/shop", ofPayMCP: "infra/paymcp", ofCDK: "infra/cdk"}

// kindOf returns the kind of a package that is built in the usual way.
func kindOf(pkg string) string {
	switch pkg {
	case AllFunctions:
		return functions
	case CDKApp:
		return ofCDK
	}
	return plain
}

// keptVar is an environment variable with a folder that replaces build/tests. It is set when
// mutants are tested, because their programs must not be kept in build/tests.
const keptVar = "HOSTFACTS_PROGRAMS"

var flagsOf = map[string][]string{watched: {"-race"}, functions: {"-trimpath", "-tags=lambda.norpc", "-ldflags=-s -w"}}

// Program builds a program of this module, such as ./infra/local, or CDKApp, and returns its
// path. The cache of go test depends on the packages that a test imports, not on the programs
// that it builds. So a suite imports pkg/operations, which the programs use.
func Program(tb testing.TB, pkg string) string { return built(tb, kindOf(pkg), pkg) }

// Watched is like Program, with the race detector, which needs a C compiler. The program exits
// with an error if the detector has found a race.
func Watched(tb testing.TB, pkg string) string { return built(tb, watched, pkg) }

// Functions returns a folder with the program <slug>/bootstrap of every function, built with the
// flags of make build.
func Functions(tb testing.TB) string { return built(tb, functions, AllFunctions) }

// Shop returns a command that runs the shop of infra/shop, a separate module, with its ledger in
// the folder dir. PAY_TO and LEDGER_FILE have defaults, which settings can replace; no other
// setting has a value.
func Shop(tb testing.TB, dir string, settings map[string]string) *exec.Cmd {
	cmd := exec.Command(shop(tb, "server"))
	cmd.Dir = dir
	env := map[string]string{"PAY_TO": Account(1), "LEDGER_FILE": filepath.Join(dir, "ledger.db")}
	maps.Copy(env, settings)
	cmd.Env = Environment(env)
	return cmd
}

// payMCP is the package of pay-mcp.
const payMCP = "github.com/hostfacts/hostfacts/infra/paymcp"

// PayMCP returns the path of pay-mcp from infra/paymcp, a separate module.
func PayMCP(tb testing.TB) string { return built(tb, ofPayMCP, payMCP) }

// ShopFunction returns a folder with the bootstrap of the shop's Lambda function.
func ShopFunction(tb testing.TB) string { return shopFunction(tb, "function") }

// LateFunction returns a folder with the bootstrap of a Lambda function whose handler runs beyond
// its time limit; see infra/shop/testdata/late/main.go.
func LateFunction(tb testing.TB) string { return shopFunction(tb, "testdata/late") }

func shopFunction(tb testing.TB, name string) string {
	folder := tb.TempDir()
	Check(os.Symlink(shop(tb, name), filepath.Join(folder, "bootstrap")))
	return folder
}

func shop(tb testing.TB, name string) string {
	_ = Must(os.ReadFile(filepath.Join(Root(), "infra/shop", name, "main.go"))) // go test then notices when the file changes
	return built(tb, ofShop, "./"+name)
}

func built(tb testing.TB, kind, pkg string) string {
	path, err := build(kind, pkg)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// builds has the results of this process's builds. Each is made once, for all tests.
var builds sync.Map

// build builds the program of a package, or the folder of all functions, and returns its path.
func build(kind, pkg string) (string, error) {
	once, _ := builds.LoadOrStore(kind+" "+pkg, sync.OnceValues(func() (string, error) { return compile(kind, pkg) }))
	return once.(func() (string, error))() //nolint:forcetypeassert // the map has nothing else
}

// compile runs the compiler, which links only the programs that are missing or outdated.
// Suites run at the same time, so compile holds a file lock and the other suites wait.
// Commands are built with the flags of go vet and go test, which have compiled the packages
// already, so only linking remains. Functions need packages that are compiled without cgo.
func compile(kind, pkg string) (string, error) {
	in := filepath.Join(Root(), moduleOf[kind])
	kept := filepath.Join(cmp.Or(os.Getenv(keptVar), filepath.Join(Root(), "build", "tests")), kind)
	if err := os.MkdirAll(kept, 0o750); err != nil {
		return "", err
	}
	unlock, err := lock(kept + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	arguments := append([]string{"build", "-buildvcs=false", "-o", kept + "/"}, flagsOf[kind]...)
	cmd := exec.Command("go", append(arguments, pkg)...)
	if kind == functions {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if err := programs.Succeed(cmd, in); err != nil || kind != functions {
		return filepath.Join(kept, filepath.Base(pkg)), err
	}
	return deployable(kept)
}

// deployable returns a folder with a link <name>/bootstrap to every program in another folder,
// which is the argument kept.
func deployable(kept string) (string, error) {
	folder := filepath.Join(kept, "all")
	sources, err := filepath.Glob(filepath.Join(Root(), "functions", "*", "main.go"))
	for _, source := range sources {
		slug := filepath.Base(filepath.Dir(source))
		link := filepath.Join(folder, slug, "bootstrap")
		err = errors.Join(err, os.MkdirAll(filepath.Dir(link), 0o750))
		if failed := os.Symlink(filepath.Join(kept, slug), link); !errors.Is(failed, fs.ErrExist) {
			err = errors.Join(err, failed)
		}
	}
	return folder, err
}
