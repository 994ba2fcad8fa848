// Package bundle provides the bundles HostIntel and Uptime. A bundle combines three other
// lookups, its children, for one payment and runs them at the same time. If a child fails, the
// child's field in the answer holds an error object, and the bundle is still answered (spec
// §2.8).
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
	// bundle. So a slow child times out, and the bundle is still answered with the results of
	// the other children.
	childTimeout = 8 * time.Second

	// deadlineMargin is the time between the deadline of the children and the deadline of their
	// bundle. It is kept for building the bundle's answer.
	deadlineMargin = time.Second / 2
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

// MarshalJSON returns the result as JSON. If there is no result, it returns a Failure.
func (c Child[T]) MarshalJSON() ([]byte, error) {
	if c.Fault == nil {
		return json.Marshal(c.Result)
	}
	var f Failure
	f.Error.Code = c.Fault.Info().Code
	f.Error.Message = c.Fault.Public()
	return json.Marshal(f)
}

// Owed lists the owed fields of a bundle, which the buyer has paid for and not received. A
// field is owed if its child failed with a code of the class fault.Owed.
type Owed struct {
	// Parts are the names of the owed fields, in the order of the bundle.
	Parts []string
	// Silent reports whether the lookup of at least one owed field failed because the target
	// was silent (fault.Error.IsSilence).
	Silent bool

	anyTried bool // whether the lookup of at least one field in Parts was tried
}

// Prevented reports whether there are owed fields and none of their lookups was tried
// (fault.Error.IsPrevented).
func (o Owed) Prevented() bool { return len(o.Parts) > 0 && !o.anyTried }

// add adds a field to the owed fields if its failure has the class fault.Owed. failure is nil
// if the field has a result.
func (o *Owed) add(field string, failure *fault.Error) {
	if failure == nil || failure.Info().Class != fault.Owed {
		return
	}
	o.Parts = append(o.Parts, field)
	if failure.IsSilence() {
		o.Silent = true
	}
	if !failure.IsPrevented() {
		o.anyTried = true
	}
}

// runLookups runs the lookups of a bundle at the same time, and returns when all of them have
// ended. The lookups share their DNS questions, so each question is sent only once. ctx must
// have a deadline. The lookups get a context whose deadline is earlier by deadlineMargin. So a
// slow lookup times out alone, and the bundle does not time out with it.
//
// If ctx ends before all lookups have ended, runLookups returns an error with the code in
// timeout, whatever the lookups found. It returns the same error if the deadline has passed by
// the clock, because in a process that was frozen the lookups may time out before the timer of
// ctx fires.
func runLookups(ctx context.Context, timeout fault.Code, lookups ...func(context.Context)) error {
	deadline, _ := ctx.Deadline()
	lookupCtx, cancel := context.WithDeadline(ctx, deadline.Add(-deadlineMargin))
	defer cancel()
	shared, end := dns.Share(lookupCtx)
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
