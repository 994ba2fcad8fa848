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

// MaxCap is the highest cap: all leases of an operation are in one item of the store, and
// DynamoDB takes 1,000 write units a second for one.
const MaxCap = 100

const (
	// tagLength and randomLength are the two parts of a lease id, in characters of 6 bits:
	// a hash of the client, and a random part that no other live lease of it has. So the item of
	// an operation with 50 leases stays below the 1,024 bytes that one DynamoDB write unit
	// pays for. A client whose tag is another's shares that client's slots.
	tagLength    = 6
	randomLength = 5

	// clientShare is which part of the slots one client may hold: a quarter, and at least
	// one slot.
	clientShare = 4

	// An acquisition that was refused because other clients hold more than their share,
	// which they are about to release, is tried again after pauses of growing length.
	firstWait = 10 * time.Millisecond
	lastWait  = 80 * time.Millisecond
)

// Slots caps how many calls of an operation run at once, over all environments,
// and how many of them are one client's (see clientShare).
type Slots struct {
	operation string
	most      int
	clientCap int // of one client
	store     Store
	now       func() time.Time
}

// NewSlots returns the Slots of an operation. It panics unless most is from 1 to MaxCap.
func NewSlots(operation string, most int, s Store, now func() time.Time) *Slots {
	if most < 1 || most > MaxCap {
		panic("limit.NewSlots: the cap is out of range")
	}
	return &Slots{
		operation: operation,
		most:      most,
		clientCap: max(most/clientShare, 1),
		store:     s,
		now:       now,
	}
}

// Slot is an x402.Slot, whose package is not imported here.
type Slot = interface {
	Release(ctx context.Context) error
}

// slot is an acquired lease.
type slot struct {
	slots *Slots
	lease Lease
}

// Acquire implements x402.Slots: it takes a slot for a client, a SiteKey. The slot is free
// again at until or less than a second later, even if this process dies; the work must have
// ended by then. The error is a *fault.Error: overloaded when every slot is taken or, with a
// separate message, when the client holds its share already, ledger_unavailable when the
// store fails, which may keep a lease that nobody holds until it expires.
//
// Acquire costs one write while there is room. When it is refused, it removes leases that
// have expired and tries again. Only after a lease was added does it show that its client
// exceeds its share: it is removed at once, and clients that it kept out try again.
func (s *Slots) Acquire(ctx context.Context, client string, until time.Time) (Slot, error) {
	tag := tagOf(client)
	wholeSecond := until.Add(time.Second - 1).Truncate(time.Second)
	mine := &slot{s, Lease{ID: newID(tag), Until: wholeSecond}}
	for pause := firstWait; ; pause *= 2 {
		held, added, err := s.store.Acquire(ctx, s.operation, mine.lease, s.most)
		if err != nil {
			return nil, s.failed(err)
		}
		u := s.usage(held, tag)
		hasShare := u.ofClient == s.clientCap && !added
		switch {
		case u.ofClient > s.clientCap || hasShare:
			cause := fmt.Errorf("the client holds its %d slots of %s", s.clientCap, s.operation)
			if added { // a lease that cannot be removed expires
				cause = errors.Join(cause, mine.Release(ctx))
			}
			return nil, s.shareHeld(cause)
		case added:
			return mine, nil
		case !s.mayRetry(ctx, u, pause):
			cause := fmt.Errorf("%d slots of %s are taken, the cap is %d", len(held), s.operation, s.most)
			return nil, fault.New(fault.Overloaded, cause)
		}
		if len(u.expired) > 0 {
			if err := s.store.Remove(ctx, s.operation, u.expired...); err != nil {
				return nil, s.failed(err)
			}
		}
	}
}

// mayRetry says that an acquisition that was refused may find room: at once where leases have
// expired, and otherwise after a pause, when what is above a share was given back.
func (s *Slots) mayRetry(ctx context.Context, u usage, pause time.Duration) bool {
	withinShares := u.alive - u.overShare
	if withinShares >= s.most || pause > lastWait {
		return false
	}
	return u.alive < s.most || wait(ctx, pause)
}

// failed is the fault of a store that failed.
func (s *Slots) failed(err error) *fault.Error {
	return fault.New(fault.LedgerUnavailable, fmt.Errorf("acquire a slot of %s: %w", s.operation, err))
}

// shareHeld is the fault of a client that has its share of the slots.
func (s *Slots) shareHeld(cause error) *fault.Error {
	return fault.Newf(fault.Overloaded, cause,
		"Calls of this client already hold its share of this tool's concurrency cap, %d of %d. "+
			"Retry with the same PAYMENT-SIGNATURE when one of them has ended.", s.clientCap, s.most)
}

// tagOf is the tag of a client, with which the ids of its leases begin.
func tagOf(client string) string {
	hash := sha256.Sum256([]byte(client))
	return base64.RawURLEncoding.EncodeToString(hash[:])[:tagLength]
}

// newID is the id of a new lease.
func newID(tag string) string {
	var unique [4]byte
	rand.Read(unique[:]) // never fails
	return tag + base64.RawURLEncoding.EncodeToString(unique[:])[:randomLength]
}

// usage counts the leases of an operation.
type usage struct {
	expired   []Lease
	alive     int // those that have not expired
	ofClient  int // those of them that are one client's
	overShare int // those of them that are above their client's share
}

func (s *Slots) usage(held []Lease, tag string) (u usage) {
	now := s.now()
	shares := map[string]int{}
	for _, l := range held {
		if !l.Until.After(now) {
			u.expired = append(u.expired, l)
			continue
		}
		owner := l.ID[:min(len(l.ID), tagLength)]
		shares[owner]++
		u.alive++
		if shares[owner] > s.clientCap {
			u.overShare++
		}
	}
	u.ofClient = shares[tag]
	return u
}

// wait returns false when the context ended first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Release releases the slot. The error is for the log; a slot that is not released
// expires.
func (s *slot) Release(ctx context.Context) error {
	if err := s.slots.store.Remove(ctx, s.slots.operation, s.lease); err != nil {
		return fmt.Errorf("release a slot of %s: %w", s.slots.operation, err)
	}
	return nil
}
