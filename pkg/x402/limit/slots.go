package limit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// Lease is the right to run one call of an operation.
type Lease struct {
	// ID is unique and not empty. It begins with its client's tag.
	ID string
	// Until is when the lease expires, in whole seconds.
	Until time.Time
}

// MaxCap is the highest cap of an operation. All leases of an operation are in one item of the
// store, and DynamoDB allows 1,000 write units a second for one item.
const MaxCap = 100

const (
	// tagLength and randomLength are the lengths of the two parts of a lease id, in characters
	// of 6 bits. The tag is a hash of the client. The random part differs between the live
	// leases of a client. Both are so short that the item of an operation with 50 leases stays
	// below 1,024 bytes, the size of one DynamoDB write unit. Clients that happen to have the
	// same tag share one client's slots.
	tagLength    = 6
	randomLength = 5

	// One client may hold a quarter of the slots (their number divided by clientDivisor), but
	// always at least one slot.
	clientDivisor = 4

	// An acquisition may be refused because clients hold more than their share. These clients
	// are about to release the slots above their share, so the acquisition is tried again,
	// after pauses that grow from firstWait to lastWait.
	firstWait = 10 * time.Millisecond
	lastWait  = 80 * time.Millisecond
)

// Slots limits how many calls of an operation run at once in all environments, and how many of
// them belong to one client (see clientDivisor).
type Slots struct {
	operation string
	totalCap  int
	clientCap int // how many slots one client may hold
	store     Store
	now       func() time.Time
}

// NewSlots returns the Slots of an operation whose cap is totalCap. It panics unless totalCap
// is from 1 to MaxCap.
func NewSlots(operation string, totalCap int, s Store, now func() time.Time) *Slots {
	if totalCap < 1 || totalCap > MaxCap {
		panic("limit.NewSlots: the cap is out of range")
	}
	return &Slots{
		operation: operation,
		totalCap:  totalCap,
		clientCap: max(totalCap/clientDivisor, 1),
		store:     s,
		now:       now,
	}
}

// Slot is the same type as x402.Slot, declared here because this package does not import
// package x402.
type Slot = interface {
	Release(ctx context.Context) error
}

// slot is an acquired lease.
type slot struct {
	slots *Slots
	lease Lease
}

// Acquire implements x402.Slots. It takes a slot for a client; client is a SiteKey. The work
// must end by the given time. The slot is free again at that time or less than a second later,
// even if this process dies. The error is a *fault.Error. Its code is overloaded if every slot
// is taken or, with another message, if the client already holds its share. Its code is
// ledger_unavailable if the store fails; the store may then keep an unused lease until that
// lease expires.
//
// Acquire costs one write while there is room. If the store refuses the lease, Acquire removes
// expired leases and tries again. It can check a client's share only after the lease was
// added. If the client then exceeds its share, Acquire removes the lease at once. Other
// clients that were refused meanwhile try again.
func (s *Slots) Acquire(ctx context.Context, client string, until time.Time) (Slot, error) {
	tag := tagOf(client)
	wholeSecond := until.Add(time.Second - 1).Truncate(time.Second)
	mine := &slot{s, Lease{ID: newID(tag), Until: wholeSecond}}
	for pause := firstWait; ; pause *= 2 {
		held, added, err := s.store.Acquire(ctx, s.operation, mine.lease, s.totalCap)
		if err != nil {
			return nil, s.storeFault(err)
		}
		u := s.usage(held, tag)
		hasShare := u.clientLeases == s.clientCap && !added
		switch {
		case u.clientLeases > s.clientCap || hasShare:
			cause := fmt.Errorf("the client holds its %d slots of %s", s.clientCap, s.operation)
			if added { // if Release fails, the lease expires
				cause = errors.Join(cause, mine.Release(ctx))
			}
			return nil, s.shareFault(cause)
		case added:
			return mine, nil
		case !s.mayRetry(ctx, u, pause):
			cause := fmt.Errorf("%d slots of %s are taken, the cap is %d", len(held), s.operation, s.totalCap)
			return nil, fault.New(fault.Overloaded, cause)
		}
		if len(u.expiredLeases) > 0 {
			if err := s.store.Remove(ctx, s.operation, u.expiredLeases...); err != nil {
				return nil, s.storeFault(err)
			}
		}
	}
}

// mayRetry reports whether a refused acquisition may find room if it is tried again. If leases
// have expired, it may find room at once. If clients hold slots above their share, it may find
// room after a pause, because they are about to release those slots.
func (s *Slots) mayRetry(ctx context.Context, u usage, pause time.Duration) bool {
	withinShares := u.aliveLeases - u.leasesOverShare
	if withinShares >= s.totalCap || pause > lastWait {
		return false
	}
	return u.aliveLeases < s.totalCap || wait(ctx, pause)
}

// storeFault returns the fault ledger_unavailable for an error of the store.
func (s *Slots) storeFault(err error) *fault.Error {
	return fault.New(fault.LedgerUnavailable, fmt.Errorf("acquire a slot of %s: %w", s.operation, err))
}

// shareFault returns the fault for a client that already holds its share of the slots.
func (s *Slots) shareFault(cause error) *fault.Error {
	return fault.Newf(fault.Overloaded, cause,
		"Calls of this client already hold its share of this tool's concurrency cap, %d of %d. "+
			"Retry with the same PAYMENT-SIGNATURE when one of them has ended.", s.clientCap, s.totalCap)
}

// tagOf returns the tag of a client. The ids of all its leases begin with it.
func tagOf(client string) string {
	hash := sha256.Sum256([]byte(client))
	return base64.RawURLEncoding.EncodeToString(hash[:])[:tagLength]
}

// newID returns the id of a new lease.
func newID(tag string) string {
	var unique [4]byte
	rand.Read(unique[:]) // never fails
	return tag + base64.RawURLEncoding.EncodeToString(unique[:])[:randomLength]
}

// usage counts the leases of an operation. A share is the number of live leases that one
// client may hold.
type usage struct {
	expiredLeases   []Lease
	aliveLeases     int // leases that have not expired
	clientLeases    int // live leases of the client that asks for a slot
	leasesOverShare int // over all clients, the live leases beyond the client's share
}

func (s *Slots) usage(held []Lease, tag string) (u usage) {
	now := s.now()
	shares := map[string]int{}
	for _, l := range held {
		if !l.Until.After(now) {
			u.expiredLeases = append(u.expiredLeases, l)
			continue
		}
		owner := l.ID[:min(len(l.ID), tagLength)]
		shares[owner]++
		u.aliveLeases++
		if shares[owner] > s.clientCap {
			u.leasesOverShare++
		}
	}
	u.clientLeases = shares[tag]
	return u
}

// wait waits for d, and returns false if the context ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Release releases the slot. The caller need only log the error, because a slot that could not
// be released expires.
func (s *slot) Release(ctx context.Context) error {
	if err := s.slots.store.Remove(ctx, s.slots.operation, s.lease); err != nil {
		return fmt.Errorf("release a slot of %s: %w", s.slots.operation, err)
	}
	return nil
}
