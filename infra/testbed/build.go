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

// Parallel lets n tests of a suite run at once, because most tests spend their time waiting. A
// -parallel flag on the command line takes precedence. TestMain calls Parallel.
func Parallel(n int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(n)) // cannot fail: it is a number
	}
}

const (
	// LocalRunner is the path of the local runner's package.
	LocalRunner = "./infra/local"
	// AllFunctions is the pattern for the packages of all functions.
	AllFunctions = "./functions/..."
	// CDKApp is the path of the CDK app's package, which is in a separate module.
	CDKApp = "github.com/hostfacts/hostfacts/infra/cdk"
)

// The kinds of programs. The programs of a kind are built in the folder build/tests/<kind>.
const (
	kindPlain     = "commands"
	kindRace      = "watched"
	kindFunctions = "functions"
	kindShop      = "shop"
	kindPayMCP    = "paymcp"
	kindCDK       = "cdk"
)

// moduleOf has the folder of the module to which the programs of a kind belong. If a kind is
// missing, its programs belong to this module.
var moduleOf = map[string]string{kindShop: "infra/shop", kindPayMCP: "infra/paymcp", kindCDK: "infra/cdk"}

// kindOf returns the kind of the programs that Program and Isolate build from a package.
func kindOf(pkg string) string {
	switch pkg {
	case AllFunctions:
		return kindFunctions
	case CDKApp:
		return kindCDK
	}
	return kindPlain
}

// folderVar is the environment variable that names a folder to use instead of build/tests. It
// is set while mutants are tested, because the programs of a mutant must not get into
// build/tests.
const folderVar = "HOSTFACTS_PROGRAMS"

var flagsOf = map[string][]string{kindRace: {"-race"}, kindFunctions: {"-trimpath", "-tags=lambda.norpc", "-ldflags=-s -w"}}

// Program builds a program of this module, such as ./infra/local, or CDKApp, and returns its
// path. go test reuses a cached result until a package that the test imports changes. It does
// not see the programs that the test builds. A suite that calls Program therefore imports
// pkg/operations, which the programs contain.
func Program(tb testing.TB, pkg string) string { return mustBuild(tb, kindOf(pkg), pkg) }

// Watched is like Program, but builds with the race detector, which needs a C compiler. If the
// detector finds a race, the program exits with an error.
func Watched(tb testing.TB, pkg string) string { return mustBuild(tb, kindRace, pkg) }

// Functions returns a folder that has the program <slug>/bootstrap of every function, built
// with the flags of "make build".
func Functions(tb testing.TB) string { return mustBuild(tb, kindFunctions, AllFunctions) }

// Shop returns a command that runs the shop of infra/shop, a separate module, with its ledger
// in the folder dir. PAY_TO and LEDGER_FILE have defaults, which the caller can replace. No
// other setting has a default.
func Shop(tb testing.TB, dir string, settings map[string]string) *exec.Cmd {
	cmd := exec.Command(shop(tb, "server"))
	cmd.Dir = dir
	env := map[string]string{"PAY_TO": Account(1), "LEDGER_FILE": filepath.Join(dir, "ledger.db")}
	maps.Copy(env, settings)
	cmd.Env = Environment(env)
	return cmd
}

// payMCP is the path of pay-mcp's package.
const payMCP = "github.com/hostfacts/hostfacts/infra/paymcp"

// PayMCP builds pay-mcp, which is in the separate module infra/paymcp, and returns its path.
func PayMCP(tb testing.TB) string { return mustBuild(tb, kindPayMCP, payMCP) }

// ShopFunction returns a folder that has the bootstrap of the shop's Lambda function.
func ShopFunction(tb testing.TB) string { return shopFunction(tb, "function") }

// LateFunction returns a folder that has the bootstrap of a Lambda function. The handler takes
// longer than the function's time limit; see infra/shop/testdata/late/main.go.
func LateFunction(tb testing.TB) string { return shopFunction(tb, "testdata/late") }

func shopFunction(tb testing.TB, name string) string {
	folder := tb.TempDir()
	Check(os.Symlink(shop(tb, name), filepath.Join(folder, "bootstrap")))
	return folder
}

func shop(tb testing.TB, name string) string {
	_ = Must(os.ReadFile(filepath.Join(Root(), "infra/shop", name, "main.go"))) // makes the cache of go test depend on the file
	return mustBuild(tb, kindShop, "./"+name)
}

func mustBuild(tb testing.TB, kind, pkg string) string {
	path, err := build(kind, pkg)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// builds has the results of the builds in this process. Each build is made once, for all
// tests.
var builds sync.Map

// build builds the program of a package, or the folder of all functions, and returns its path.
func build(kind, pkg string) (string, error) {
	once, _ := builds.LoadOrStore(kind+" "+pkg, sync.OnceValues(func() (string, error) { return compile(kind, pkg) }))
	return once.(func() (string, error))() //nolint:forcetypeassert // the map contains only this type
}

// compile runs go build, which links only programs that are missing or outdated. Several
// suites may build at the same time, so compile takes a file lock first. The flags are those
// of go vet and go test, so the packages are already compiled and only linking remains. The
// packages of functions are compiled again, without cgo.
func compile(kind, pkg string) (string, error) {
	moduleFolder := filepath.Join(Root(), moduleOf[kind])
	output := filepath.Join(cmp.Or(os.Getenv(folderVar), filepath.Join(Root(), "build", "tests")), kind)
	if err := os.MkdirAll(output, 0o750); err != nil {
		return "", err
	}
	unlock, err := lock(output + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	arguments := append([]string{"build", "-buildvcs=false", "-o", output + "/"}, flagsOf[kind]...)
	cmd := exec.Command("go", append(arguments, pkg)...)
	if kind == kindFunctions {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if err := programs.Succeed(cmd, moduleFolder); err != nil || kind != kindFunctions {
		return filepath.Join(output, filepath.Base(pkg)), err
	}
	return linkBootstraps(output)
}

// linkBootstraps makes a link <slug>/bootstrap for every function, and returns the folder of
// the links. Each link leads to the function's program in the folder programDir.
func linkBootstraps(programDir string) (string, error) {
	folder := filepath.Join(programDir, "all")
	sources, err := filepath.Glob(filepath.Join(Root(), "functions", "*", "main.go"))
	for _, source := range sources {
		slug := filepath.Base(filepath.Dir(source))
		link := filepath.Join(folder, slug, "bootstrap")
		err = errors.Join(err, os.MkdirAll(filepath.Dir(link), 0o750))
		if failed := os.Symlink(filepath.Join(programDir, slug), link); !errors.Is(failed, fs.ErrExist) {
			err = errors.Join(err, failed)
		}
	}
	return folder, err
}
