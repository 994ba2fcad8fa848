package storefront

import (
	"context"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// localSlots adds a limit on this process to slots that several processes share. A shared slot
// becomes free when its time is over. The local slot is kept until the handler returns, even
// if that is later.
type localSlots struct {
	shared  x402.Slots
	running chan struct{} // see Shop.Running
}

// Acquire implements x402.Slots.
func (s *localSlots) Acquire(ctx context.Context, client string, until time.Time) (x402.Slot, error) {
	if s.running == nil {
		return s.shared.Acquire(ctx, client, until)
	}
	select {
	case s.running <- struct{}{}:
	default:
		cause := fmt.Errorf("%d handlers run in this process, some of them beyond their time", cap(s.running))
		return nil, fault.New(fault.Overloaded, cause)
	}
	shared, err := s.shared.Acquire(ctx, client, until)
	if err != nil {
		<-s.running
		return nil, err
	}
	return &localSlot{shared, s.running}, nil
}

// localSlot is a slot of this process together with a shared slot.
type localSlot struct {
	shared  x402.Slot
	running chan struct{}
}

// Release implements x402.Slot.
func (s *localSlot) Release(ctx context.Context) error {
	<-s.running
	return s.shared.Release(ctx)
}
