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

// Parallel lets n tests of a suite run at once, unless the command line sets the number, because
// most of them wait and compute little. TestMain calls it.
func Parallel(n int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(n)) // a number
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

// The kinds of programs, which are folders of build/tests.
const (
	plain     = "commands"
	watched   = "watched"
	functions = "functions"
	ofShop    = "shop"
	ofPayMCP  = "paymcp"
	ofCDK     = "cdk"
)

// moduleOf returns the folder of the module for programs of a kind, if it is not this module.
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

// keptVar is the variable that replaces the folder build/tests, for programs with a mutant.
const keptVar = "HOSTFACTS_PROGRAMS"

var flagsOf = map[string][]string{watched: {"-race"}, functions: {"-trimpath", "-tags=lambda.norpc", "-ldflags=-s -w"}}

// Program returns the path of a program of this module, such as ./infra/local, or CDKApp, built
// in the usual way. The test cache of go test sees what a test imports, not what it builds. So a
// suite imports pkg/operations, of which the programs are made.
func Program(tb testing.TB, pkg string) string { return built(tb, kindOf(pkg), pkg) }

// Watched is like Program with the race detector, which needs a C compiler. The program ends
// with an error if the detector has found a race.
func Watched(tb testing.TB, pkg string) string { return built(tb, watched, pkg) }

// Functions returns a folder with <slug>/bootstrap for every function, built as make build
// builds them.
func Functions(tb testing.TB) string { return built(tb, functions, AllFunctions) }

// Shop is the command of the shop of infra/shop, a separate module, with its ledger in
// a folder. Of its settings only PAY_TO and LEDGER_FILE have values already.
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

// ShopFunction is a folder with the bootstrap of the shop's Lambda function.
func ShopFunction(tb testing.TB) string { return shopFunction(tb, "function") }

// LateFunction is a folder with the bootstrap of a Lambda function whose handler outlives its
// time: see its main.go.
func LateFunction(tb testing.TB) string { return shopFunction(tb, "testdata/late") }

func shopFunction(tb testing.TB, name string) string {
	folder := tb.TempDir()
	Check(os.Symlink(shop(tb, name), filepath.Join(folder, "bootstrap")))
	return folder
}

func shop(tb testing.TB, name string) string {
	_ = Must(os.ReadFile(filepath.Join(Root(), "infra/shop", name, "main.go"))) // so that the cache of go test knows of it
	return built(tb, ofShop, "./"+name)
}

func built(tb testing.TB, kind, pkg string) string {
	path, err := build(kind, pkg)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// builds are the results of this process's builds, each made once for all tests.
var builds sync.Map

// build builds the program of a package, or the folder of all functions, and returns its path.
func build(kind, pkg string) (string, error) {
	once, _ := builds.LoadOrStore(kind+" "+pkg, sync.OnceValues(func() (string, error) { return compile(kind, pkg) }))
	return once.(func() (string, error))() //nolint:forcetypeassert // the map has nothing else
}

// compile runs the compiler, which links only what is missing or outdated. Suites run side by
// side, so one waits for the other. Commands are built with the flags of go vet and go test,
// which have compiled their packages, so that only linking is left; functions need packages that
// are compiled for a machine without C.
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

// deployable returns a folder with the programs of another folder under the names
// <name>/bootstrap.
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
