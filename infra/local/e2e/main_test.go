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

var (
	binaries   sync.Map // folder and name -> *binary
	binaryDir  string
	binaryOnce sync.Once
)

// program says how one is built.
type program struct {
	pkg, name string
	flags     []string
	env       []string
}

// build returns the path of a built program.
func build(tb testing.TB, p program) string {
	tb.Helper()
	binaryOnce.Do(func() { binaryDir, _ = os.MkdirTemp("", "hostfacts-e2e-") })
	if binaryDir == "" {
		tb.Fatal("no temporary folder for the binaries")
	}
	path := filepath.Join(binaryDir, filepath.Base(p.pkg), p.name)
	v, _ := binaries.LoadOrStore(path, &binary{path: path})
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
	if binaryDir != "" {
		_ = os.RemoveAll(binaryDir)
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

// functionBinary is a function as make build builds it.
func functionBinary(tb testing.TB, slug string) string {
	return build(tb, program{
		pkg: "./functions/" + slug, name: "bootstrap",
		flags: []string{"-trimpath", "-tags=lambda.norpc", "-ldflags=-s -w"}, env: []string{"CGO_ENABLED=0"},
	})
}

// functionsDir holds <slug>/bootstrap for every function.
func functionsDir(tb testing.TB) string {
	tb.Helper()
	slugs, err := filepath.Glob(filepath.Join(root, "functions", "*"))
	if err != nil || len(slugs) == 0 {
		tb.Fatalf("no functions: %v", err)
	}
	for _, s := range slugs {
		functionBinary(tb, filepath.Base(s))
	}
	return binaryDir
}
