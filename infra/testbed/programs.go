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

// shelf is a temporary folder of programs, each of which is built at its first use.
type shelf struct {
	mu  sync.Mutex
	dir string
}

// get is the path of a program, or of a folder of them. build puts it there.
func (s *shelf) get(tb testing.TB, name string, build func(to string) error) string {
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

// program is the path of a program of a module of this repository, of a kind.
func program(tb testing.TB, kind, module, pkg string, flags ...string) string {
	root, name := Root(tb), filepath.Base(pkg)
	return programs.get(tb, filepath.Join(kind, name), func(to string) error {
		return build(context.Background(), root, module, kind, map[string]string{name: to}, append(flags, pkg)...)
	})
}

// LocalRunner is the package of the local runner.
const LocalRunner = "./infra/local"

// Program is the path of a program of this module, such as ./infra/local, as
// people run it.
func Program(tb testing.TB, pkg string) string { return program(tb, "commands", ".", pkg) }

// Watched is Program with the race detector, which needs a C compiler: the
// program ends with an error when the detector has seen something.
func Watched(tb testing.TB, pkg string) string {
	return program(tb, "watched", ".", pkg, "-race")
}

// Functions is a folder that holds <slug>/bootstrap for every function, built as
// make build builds them.
func Functions(tb testing.TB) string {
	root := Root(tb)
	return programs.get(tb, functions, func(to string) error { return BuildFunctions(context.Background(), root, to) })
}

// Shop is the command of the shop of infra/shop, a separate module, with its ledger in
// a folder. Its window is long enough for a machine that is busy with something else.
func Shop(tb testing.TB, dir, addr, facilitator string) *exec.Cmd {
	cmd := exec.Command(shop(tb, "server"))
	cmd.Dir = dir
	cmd.Env = Environment(map[string]string{
		"ADDR": addr, "FACILITATOR": facilitator, "PAY_TO": Account(1), "LEDGER_FILE": filepath.Join(dir, "ledger.db"), "WINDOW": "600s",
	})
	return cmd
}

// ShopFunction is a folder with the bootstrap of the shop's Lambda function.
func ShopFunction(tb testing.TB) string {
	folder := filepath.Join(tb.TempDir(), "shop")
	check(place(shop(tb, "function"), filepath.Join(folder, "bootstrap")))
	return folder
}

func shop(tb testing.TB, name string) string {
	in := filepath.Join("infra", "shop")
	_ = must(os.ReadFile(filepath.Join(Root(tb), in, name, "main.go"))) // so that the cache of go test knows of it
	return program(tb, "shop", in, "./"+name)
}

// BuildFunctions puts <slug>/bootstrap of every function below the folder to, built
// as make build builds them. root is the module's folder.
func BuildFunctions(ctx context.Context, root, to string) error {
	list, err := os.ReadDir(filepath.Join(root, "functions"))
	if err != nil {
		return err
	}
	placed := map[string]string{}
	for _, f := range list {
		placed[f.Name()] = filepath.Join(to, f.Name(), "bootstrap")
	}
	return build(ctx, root, ".", functions, placed, "-trimpath", "-tags=lambda.norpc", "-ldflags=-s -w", "./functions/...")
}

// BuildCommand builds the program of a package, such as ./infra/local, to a file.
func BuildCommand(ctx context.Context, root, pkg, to string) error {
	return build(ctx, root, ".", "commands", map[string]string{filepath.Base(pkg): to}, pkg)
}

// build runs the compiler in a folder of the module, which links nothing that is there
// and current, and puts each program where it is wanted. Suites run side by side, so one
// waits for the other. Commands are built with the flags of go vet and go test, which
// have compiled their packages, so that only linking is left; functions need packages
// that are compiled for a machine without C.
func build(ctx context.Context, root, in, kind string, placed map[string]string, arguments ...string) error {
	kept, err := filepath.Abs(filepath.Join(root, "build", "tests", kind))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(kept, 0o750); err != nil {
		return err
	}
	unlock, err := lock(kept + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	arguments = append([]string{"build", "-buildvcs=false", "-o", kept + string(filepath.Separator)}, arguments...)
	cmd := exec.CommandContext(ctx, "go", arguments...)
	if kind == functions {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if err := succeed(cmd, filepath.Join(root, in)); err != nil {
		return err
	}
	for name, to := range placed {
		if err := place(filepath.Join(kept, name), to); err != nil {
			return err
		}
	}
	return nil
}

// functions are programs as make build builds them.
const functions = "functions"

// place makes a second name of a program, which a later build does not change.
func place(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	program, err := os.ReadFile(from) // for another file system
	if err != nil {
		return err
	}
	return os.WriteFile(to, program, 0o700) //nolint:gosec // a program
}
