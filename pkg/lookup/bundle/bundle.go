// Package bundle has the lookups that combine three others and are paid for once: HostIntel
// and Uptime. The three run side by side. One that fails becomes an error object in its
// field, and the bundle answers all the same (spec §2.8).
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
	// childTimeout is how long a child may take. It is shorter than the deadline of a
	// bundle, so that one slow child times out and the others still answer.
	childTimeout = 8 * time.Second

	// margin is the time before a bundle's deadline that is kept for putting its answer
	// together.
	margin = time.Second / 2
)

// Child is a field of a bundle: a result, or why there is none.
type Child[T any] struct {
	Result T
	Fault  *fault.Error // nil when Result counts
}

// Failure is a field of a bundle in which there is no result (spec §2.8).
type Failure struct {
	Error struct {
		Code    fault.Code `json:"code" doc:"Error code"`
		Message string     `json:"message" doc:"Public message"`
	} `json:"error" doc:"Why this child failed" schema:"ChildError"`
}

// MarshalJSON returns the result as JSON, or a Failure.
func (c Child[T]) MarshalJSON() ([]byte, error) {
	if c.Fault == nil {
		return json.Marshal(c.Result)
	}
	var f Failure
	f.Error.Code = c.Fault.Info().Code
	f.Error.Message = c.Fault.Public()
	return json.Marshal(f)
}

// Owed lists the parts of a bundle that its buyer has paid for and not received: the
// children that failed with a code of the class fault.Owed.
type Owed struct {
	// Parts are the names of their fields, in the order of the bundle.
	Parts []string
	// Silent says that one of them is owed because the target was silent
	// (fault.Error.IsSilence).
	Silent bool

	tried bool // one of them at least
}

// Prevented reports whether parts are owed and not one of them was tried
// (fault.Error.IsPrevented).
func (o Owed) Prevented() bool { return len(o.Parts) > 0 && !o.tried }

// add adds a child, if its failure is one that is owed.
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
// They share what they ask the DNS, so that each question is put once. Their context ends a
// margin before that of the bundle, which has a deadline: the slowest child is then a time-out
// in its field and not one of the bundle.
//
// When the bundle's own time is up, the error is timeout, whatever the children found. The
// clock is checked beside the context. In a process that was frozen, children run out of time
// through no fault of the host, and they may end before the context's own timer fires.
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

// lookUpChild looks one child up within childTimeout. A panic and an error that is no fault
// become an internal_error of this child alone.
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
