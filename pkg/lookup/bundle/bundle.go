// Package bundle has the lookups HostIntel and Uptime. Each combines three other lookups for
// one payment and runs them at the same time. If one of the three fails, its field holds an
// error object, and the bundle is still answered (spec §2.8).
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
	// childTimeout is how long a child may take. It is shorter than the deadline of a bundle.
	// So a slow child times out, and the others still answer.
	childTimeout = 8 * time.Second

	// margin is the time before a bundle's deadline that is kept for building its answer.
	margin = time.Second / 2
)

// Child is a field of a bundle: a result, or the reason why there is none.
type Child[T any] struct {
	Result T
	Fault  *fault.Error // nil if Result is valid
}

// Failure is the JSON of a field without a result (spec §2.8).
type Failure struct {
	Error struct {
		Code    fault.Code `json:"code" doc:"Error code"`
		Message string     `json:"message" doc:"Public message"`
	} `json:"error" doc:"Why this child failed" schema:"ChildError"`
}

// MarshalJSON returns the result as JSON, or a Failure if there is none.
func (c Child[T]) MarshalJSON() ([]byte, error) {
	if c.Fault == nil {
		return json.Marshal(c.Result)
	}
	var f Failure
	f.Error.Code = c.Fault.Info().Code
	f.Error.Message = c.Fault.Public()
	return json.Marshal(f)
}

// Owed lists the fields of a bundle that its buyer has paid for and not received: the children
// that failed with a code of the class fault.Owed.
type Owed struct {
	// Parts are the names of these fields, in the order of the bundle.
	Parts []string
	// Silent tells whether a child failed because the target was silent
	// (fault.Error.IsSilence).
	Silent bool

	tried bool // at least one of the children in Parts was tried
}

// Prevented reports whether fields are owed and none of their lookups was tried
// (fault.Error.IsPrevented).
func (o Owed) Prevented() bool { return len(o.Parts) > 0 && !o.tried }

// add adds a field if its failure has the class fault.Owed.
func (o *Owed) add(field string, failure *fault.Error) {
	if failure == nil || failure.Info().Class != fault.Owed {
		return
	}
	o.Parts = append(o.Parts, field)
	if failure.IsSilence() {
		o.Silent = true
	}
	if !failure.IsPrevented() {
		o.tried = true
	}
}

// sideBySide runs the lookups of a bundle at the same time, and returns when all have ended.
// They share their DNS questions, so each question is sent only once. ctx must have a
// deadline. The context of the lookups ends earlier by margin, so the slowest child becomes a
// time-out in its field and does not make the whole bundle time out.
//
// If the time of the bundle itself is over, the error is timeout, whatever the children found.
// The clock is checked in addition to the context. In a process that was frozen, children run
// out of time through no fault of the host, and they may end before the timer of ctx fires.
func sideBySide(ctx context.Context, timeout fault.Code, lookups ...func(context.Context)) error {
	deadline, _ := ctx.Deadline()
	early, cancel := context.WithDeadline(ctx, deadline.Add(-margin))
	defer cancel()
	shared, end := dns.Share(early)
	defer end()

	var group sync.WaitGroup
	for _, lookUp := range lookups {
		group.Go(func() { lookUp(shared) })
	}
	group.Wait()

	if err := ctx.Err(); err != nil {
		return lookup.Fault(timeout, err)
	}
	if time.Until(deadline) <= 0 {
		return lookup.Fault(timeout, context.DeadlineExceeded)
	}
	return nil
}

// lookUpChild runs the lookup of one child with a time limit of childTimeout. A panic, or an
// error that is not a fault, becomes an internal_error of this child alone.
func lookUpChild[Q, T any](ctx context.Context, lookUp func(context.Context, Q) (T, error), query Q) (child Child[T]) {
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			cause := fmt.Errorf("lookup panicked: %v", p)
			child = Child[T]{Fault: fault.New(fault.InternalError, cause)}
		}
	}()
	result, err := lookUp(ctx, query)
	if err != nil {
		return Child[T]{Fault: fault.From(err)}
	}
	return Child[T]{Result: result}
}
