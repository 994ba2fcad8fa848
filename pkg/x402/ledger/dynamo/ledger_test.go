package dynamo_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
)

// TestConformance runs the suites that every store must pass, on the server dynalite. Unlike
// DynamoDB, dynalite does not return the old item when the condition of a write fails.
func TestConformance(t *testing.T) {
	t.Parallel()
	runSuites(t, cloud.StartDynamo(t), 2)
}

// runSuites runs the suites for the ledger, the limits, large answers and lost replies on a
// server. page is the largest number of items that the ledger asks for at once.
func runSuites(t *testing.T, s cloud.Dynamo, page int) {
	t.Run("ledger", func(t *testing.T) {
		t.Parallel()
		ledgertest.Exercise(t, func(t *testing.T) ledgertest.Planter {
			w := newWorld(t, s)
			dynamo.Paged(w.Table, page)
			return w
		})
	})
	t.Run("large answers", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, s)
		r := ledgertest.Full("large")
		r.Terms, r.Answer.Body = json.RawMessage(`"`+strings.Repeat("terms", 4<<10)+`"`), make([]byte, dynamo.LargestKept)
		_, _ = rand.Read(r.Answer.Body) // it never fails
		ledgertest.MustPut(t, w, r)     // as if the limit for answers had been higher when the record was written
		ledgertest.Holds(t, w, r)
		next := ledgertest.Next(r)
		ledgertest.MustPut(t, w, next)
		ledgertest.Holds(t, w, next)
		large := ledgertest.First("too large")
		large.Answer = &ledger.Answer{Stored: true, Body: make([]byte, 400<<10)}
		if _, err := w.Put(t.Context(), large); err == nil || !strings.Contains(err.Error(), "an item") {
			t.Errorf("an item of more than 400 KB: %v", err)
		}
	})
	t.Run("limits", func(t *testing.T) {
		t.Parallel()
		limittest.Exercise(t, func(t *testing.T) limit.Store { return newWorld(t, s) })
	})
	lostReplies(t, s)
}

// TestOnDynamoDBLocal runs the suites on DynamoDB Local, which shares its code with the
// service. As the service does, it returns the old item when a condition fails, enforces
// limits on expressions, and charges for the index. The test also checks what calls cost, and
// that Create and Open accept a table that exists.
func TestOnDynamoDBLocal(t *testing.T) {
	t.Parallel()
	s := cloud.StartDynamoLocal(t)
	runSuites(t, s, 1000)
	for name, check := range map[string]func(*testing.T, *world){
		"slot units": checkSlotUnits, "costs": checkCosts,
		"a table that is there": func(t *testing.T, w *world) {
			must(t, dynamo.Create(t.Context(), w.uncounted, w.name))
			if _, err := dynamo.Open(t.Context(), s.Config(), w.name); err != nil {
				t.Errorf("Open refuses what Create made: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, newWorld(t, s))
		})
	}
}

// TestItems checks that the items have the documented attributes, and that no item of another
// kind is read as a record.
func TestItems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, cloud.StartDynamo(t))
	full, bare, owed := ledgertest.Full("full"), ledgertest.First("bare"), ledgertest.First("owed")
	bare.ExpiresAt, owed.ExpiresAt = time.Time{}, time.Time{}
	owed.State, owed.LeaseUntil = ledger.Settled, owed.LeaseUntil.Add(time.Nanosecond)
	for _, id := range []string{"a", "b"} {
		mustAcquire(t, w, "host-intel", id)
		must(t, errOf3(w.Count(t.Context(), "2001:db8:1:2::/64", noon, limit.Units{All: 31, Open: 2}, limit.Unbounded)))
	}
	want := map[string]item{
		"full":                              {"answer": bin(full.Answer.Body), "expires_at": num("1793534407")}, // 2026-11-01T12:00:07Z
		"bare":                              {"open": str("open#13"), "lease_until": num("1793534430000")},      // 12:00:30
		"owed":                              {"open": str("open#10"), "lease_until": num("1793534430001")},      // 12:00:30 and a nanosecond
		"slots|host-intel":                  {"slots": set("a tntoya", "b tntoya")},
		"rate|2001:db8:1:2::/64|1793534400": {"requests": num("62"), "undecided": num("4"), "expires_at": num("1793535000")},
	}
	for _, r := range []ledger.Payment{full, bare, owed} {
		ledgertest.MustPut(t, w, r)
		it := want[r.Key]
		it["version"], it["write_id"], it["state"] = num("1"), str(r.WriteID), str(string(r.State))
		doc, _, err := ledger.Marshal(r)
		must(t, err)
		record := w.item(r.Key)["record"]
		if diff := cmp.Diff(dynamo.Packed(string(doc)), record, exportAll); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
		it["record"] = record
	}
	for key, it := range want {
		it["pk"] = str(key)
		if diff := cmp.Diff(it, w.item(key), exportAll); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
		if r, err := w.Fetch(t.Context(), key); (it["record"] == nil) != errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("Fetch(%s) = %v, %v", key, r, err)
		}
	}
}

// TestReadAfterWrite checks what Put returns if its write fails and it then reads the item:
//
//   - The condition of the write failed, and the read finds nothing, because TTL has deleted
//     the item meanwhile: Put returns no record.
//   - The condition failed, and the read fails as well: Put returns an error, because the
//     stored record may be the one that Put has written.
//   - The write failed in another way, and the read does not find its record: Put returns the
//     error of the write, even if the read finds another record. The write may still arrive
//     later.
func TestReadAfterWrite(t *testing.T) {
	t.Parallel()
	lost, noRoute := errors.New("no reply"), errors.New("no route")
	inTheWay := &types.ConditionalCheckFailedException{}
	there := plantedItem("k", `{"key":"k","version":1,"write_id":"w","state":"settled"}`)
	for name, c := range map[string]struct {
		put  error
		item item
		get  error
		want error
	}{
		"in the way, and gone":     {inTheWay, nil, nil, nil},
		"in the way, and not read": {inTheWay, nil, noRoute, noRoute},
		"lost, and not there":      {lost, nil, nil, lost},
		"lost, and another there":  {lost, there, nil, lost},
		"lost, and not read":       {lost, nil, errors.ErrUnsupported, lost},
	} {
		store := fake(func(_ context.Context, op string) (item, error) {
			if op == "put" {
				return nil, c.put
			}
			return c.item, c.get
		}).table()
		if current, err := store.Put(t.Context(), ledgertest.First("k")); current != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v; want %v", name, current, err, c.want)
		}
	}
}

// lostReplies loses replies after the server has processed the requests. The SDK sends a write
// again, and the failed condition of the second attempt shows that the first succeeded. If the
// replies to both attempts are lost, a read finds the write. If the reply to that read is lost
// as well, the caller gets an error, which does not say whether the write took effect.
//
// If the reply to an addition of units is lost, the addition is not sent again, because the
// units could be counted twice. The units of a payment are the exception: if their addition
// were not sent again, a lost reply would turn a payer away, which is worse than counting the
// units twice.
func lostReplies(t *testing.T, s cloud.Dynamo) {
	ctx := t.Context()
	first, other := ledgertest.Full("k"), ledgertest.First("other")
	next := ledgertest.Next(first)
	puts := func(r ledger.Payment) func(*world) error {
		return func(w *world) error {
			current, err := w.Put(ctx, r)
			if err == nil {
				err = diffErr(r.WriteID, current.Head().WriteID)
			}
			return err
		}
	}
	counts := func(n, most int) func(*world) error {
		return func(w *world) error { return errOf3(w.Count(ctx, "c", noon, limit.Units{All: n}, most)) }
	}
	takes := func(w *world) error { return errOf3(w.Acquire(ctx, "dns", lease("mine"), 2)) }
	gives := func(w *world) error { return w.Remove(ctx, "dns", lease("held")) }
	type left struct {
		Version     int64
		Held, Units int
	}
	for name, c := range map[string]struct {
		call       func(*world) error
		losesReply func(op string, n int) bool
		wantWrites int
		wantOK     bool
		wantLeft   left
	}{
		"a create":        {call: puts(other), losesReply: nth("PutItem", 1), wantWrites: 2, wantOK: true, wantLeft: left{1, 1, 0}},
		"a replace":       {call: puts(next), losesReply: nth("PutItem", 1), wantWrites: 2, wantOK: true, wantLeft: left{2, 1, 0}},
		"both of a write": {call: puts(next), losesReply: func(op string, _ int) bool { return op == "PutItem" }, wantWrites: 2, wantOK: true, wantLeft: left{2, 1, 0}},
		"all":             {call: puts(next), losesReply: func(string, int) bool { return true }, wantWrites: 2, wantLeft: left{2, 1, 0}},
		"units":           {call: counts(31, limit.Unbounded), losesReply: nth("UpdateItem", 1), wantWrites: 1, wantLeft: left{1, 1, 31}},
		"of a payment":    {call: counts(5, 300), losesReply: nth("UpdateItem", 1), wantWrites: 2, wantOK: true, wantLeft: left{1, 1, 10}},
		"a lease":         {call: takes, losesReply: nth("UpdateItem", 1), wantWrites: 2, wantOK: true, wantLeft: left{1, 2, 0}},
		"a release":       {call: gives, losesReply: nth("UpdateItem", 1), wantWrites: 2, wantOK: true, wantLeft: left{1, 0, 0}},
	} {
		t.Run("lost reply/"+name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s)
			ledgertest.MustPut(t, w, first)
			mustAcquire(t, w, "dns", "held")
			w.loseReplies(c.losesReply)
			err := c.call(w)
			if calls := w.takeCharges().calls; (err == nil) != c.wantOK || calls["PutItem"]+calls["UpdateItem"] != c.wantWrites {
				t.Errorf("%v after %v; want success: %v", err, calls, c.wantOK)
			}
			w.loseReplies(nil)
			r := ledgertest.Payment(t, w, first.Key)
			held, _, _ := w.Acquire(ctx, "dns", lease("x"), 0)
			units, _, err := w.Count(ctx, "c", noon, limit.Units{}, limit.Unbounded)
			must(t, errors.Join(err, diffErr(c.wantLeft, left{r.Version, len(held), units.All})))
		})
	}
}

// TestTimeout checks that a call ends after the default or the configured time limit, even if
// the condition of a write fails and the read after that hangs. A list must end after 15
// seconds even if all partitions of the index hang.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		api := fake(func(ctx context.Context, op string) (item, error) {
			if op == "put" || op == "update" {
				<-time.After(10 * time.Millisecond)
				return nil, &types.ConditionalCheckFailedException{}
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for _, configured := range []time.Duration{dynamo.DefaultTimeout, 20 * time.Millisecond} {
			store := api.table()
			store.Timeout = configured
			for verb, call := range map[string]func() error{
				"put":     func() error { return errOf(store.Put(ctx, ledgertest.First("k"))) },
				"fetch":   func() error { return errOf(store.Fetch(ctx, "k")) },
				"acquire": func() error { return errOf3(store.Acquire(ctx, "dns", lease("a"), 1)) },
				"take":    func() error { return errOf3(store.Count(ctx, "c", noon, limit.Units{All: 1}, 9)) },
				"owed":    func() error { return errOf(store.List(ctx, ledger.ListOwed, time.Time{}, ledger.Place{}, 10)) },
			} {
				want := configured
				if verb == "owed" {
					want = 15 * time.Second
				}
				start := time.Now()
				if err := call(); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != want {
					t.Errorf("%s took %v: %v; want %v and the deadline", verb, time.Since(start), err, want)
				}
			}
		}
	})
}

var errDown = errors.New("down")

// TestListsFail checks that a list fails if one of its partitions or pages fails, because an
// incomplete list would look complete. The queries of the other partitions are then cancelled.
func TestListsFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		item           item
		queryErr, want error
	}{
		"an error":               {nil, errDown, errDown},
		"a time that is not one": {item{"pk": str("k"), "lease_until": str("1")}, nil, ledger.ErrCorrupt},
	} {
		var queries atomic.Int64
		x := fake(func(ctx context.Context, op string) (item, error) {
			switch {
			case op == "scan":
				return nil, errDown
			case queries.Add(1) != 3:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return c.item, c.queryErr
		}).table()
		if places, err := x.List(t.Context(), ledger.ListOpen, time.Now(), ledger.Place{}, 10); !errors.Is(err, c.want) || places != nil {
			t.Errorf("%s: List = %v, %v, want %v", name, places, err, c.want)
		}
		if page, err := x.Page(t.Context(), "", "", 7); !errors.Is(err, errDown) || page.Next != "" {
			t.Errorf("Page = %+v, %v", page, err)
		}
	}
}
