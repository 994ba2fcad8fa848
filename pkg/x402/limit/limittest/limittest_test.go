package limittest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
)

// faultVariable names the fault of the store that TestFaultyStore exercises.
const faultVariable = "LIMITTEST_FAULT"

// faulty is a store that breaks one promise.
type faulty struct {
	limit.Memory
	fault string
}

func (f *faulty) Acquire(ctx context.Context, operation string, l limit.Lease, most int) ([]limit.Lease, bool, error) {
	switch f.fault {
	case "no cap":
		most = 1 << 30
	case "one operation":
		operation = "any"
	case "ignores that its caller has left":
		ctx = context.WithoutCancel(ctx)
	}
	held, ok, err := f.Memory.Acquire(ctx, operation, l, most)
	switch f.fault {
	case "says nothing of others":
		held = nil
	case "always yes":
		ok = err == nil
	}
	return held, ok, err
}

func (f *faulty) Remove(ctx context.Context, operation string, leases ...limit.Lease) error {
	if f.fault == "keeps what is removed" {
		return ctx.Err()
	}
	return f.Memory.Remove(ctx, operation, leases...)
}

func (f *faulty) Count(ctx context.Context, client string, window time.Time, n limit.Units, most int) (limit.Units, bool, error) {
	switch f.fault {
	case "one client":
		client = "any"
	case "one window":
		window = time.Time{}
	case "counts beyond":
		most = limit.Unbounded
	}
	return f.Memory.Count(ctx, client, window, n, most)
}

// TestFaultyStore is what TestExerciseSeesFaults runs in a separate process.
// Without a fault the store passes.
func TestFaultyStore(t *testing.T) {
	limittest.Exercise(t, func(*testing.T) limit.Store { return &faulty{fault: os.Getenv(faultVariable)} })
}

// A store that breaks a promise of limit.Leases or limit.Counter fails.
func TestExerciseSeesFaults(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range []string{
		"no cap", "one operation", "says nothing of others", "always yes", "keeps what is removed",
		"ignores that its caller has left", "one client", "one window", "counts beyond",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestFaultyStore$", "-test.failfast")
			cmd.Env = append(os.Environ(), faultVariable+"="+fault)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestFaultyStore/") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
