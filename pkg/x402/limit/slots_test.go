package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
)

// slot is an acquired slot.
type slot = interface{ Release(context.Context) error }

// harness has a Slots, its store and its clock. Each slot is acquired for 30 s.
type harness struct {
	*testing.T
	*limit.Slots
	store *store
	clock *clock
}

func newHarness(t *testing.T, most int) *harness {
	b := &harness{T: t, store: &store{}, clock: clockAt(0)}
	return b.environment(most, b.store)
}

// environment returns a harness for another environment. It has the given cap and the given
// store, and the same clock.
func (b *harness) environment(most int, s limit.Store) *harness {
	other := *b
	other.Slots = limit.NewSlots("dns", most, s, b.clock.now)
	return &other
}

// newClient returns the name of a client that has no slot yet. With such clients, tests of the
// cap do not depend on a client's share.
func newClient() string { return fmt.Sprint("client ", rand.Uint64()) }

// acquire acquires a slot. If want is not empty, the slot must be refused with the code want.
func (b *harness) acquire(client string, want fault.Code) (slot, *fault.Error) {
	b.Helper()
	slot, err := b.Acquire(b.Context(), client, b.clock.now().Add(30*time.Second))
	f, _ := errors.AsType[*fault.Error](err)
	if (slot == nil) != (want != "") || (f == nil) != (want == "") || f != nil && f.Code != want {
		b.Fatalf("Acquire = %v, %v; want %q", slot, err, want)
	}
	if want == fault.Overloaded && f.Wait() <= 0 {
		b.Errorf("%v with Retry-After %s", f, f.Wait())
	}
	return slot, f
}

func (b *harness) mustAcquire() slot {
	b.Helper()
	slot, _ := b.acquire(newClient(), "")
	return slot
}

func (b *harness) checkRefused(want fault.Code) *fault.Error {
	b.Helper()
	_, f := b.acquire(newClient(), want)
	return f
}

func (b *harness) release(slots ...slot) {
	b.Helper()
	for _, slot := range slots {
		if err := slot.Release(b.Context()); err != nil {
			b.Errorf("Release: %v", err)
		}
	}
}

// checkCalls checks which calls the store has got since checkCalls was last called.
func (b *harness) checkCalls(what, want string) {
	b.Helper()
	var verbs []string
	for _, c := range b.store.Calls() {
		verbs = append(verbs, c.Verb)
	}
	checkEqual(b, what, strings.Join(verbs, " "), want)
}

// TestSlots makes random requests and releases. A client gets a slot while fewer slots than
// the cap are taken and the client holds less than its share. The share is a quarter of the
// cap, and at least one slot. A slot that is not released is free at the end of the second in
// which it expires, and not earlier, because leases end at whole seconds. If a client releases
// a slot that has expired, no other client loses a slot.
func TestSlots(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		high := 1 + random.IntN(16)
		b := newHarness(t, high)
		environments := map[int]*harness{high: b, (high + 1) / 2: b.environment((high+1)/2, b.store)}
		var held []heldSlot // including slots that have expired
		for range 100 {
			most := []int{high, (high + 1) / 2}[random.IntN(2)] // two caps, as during a deployment that changes the cap
			now, client := b.clock.now(), fmt.Sprint("client ", random.IntN(8))
			all, mine := countHeld(held, client, now)
			want := fault.Code("")
			if all >= most || mine >= max(most/4, 1) {
				want = fault.Overloaded
			}
			if slot, _ := environments[most].acquire(client, want); slot != nil {
				held = append(held, heldSlot{client, slot, now.Add(31*time.Second - 1).Truncate(time.Second)})
			}
			if i := random.IntN(2 * (len(held) + 1)); i < len(held) {
				b.release(held[i].slot)
				held = slices.Delete(held, i, i+1)
			}
			b.clock.advance([]time.Duration{0, time.Second, 10 * time.Second, 30*time.Second - time.Millisecond, time.Millisecond}[random.IntN(5)])
		}
	}
}

// heldSlot is a slot that a client holds.
type heldSlot struct {
	client string
	slot   slot
	until  time.Time
}

// countHeld counts the slots that have not expired, and how many of them a client holds.
func countHeld(held []heldSlot, client string, now time.Time) (all, mine int) {
	for _, h := range held {
		if !h.until.After(now) {
			continue
		}
		all++
		if h.client == client {
			mine++
		}
	}
	return all, mine
}

// TestSlotsCost checks how many calls of the store each use of slots costs.
func TestSlotsCost(t *testing.T) {
	b := newHarness(t, 4)
	first, _ := b.acquire("a", "")
	b.checkCalls("a client's share", "acquire")
	share := "Calls of this client already hold its share of this tool's concurrency cap, 1 of 4. Retry with the same PAYMENT-SIGNATURE when one of them has ended."
	_, f := b.acquire("a", fault.Overloaded)
	checkEqual(t, "one more", f.Public(), share)
	b.checkCalls("one more, given back", "acquire remove")
	b.mustAcquire()
	b.mustAcquire()
	b.mustAcquire()
	b.store.Calls()
	_, f = b.acquire("a", fault.Overloaded)
	checkEqual(t, "one more when all are taken", f.Public(), share)
	b.checkCalls("one more when all are taken", "acquire")
	f = b.checkRefused(fault.Overloaded)
	if info := f.Info(); info.Status != http.StatusServiceUnavailable || !info.Retry || f.Message != "" {
		t.Errorf("%+v", f)
	}
	b.checkCalls("a refusal with nothing dead", "acquire")
	b.release(first)
	b.checkCalls("a release", "remove")
	b.mustAcquire()
	b.checkCalls("the slot that came free", "acquire")
	b.clock.advance(30 * time.Second)
	b.mustAcquire()
	b.checkCalls("a slot in place of a dead one", "acquire remove acquire")
	b.clock.advance(29 * time.Second)
	b.mustAcquire()
	b.mustAcquire()
	b.clock.advance(time.Second)
	b.store.Calls()
	b.environment(2, b.store).checkRefused(fault.Overloaded)
	b.checkCalls("a refusal by a lower cap with one dead, which would free no slot", "acquire")
}

// TestSlotsStoreFails checks every failure of the store. If the reply to a new lease is lost,
// the lease expires by itself. A failed release may be repeated. A client gets no slot above
// its share, even if the lease for it cannot be removed; that lease takes up a slot until it
// expires. While expired leases cannot be removed, no new slot is given in their place.
func TestSlotsStoreFails(t *testing.T) {
	b := newHarness(t, 4)
	slot, _ := b.acquire("a", "")
	b.store.Before = failAtOnce
	if f := b.checkRefused(fault.LedgerUnavailable); !errors.Is(f, errDown) || f.Public() == errDown.Error() {
		t.Errorf("%v says %q", f, f.Public())
	}
	if err := slot.Release(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("Release = %v", err)
	}
	b.store.Before = nil
	b.release(slot) // repeats the failed release
	b.acquire("a", "")
	b.mustAcquire()
	b.store.After = failAtOnce
	b.checkRefused(fault.LedgerUnavailable)
	b.store.After = nil
	b.store.Before = func(ctx context.Context, c limittest.Call) error {
		if c.Verb == "remove" {
			return errDown
		}
		return nil
	}
	if _, f := b.acquire("a", fault.Overloaded); !errors.Is(f, errDown) {
		t.Errorf("%v", f)
	}
	b.checkRefused(fault.Overloaded) // two more leases count: the one whose reply was lost, and the one that could not be removed
	b.clock.advance(30 * time.Second)
	b.checkRefused(fault.LedgerUnavailable) // the expired leases cannot be removed
	b.store.Before = nil
	b.mustAcquire()
}

// TestSlotsOverShareTurnsNobodyAway checks that a client which asks for one slot gets it, even
// if three other clients ask for any number of slots at the same moment.
func TestSlotsOverShareTurnsNobodyAway(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			sharesSlots(t, seed)
		})
	}
}

// sharesSlots lets three clients ask for more than their share, and twelve others for one slot
// each.
func sharesSlots(t *testing.T, seed uint64) {
	t.Helper()
	wait := func(context.Context, limittest.Call) error {
		time.Sleep(3 * time.Millisecond) // in the fake time of the bubble
		return nil
	}
	random := rand.New(rand.NewPCG(seed, 1))
	slots := limit.NewSlots("dns", 50, &store{Before: wait, After: wait}, time.Now)
	var greedy [3]atomic.Int64
	var all sync.WaitGroup
	acquires := func(client string) error {
		_, err := slots.Acquire(t.Context(), client, time.Now().Add(time.Minute))
		return err
	}
	for i := range 100 {
		after := time.Duration(random.IntN(20)) * time.Millisecond
		all.Go(func() {
			time.Sleep(after)
			if acquires(fmt.Sprint("greedy ", i%3)) == nil {
				greedy[i%3].Add(1)
			}
		})
	}
	for i := range 12 {
		after := time.Duration(random.IntN(20)) * time.Millisecond
		all.Go(func() {
			time.Sleep(after)
			if err := acquires(fmt.Sprint("modest ", i)); err != nil {
				t.Errorf("seed %d: another client: %v", seed, err)
			}
		})
	}
	all.Wait()
	for i := range greedy {
		if n := greedy[i].Load(); n > 12 || n == 0 {
			t.Errorf("seed %d: one client has %d of 50", seed, n)
		}
	}
}

// TestSlotsOverShareStays checks leases above a client's share that are not released. A
// request of another client waits for their release, for at most 150 ms and no longer than its
// context lasts. Then it is refused as overloaded.
func TestSlotsOverShareStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var memory limit.Memory
		for i := range 4 { // four leases of one client, whose share is 1
			lease := limit.Lease{ID: fmt.Sprint("greedy", i), Until: time.Now().Add(time.Hour)}
			if _, ok, err := memory.Acquire(t.Context(), "dns", lease, 4); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		slots := limit.NewSlots("dns", 4, &memory, time.Now)
		for limit, want := range map[time.Duration]time.Duration{
			time.Hour: 150 * time.Millisecond, 25 * time.Millisecond: 25 * time.Millisecond,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			begun := time.Now()
			_, err := slots.Acquire(ctx, "modest", time.Now().Add(time.Minute))
			if took := time.Since(begun); took != want || fault.From(err).Code != fault.Overloaded {
				t.Errorf("Acquire = %v after %s, want %s", err, took, want)
			}
			cancel()
		}
	})
}
