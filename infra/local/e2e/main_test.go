package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/built"
)

// root is the module, seen from this package.
const root = "../../.."

func TestMain(m *testing.M) {
	flag.Parse()
	// Most cases wait for something and compute little: two at a time, which
	// is what two cores would get, would take minutes.
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("12")
	}
	code := m.Run()
	removeBinaries()
	os.Exit(code)
}

// binary is a program of this module, built once.
type binary struct {
	once sync.Once
	path string
	err  error
}

var programs sync.Map // folder and name -> *binary

// binaryDir is the folder of the binaries; making it is the first use.
var binaryDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "hostfacts-e2e-") })

func binaries(tb testing.TB) string {
	tb.Helper()
	dir, err := binaryDir()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// program says how one is built.
type program struct {
	pkg, name string
	flags     []string
	env       []string
}

// build returns the path of a built program.
func build(tb testing.TB, p program) string {
	tb.Helper()
	path := filepath.Join(binaries(tb), filepath.Base(p.pkg), p.name)
	v, _ := programs.LoadOrStore(path, &binary{path: path})
	b := v.(*binary)
	b.once.Do(func() {
		args := append(append([]string{"build", "-buildvcs=false", "-o", b.path}, p.flags...), p.pkg)
		cmd := exec.CommandContext(context.Background(), "go", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), p.env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("go build %s: %w\n%s", p.pkg, err, out)
		}
	})
	if b.err != nil {
		tb.Fatal(b.err)
	}
	return b.path
}

func removeBinaries() {
	if dir, err := binaryDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
}

// localBinary is the local runner, watched by the race detector. A quick run
// builds it as it was built itself: the detector needs a C compiler, and what
// the suite shares with the runner is compiled by then.
func localBinary(tb testing.TB) string {
	p := program{pkg: "./infra/local", name: "local"}
	if watched || !testing.Short() {
		p.flags, p.env = []string{"-race"}, []string{"CGO_ENABLED=1"}
	}
	return build(tb, p)
}

// plainBinary is the local runner as people run it, for crowds: the race
// detector makes a signature fifteen times as dear, and a thousand of them
// at once on two cores then wait for the processor until their time is up.
func plainBinary(tb testing.TB) string {
	return build(tb, program{
		pkg: "./infra/local", name: "plain",
		flags: []string{"-trimpath", "-tags=lambda.norpc"}, env: []string{"CGO_ENABLED=0"},
	})
}

// payBinary is the paying client of make pay, built as the suite is.
func payBinary(tb testing.TB) string {
	p := program{pkg: "./infra/local/pay", name: "pay"}
	if watched {
		p.flags, p.env = []string{"-race"}, []string{"CGO_ENABLED=1"}
	}
	return build(tb, p)
}

// functions puts every function below the folder of the binaries, once.
var functions = sync.OnceValue(func() error {
	dir, err := binaryDir()
	if err != nil {
		return err
	}
	return built.Functions(context.Background(), root, dir)
})

// functionsDir holds <slug>/bootstrap for every function.
func functionsDir(tb testing.TB) string {
	tb.Helper()
	if err := functions(); err != nil {
		tb.Fatal(err)
	}
	return binaries(tb)
}
