package limit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// Leases keeps the leases of each operation. A call that returns an error may or
// may not have taken effect. Memory and pkg/x402/ledger/dynamo implement it, and both pass
// limittest.
type Leases interface {
	// Acquire adds a lease to an operation that has fewer than limit of them,
	// expired ones included. Otherwise it adds nothing, and ok is false. held are
	// all leases in no order: with the new one right after it was added, or as they
	// were when it was refused or a moment later. A lease that is held already
	// counts as added, so that an Acquire may be sent twice.
	Acquire(ctx context.Context, operation string, l Lease, limit int) (held []Lease, ok bool, err error)

	// Remove removes leases, at least the first of them. It keeps a lease whose
	// Until is another, and ignores one that does not exist.
	Remove(ctx context.Context, operation string, leases ...Lease) error
}

// SlotsConfig configures a Slots.
type SlotsConfig struct {
	Operation string // its name in the store
	// Cap is how many may run at once; 0 is no cap, and then nothing else is
	// needed.
	Cap    int
	Leases Leases
	Now    func() time.Time
	// NewID returns an identifier that no other live lease of the same client has.
	// It is written with each call of the operation, up to Cap times, so it should
	// be short: 30 random bits in IDLength characters are enough.
	NewID func() string
}

// Lengths of the two parts of a lease id. With them and an end in whole seconds
// the item of an operation with 50 leases stays below the 1,024 bytes that one
// DynamoDB write unit pays for.
const (
	// IDLength is the most that NewID should return, in bytes.
	IDLength = 5
	// tagLength is the part that names the client: 36 bits of a hash. A client that
	// finds an address whose tag is another's can do no more than share that
	// client's slots.
	tagLength = 6
)

// clientShare is which part of the slots one client may hold: a quarter, and at
// least one slot. Two clients with a half each could keep everybody else out for as
// long as their calls take.
const clientShare = 4

// An acquisition that was refused because other clients hold more than their share
// is tried again after these pauses: each of those is about to release what is
// above it.
const (
	overShareTries = 4
	overSharePause = 10 * time.Millisecond // doubled with each try
)

// perItem is the most leases that are kept under one name in the store. Every
// acquisition and every release writes the item of that name, and DynamoDB takes
// 1,000 write units a second for one item; with 50 leases a write is one unit.
const perItem = 50

// Slots caps how many calls of an operation run at once, over all environments,
// and how many of them are one client's (see clientShare).
//
// A cap above 50 is divided over several items of the store, so that an operation
// that is sold a thousand times a second does not wait for one item. A call asks
// for a slot in one item, and if that has none, in a second one. So it can be
// refused a little before the cap is reached, and a client a little before its
// share.
type Slots struct{ shards []*shard }

// shard is the slots of one item.
type shard struct {
	operation      string // the item's name
	cap, clientCap int
	// exceeded tells a client that it holds its share of the operation's slots.
	exceeded string
	leases   Leases
	now      func() time.Time
	newID    func() string
}

// NewSlots returns a Slots. It panics when a part is missing that a cap needs.
func NewSlots(c SlotsConfig) *Slots {
	if c.Cap < 0 {
		panic("limit.NewSlots: a negative cap")
	}
	if c.Cap > 0 && (c.Operation == "" || c.Leases == nil || c.Now == nil || c.NewID == nil) {
		panic("limit.NewSlots: a cap needs an operation, leases, a clock and identifiers")
	}
	s := &Slots{}
	items := (c.Cap + perItem - 1) / perItem
	exceeded := fmt.Sprintf("Calls of this client hold its share of this tool's concurrency cap already, %d of %d. "+
		"Retry with the same PAYMENT-SIGNATURE when one of them has ended.", max(c.Cap/clientShare, 1), c.Cap)
	for i := range items {
		name, most := c.Operation, (c.Cap+i)/items // they add up to the cap
		if i > 0 {
			name += "#" + strconv.Itoa(i)
		}
		s.shards = append(s.shards, &shard{
			operation: name, cap: most, clientCap: max(most/clientShare, 1), exceeded: exceeded,
			leases: c.Leases, now: c.Now, newID: c.NewID,
		})
	}
	return s
}

// Slot is an acquired lease. The zero Slot holds none.
type Slot struct {
	shard *shard
	lease Lease

	mu       sync.Mutex
	released bool
}

// Acquire takes a slot for a client, a SiteKey. The slot is free again at until or
// less than a second later, even if this process dies; the work must have ended by
// then. The error is a *fault.Error: overloaded when every slot is taken or, with a
// message of its own, when the client holds its share already, ledger_unavailable when the store fails. After a
// failure the store may keep a lease that nobody holds until it expires. It is not
// removed, because a second call to a store that just failed would keep the client
// waiting, and could take effect before the first.
//
// Acquire costs one write in an item that has room. Only when that is refused, it
// removes leases that have expired and tries once more. That a client exceeds its
// share shows after its lease was added, so that a client below its share costs no
// read. Such a lease is removed at once, and clients that were refused because of it
// try again.
func (s *Slots) Acquire(ctx context.Context, client string, until time.Time) (*Slot, error) {
	if len(s.shards) == 0 {
		return &Slot{}, nil
	}
	tag := tagOf(client)
	mine := Lease{ID: tag + s.shards[0].newID(), Until: wholeSecond(until)}
	first := indexOf(mine.ID, len(s.shards))
	slot, err := s.shards[first].acquire(ctx, mine, tag)
	var refused *fault.Error
	if len(s.shards) > 1 && errors.As(err, &refused) && refused.Code == fault.Overloaded {
		return s.shards[(first+1)%len(s.shards)].acquire(ctx, mine, tag)
	}
	return slot, err
}

// indexOf chooses one of n items for a lease.
func indexOf(id string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return int(h.Sum32() % uint32(n))
}

// acquire takes a slot of this item.
func (s *shard) acquire(ctx context.Context, mine Lease, tag string) (*Slot, error) {
	held, ok, err := s.acquireRetrying(ctx, mine, tag)
	if err != nil {
		return nil, fault.New(fault.LedgerUnavailable, fmt.Errorf("acquire a slot of %s: %w", s.operation, err))
	}
	if share := s.shareOf(held, tag); share > s.clientCap || !ok && share == s.clientCap {
		return nil, s.refuseClient(ctx, mine, ok)
	}
	if !ok {
		return nil, fault.New(fault.Overloaded, fmt.Errorf("%d slots of %s are taken, the cap is %d", len(held), s.operation, s.cap))
	}
	return &Slot{shard: s, lease: mine}, nil
}

// acquireRetrying adds a lease. It tries again while the cap is reached only by leases
// that have expired, or that are above their client's share and about to be released.
func (s *shard) acquireRetrying(ctx context.Context, mine Lease, tag string) (held []Lease, ok bool, err error) {
	held, ok, err = s.leases.Acquire(ctx, s.operation, mine, s.cap)
	pause := overSharePause
	for range overShareTries {
		alive := s.alive(held)
		switch {
		case err != nil || ok || s.shareOf(held, tag) >= s.clientCap || alive-s.overShare(held) >= s.cap:
			return held, ok, err
		case alive >= s.cap:
			if !wait(ctx, pause) {
				return held, false, nil
			}
			pause *= 2
		}
		held, ok, err = s.evictExpiredAndRetry(ctx, mine, held)
	}
	return held, ok, err
}

// refuseClient refuses a client that holds its share, and removes its lease if that
// was added. A lease that could not be removed expires.
func (s *shard) refuseClient(ctx context.Context, mine Lease, added bool) error {
	cause := fmt.Errorf("the client holds its %d slots of %s", s.clientCap, s.operation)
	if added {
		if err := s.leases.Remove(ctx, s.operation, mine); err != nil {
			cause = errors.Join(cause, fmt.Errorf("give the slot back: %w", err))
		}
	}
	return fault.Newf(fault.Overloaded, cause, "%s", s.exceeded)
}

// evictExpiredAndRetry removes those of held that have expired and tries once more.
func (s *shard) evictExpiredAndRetry(ctx context.Context, mine Lease, held []Lease) ([]Lease, bool, error) {
	now := s.now()
	var dead []Lease
	for _, l := range held {
		if !l.Until.After(now) {
			dead = append(dead, l)
		}
	}
	if len(dead) > 0 {
		// The oldest first, should the store take only some of them.
		slices.SortFunc(dead, func(a, b Lease) int {
			return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.ID, b.ID))
		})
		if err := s.leases.Remove(ctx, s.operation, dead...); err != nil {
			return nil, false, err
		}
	}
	return s.leases.Acquire(ctx, s.operation, mine, s.cap)
}

// alive is how many leases have not expired.
func (s *shard) alive(held []Lease) (n int) {
	now := s.now()
	for _, l := range held {
		if l.Until.After(now) {
			n++
		}
	}
	return n
}

// shareOf is how many leases that have not expired are a client's.
func (s *shard) shareOf(held []Lease, tag string) (n int) {
	now := s.now()
	for _, l := range held {
		if strings.HasPrefix(l.ID, tag) && l.Until.After(now) {
			n++
		}
	}
	return n
}

// overShare is how many leases are above the share of their client.
func (s *shard) overShare(held []Lease) (n int) {
	now := s.now()
	shares := map[string]int{}
	for _, l := range held {
		if !l.Until.After(now) {
			continue
		}
		tag := l.ID[:min(len(l.ID), tagLength)]
		if shares[tag]++; shares[tag] > s.clientCap {
			n++
		}
	}
	return n
}

// tagOf is what the ids of a client's leases begin with.
func tagOf(client string) string {
	sum := sha256.Sum256([]byte(client))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:tagLength]
}

// wholeSecond rounds an end up.
func wholeSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); whole.Before(t) {
		return whole.Add(time.Second)
	}
	return t
}

// wait returns false when the context ended first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Release releases the slot. It may be called again: after a success it does
// nothing, after an error it tries again. The error is for the log; a slot that is
// not released expires.
func (s *Slot) Release(ctx context.Context) error {
	if s == nil || s.shard == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return nil
	}
	if err := s.shard.leases.Remove(ctx, s.shard.operation, s.lease); err != nil {
		return fmt.Errorf("release a slot of %s: %w", s.shard.operation, err)
	}
	s.released = true
	return nil
}
