package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// program is an external program that a deployment runs.
type program struct {
	dir       string
	env       []string // variables in addition to those of this process
	name      string
	arguments []string
}

func (p program) String() string {
	return strings.Join(append([]string{p.name}, p.arguments...), " ")
}

// interruptTimeout is how long a program may take to end after execute has interrupted it.
const interruptTimeout = 30 * time.Second

// execute runs a program and shows its output to the person who deploys. If the context ends,
// for example because this process was interrupted, execute interrupts the program.
func execute(ctx context.Context, p program) error {
	cmd := exec.CommandContext(ctx, p.name, p.arguments...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptTimeout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	return nil
}

// output runs a program and returns what the program prints to standard output.
func output(ctx context.Context, p program) (string, error) {
	cmd := exec.CommandContext(ctx, p.name, p.arguments...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), p.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", p, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
