// Package bundle has the lookups that are several single lookups for one payment:
// HostIntel and Uptime. Each child has its budget, and its failure is a
// value and not an error (spec §2.8).
package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/lookup/dns"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

const (
	// budget is what a child may take. It is shorter than a bundle's own deadline,
	// so that a slow child is its own time-out and leaves the others standing.
	budget = 8 * time.Second

	// margin is what a bundle keeps of its time to put its answer together.
	margin = time.Second / 2
)

// Child is a field of a bundle: a result, or why there is none.
type Child[T any] struct {
	Result T
	Fault  *fault.Error // nil when Result counts
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

// owed names the fields of a bundle, in the order given, whose child failed with
// a code of the class fault.Owed; nil when there are none. prevented says that there
// are some and that not one of them was tried (fault.Error.IsPrevented), silent that
// one of them is owed because the target was silent (fault.Error.IsSilence).
func owed(names [3]string, faults [3]*fault.Error) (fields []string, prevented, silent bool) {
	tried := false
	for i, f := range faults {
		if f == nil || f.Info().Class != fault.Owed {
			continue
		}
		fields = append(fields, names[i])
		tried = tried || !f.IsPrevented()
		silent = silent || f.IsSilence()
	}
	return fields, len(fields) > 0 && !tried, silent
}

// together runs the lookups of a bundle side by side. They ask each DNS question
// once, and their context ends before the bundle's own, so that the last child to
// be slow is a time-out in its field and not one of the bundle. The bundle's is the
// error when its time is up, also where the context does not know it yet: a process
// that was frozen meanwhile has children that ran out of time through no fault of the
// host, and they may end before the context's own timer fires.
func together(ctx context.Context, timeout fault.Code, lookups ...func(context.Context)) error {
	deadline, limited := ctx.Deadline()
	whole, cancel := ctx, func() {}
	if limited {
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-margin))
	}
	defer cancel()
	ctx, end := dns.Share(ctx)
	defer end()
	var all sync.WaitGroup
	for _, look := range lookups {
		all.Go(func() { look(ctx) })
	}
	all.Wait()
	switch {
	case whole.Err() != nil:
		return lookup.Fault(timeout, whole.Err())
	case limited && time.Until(deadline) <= 0:
		return lookup.Fault(timeout, context.DeadlineExceeded)
	}
	return nil
}

// run looks one child up within budget. A panic or a foreign error is an
// internal_error of this child alone.
func run[Q, T any](ctx context.Context, look func(context.Context, Q) (T, error), q Q) (c Child[T]) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			c = Child[T]{Fault: fault.New(fault.InternalError, fmt.Errorf("lookup panicked: %v", p))}
		}
	}()
	result, err := look(ctx, q)
	if err != nil {
		return Child[T]{Fault: fault.From(err)}
	}
	return Child[T]{Result: result}
}
