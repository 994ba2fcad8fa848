package dns

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// crew is a context and the goroutines that work under it. A panic in one of them ends
// the context and comes out of end, in the goroutine that waits for them.
type crew struct {
	context.Context

	cancel  context.CancelFunc
	running sync.WaitGroup
	bug     atomic.Pointer[bug] // the first panic
}

func newCrew(parent context.Context) *crew {
	ctx, cancel := context.WithCancel(parent)
	return &crew{Context: ctx, cancel: cancel}
}

func (c *crew) start(work func()) {
	c.running.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.bug.CompareAndSwap(nil, newBug(p))
				c.cancel()
			}
		}()
		work()
	})
}

// end ends the context and returns when nothing runs under it any more. It
// panics if one of the goroutines did.
func (c *crew) end() {
	c.cancel()
	c.running.Wait()
	if b := c.bug.Load(); b != nil {
		panic(b)
	}
}

// bug is a panic that was recovered, and where it was.
type bug struct {
	value any
	stack []byte
}

// newBug is for deferred functions, where the stack is still that of the panic.
// A bug that was thrown on stays itself.
func newBug(p any) *bug {
	if b, ok := p.(*bug); ok {
		return b
	}
	return &bug{value: p, stack: debug.Stack()}
}

func (b *bug) Error() string { return fmt.Sprintf("DNS lookup panicked: %v", b.value) }

// Stack is logged beside the error, whole.
func (b *bug) Stack() string { return string(b.stack) }

// catch is deferred by the methods that others call: it turns a panic into
// internal_error.
func catch(err *error) {
	if p := recover(); p != nil {
		*err = fault.New(fault.InternalError, newBug(p))
	}
}
