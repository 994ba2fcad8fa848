package gameday

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	// The cache of go test sees what a test imports, not what it builds: this
	// is what the functions are made of.
	_ "github.com/hostfacts/hostfacts/pkg/boot/registry"
)

// root is the module, seen from this package.
const root = "../.."

// builtVar tells the copy in the namespace where everything is that was built.
const builtVar = "HOSTFACTS_GAMEDAY_BUILT"

// noNamespace says why this machine cannot play the scenarios. Only TestMain
// writes it.
var noNamespace string

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(builtVar) != "" {
		// Most scenarios wait for something and compute little.
		if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
			_ = f.Value.Set("8")
		}
		os.Exit(m.Run())
	}
	os.Exit(outside(m))
}

// outside builds what needs the network where modules are missing, and runs
// the tests in a namespace, or without one where there can be none.
func outside(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hostfacts-gameday-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err == nil {
		err = os.Setenv(builtVar, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code, err := isolated()
	if err != nil {
		noNamespace = err.Error()
		return m.Run()
	}
	return code
}

// build makes <slug>/bootstrap of every function, the command of make owed, and
// the CDK app, below a folder.
func build(dir string) error {
	slugs, err := os.ReadDir(filepath.Join(root, "functions"))
	if err != nil {
		return err
	}
	// One run of the compiler for all of them; then each where it belongs.
	flat := filepath.Join(dir, "flat") + string(filepath.Separator)
	if err := goBuild("-tags=lambda.norpc", "-ldflags=-s -w", "-o", flat, "./functions/..."); err != nil {
		return err
	}
	for _, s := range slugs {
		to := functionsDir(dir, s.Name())
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		if err := os.Rename(flat+s.Name(), filepath.Join(to, "bootstrap")); err != nil {
			return err
		}
	}
	if err := goBuild("-o", owedCommand(dir), "./infra/local/reconcile"); err != nil {
		return err
	}
	return goBuild("-o", cdkApp(dir), "./infra")
}

func goBuild(arguments ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-buildvcs=false", "-trimpath"}, arguments...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", arguments[len(arguments)-1], err, out)
	}
	return nil
}

func functionsDir(dir string, slug ...string) string {
	return filepath.Join(append([]string{dir, "functions"}, slug...)...)
}
func owedCommand(dir string) string { return filepath.Join(dir, "owed") }
func cdkApp(dir string) string      { return filepath.Join(dir, "cdk") }

// built is where everything is that was built.
func built() string { return os.Getenv(builtVar) }
