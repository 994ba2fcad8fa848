// Package bundle provides the lookups HostIntel and Uptime. Each combines three other lookups,
// its children, for one payment and runs them at the same time. If a child fails, its field
// holds an error object, and the bundle is still answered (spec §2.8).
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
	// childTimeout is the time limit of a child. It is shorter than the time limit of a
	// bundle, so a slow child times out and the other children are still answered.
	childTimeout = 8 * time.Second

	// margin is the time before a bundle's deadline that is kept for building its answer.
	margin = time.Second / 2
)

// Child is a field of a bundle: the result of a lookup, or the reason why there is no result.
type Child[T any] struct {
	Result T
	Fault  *fault.Error // nil if Result is valid
}

// Failure is the JSON of a field without a result (spec §2.8).
type Failure struct {
	Error struct {
		Code    fault.Code `json:"code" doc:"Error code"`
		Message string     `json:"message" doc:"Public message"`
	} `json:"error" doc:"Why this lookup failed" schema:"ChildError"`
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

// Owed lists the fields that the buyer of a bundle has paid for and not received. Their
// children failed with codes of the class fault.Owed.
type Owed struct {
	// Parts are the names of the owed fields, in the order of the bundle.
	Parts []string
	// Silent reports whether the lookup of an owed field failed because the target was silent
	// (fault.Error.IsSilence).
	Silent bool

	tried bool // the lookup of at least one field in Parts was tried
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

// sideBySide runs the lookups of a bundle at the same time and returns when all have ended.
// The lookups share their DNS questions, so each question is sent only once. ctx must have a
// deadline. The lookups get a context that ends earlier by margin. So a slow child times out
// in its own field, and the bundle as a whole does not time out.
//
// If the bundle itself runs out of time, sideBySide returns an error with the code timeout,
// whatever the children found. It checks the clock as well as ctx: after a process was frozen,
// the children may time out, through no fault of the host, before the timer of ctx fires.
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

// lookUpChild runs the lookup of one child within childTimeout. A panic, or an error that is
// not a fault, becomes an internal_error in the field of this child.
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
