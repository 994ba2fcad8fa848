package testbed

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

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
	return build(ctx, root, ".", "functions", placed, "-tags=lambda.norpc", "-ldflags=-s -w", "./functions/...")
}

// BuildCommand builds the program of a package, such as ./infra/local, to a file.
func BuildCommand(ctx context.Context, root, pkg, to string) error {
	return build(ctx, root, ".", "commands", map[string]string{filepath.Base(pkg): to}, pkg)
}

// build runs the compiler in a folder of the module, which links nothing that is there
// and current, and puts each program where it is wanted. Only the kind watched has C.
// Suites run side by side, so one waits for the other.
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
	arguments = append([]string{"build", "-buildvcs=false", "-trimpath", "-o", kept + string(filepath.Separator)}, arguments...)
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+map[bool]string{true: "1", false: "0"}[kind == watched])
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

// watched are programs with the race detector.
const watched = "watched"

// place makes a second name of a program. The compiler never writes into a file
// that is there, so a later build does not change what this name stands for.
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
