// Package bundle has the lookups that are several single lookups for one payment:
// HostIntel and Uptime. Each child has a budget of its own, and its failure is a
// value and not an error (spec §2.8).
package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// budget is what a child may take. It is shorter than a bundle's own deadline,
// so that a slow child is its own time-out and leaves the others standing.
const budget = 8 * time.Second

// Child is a field of a bundle: a result, or why there is none.
type Child[T any] struct {
	Result T
	Fault  *fault.Error // nil when Result counts
}

// Failed says that there is no result.
func (c Child[T]) Failed() bool { return c.Fault != nil }

// as is the child under the name of its JSON field, for owed.
func (c Child[T]) as(field string) part { return part{field: field, fault: c.Fault} }

// part is a child without its result.
type part struct {
	field string
	fault *fault.Error // nil for one that has a result
}

// owed names those of a bundle's children, in the order given, that failed with
// a code of the class fault.Owed; nil when there are none. prevented says that there
// are some and that not one of them was tried (fault.Error.IsPrevented), silent that
// one of them is owed because the target was silent (fault.Error.IsSilence).
func owed(parts ...part) (fields []string, prevented, silent bool) {
	tried := false
	for _, p := range parts {
		if p.fault == nil || p.fault.Info().Class != fault.Owed {
			continue
		}
		fields = append(fields, p.field)
		tried = tried || !p.fault.IsPrevented()
		silent = silent || p.fault.IsSilence()
	}
	return fields, len(fields) > 0 && !tried, silent
}

// MarshalJSON is the result, or an object with the single key error, whose
// value has a code and a message.
func (c Child[T]) MarshalJSON() ([]byte, error) {
	if c.Fault == nil {
		return json.Marshal(c.Result)
	}
	type failure struct {
		Code    fault.Code `json:"code"`
		Message string     `json:"message"`
	}
	return json.Marshal(map[string]failure{"error": {c.Fault.Info().Code, c.Fault.Public()}})
}

// run looks one child up within budget. A panic or a foreign error is an
// internal_error of this child alone.
func run[T any](ctx context.Context, look func(context.Context) (T, error)) (c Child[T]) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			c = Child[T]{Fault: fault.New(fault.InternalError, fmt.Errorf("lookup panicked: %v", p))}
		}
	}()
	result, err := look(ctx)
	if err != nil {
		return Child[T]{Fault: fault.From(err)}
	}
	return Child[T]{Result: result}
}

// margin is what a bundle keeps of its time to put its answer together.
const margin = time.Second / 2

// children is the context that a bundle's lookups run under: it ends before
// the bundle's own, so that the last child to be slow is a time-out in its
// field and not one of the bundle.
func children(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// over is the error of a bundle whose time is up, also where the context does
// not know it yet: a process that was frozen meanwhile has children that ran out
// of time through no fault of the host, and they may end before the context's
// own timer fires.
func over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= 0 {
		return context.DeadlineExceeded
	}
	return nil
}
