package dynamo_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/limit/limittest"
)

// pages is an API that asks for smaller pages.
type pages struct {
	dynamo.API
	most int32
}

func (p pages) Query(ctx context.Context, in *dynamodb.QueryInput, o ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	c := *in
	c.Limit = aws.Int32(min(p.most, *in.Limit))
	return p.API.Query(ctx, &c, o...)
}

func (p pages) Scan(ctx context.Context, in *dynamodb.ScanInput, o ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	c := *in
	c.Limit = aws.Int32(min(p.most, *in.Limit))
	return p.API.Scan(ctx, &c, o...)
}

// whole is a Ledger with its views, on a table that can be written behind its back.
type whole struct {
	*dynamo.Ledger
	*dynamo.Index
	*dynamo.Scan
	world *world
}

func newWhole(w *world, page int32) ledgertest.Planter {
	c := w.config()
	c.API = pages{c.API, page}
	return whole{dynamo.NewLedger(c), dynamo.NewIndex(c), dynamo.NewScan(dynamo.ScanConfig{API: c.API, Table: c.Table}), w}
}

func (p whole) Plant(_ context.Context, key string, doc []byte) error {
	p.world.put(planted(key, string(doc)))
	return nil
}

func planted(key, doc string) item {
	return item{"pk": str(key), "version": num("1"), "write_id": str("w"), "state": str("settled"), "record": dynamo.Packed(doc)}
}

// The suites that every store passes, on a server that returns no old item with a
// failed condition.
func TestConformance(t *testing.T) {
	t.Parallel()
	conforms(t, testbed.StartDynamo(t), 2)
}

func conforms(t *testing.T, s testbed.Dynamo, page int32) {
	t.Run("ledger", func(t *testing.T) {
		t.Parallel()
		ledgertest.Exercise(t, func(t *testing.T) ledgertest.Planter { return newWhole(newWorld(t, s), page) })
	})
	t.Run("limits", func(t *testing.T) {
		t.Parallel()
		limittest.Exercise(t, func(t *testing.T) limittest.Store { return newWorld(t, s).limits() })
	})
}

// TestOnDynamoDBLocal: DynamoDB Local shares its code with the service: it returns the
// old item with a failed condition as DynamoDB does, has the limits of its expressions,
// and charges for the index.
func TestOnDynamoDBLocal(t *testing.T) {
	t.Parallel()
	s := testbed.StartDynamoLocal(t)
	conforms(t, s, 1000)
	for name, check := range map[string]func(*testing.T, *world){
		"write units": checkWriteUnits, "slot units": checkSlotUnits,
		"costs":      func(t *testing.T, w *world) { checkCosts(t, w, 0) },
		"lost reply": func(t *testing.T, w *world) { checkLostReply(t, w, nth("PutItem", 1), true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, newWorld(t, s))
		})
	}
}

// The items are those of the design, and none of another kind passes for a record.
func TestItems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testbed.StartDynamo(t))
	store := w.ledger()
	full, bare, owed := ledgertest.Full("full"), ledgertest.First("bare"), ledgertest.First("owed")
	bare.ExpiresAt, owed.ExpiresAt = time.Time{}, time.Time{}
	owed.State, owed.LeaseUntil = ledger.Settled, owed.LeaseUntil.Add(time.Nanosecond)
	for _, id := range []string{"a", "b"} {
		acquires(t, w.limits(), "host-intel", id, 2, true)
		_, err := w.limits().Add(t.Context(), "2001:db8:1:2::/64", noon, limit.Units{All: 31, Open: 2})
		must(t, err)
	}
	want := map[string]item{
		"full":                              {"answer": bin(full.Answer.Body), "expires_at": num("1793534407")}, // 2026-11-01T12:00:07Z
		"bare":                              {"open": str("open#13"), "lease_until": num("1793534430000")},      // 12:00:30
		"owed":                              {"open": str("open#10"), "lease_until": num("1793534430001")},      // and a nanosecond
		"slots|host-intel":                  {"leases": leasesOf(item{"a": num("1793534401234"), "b": num("1793534401234")})},
		"rate|2001:db8:1:2::/64|1793534400": {"requests": num("62"), "undecided": num("4"), "expires_at": num("1793535000")},
	}
	for _, r := range []ledger.Record{full, bare, owed} {
		ledgertest.MustCreate(t, store, r)
		it := want[r.Key]
		it["version"], it["write_id"], it["state"] = num("1"), str(r.WriteID), str(string(r.State))
		doc, _, err := r.Marshal()
		must(t, err)
		record := w.item(r.Key)["record"]
		if unpacked, err := dynamo.Unpack(record); string(unpacked) != string(doc) || err != nil {
			t.Errorf("record %s, %v; want %s", unpacked, err, doc)
		}
		it["record"] = record
	}
	for key, it := range want {
		it["pk"] = str(key)
		if diff := cmp.Diff(it, w.item(key), exact); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
		if r, err := store.Fetch(t.Context(), key); (it["record"] == nil) != errors.Is(err, ledger.ErrCorrupt) {
			t.Errorf("Fetch(%s) = %v, %v", key, r, err)
		}
	}
}

// What cannot be stored is refused before anything is sent.
func TestRefusedBeforeSending(t *testing.T) {
	t.Parallel()
	store, limits := dynamo.NewLedger(fake{}.config()), dynamo.NewLimits(fake{}.config())
	big := ledgertest.Full("k")
	big.Answer.Body = make([]byte, 400<<10)
	_, err := store.Create(t.Context(), big)
	for _, err := range []error{err, store.Replace(t.Context(), big)} {
		if !errors.Is(err, dynamo.ErrTooLarge) || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%v, want ErrTooLarge with the size", err)
		}
	}
	for _, long := range []string{"", strings.Repeat("x", 65)} {
		_, ok, acquire := limits.Acquire(t.Context(), "dns", lease(long), 1)
		_, add := limits.Add(t.Context(), long, noon, limit.Units{All: 1})
		_, took, take := limits.Take(t.Context(), long, noon, limit.Units{All: 1}, 9)
		if ok || took || acquire == nil || add == nil || take == nil {
			t.Errorf("an id of %d bytes: Acquire = %v, %v; Add = %v; Take = %v, %v", len(long), ok, acquire, add, took, take)
		}
	}
	must(t, limits.Remove(t.Context(), "dns"))
}

// What a Ledger says of a write by the error that it met and by what it read then.
// TTL may delete the row between the two. A write whose condition failed and whose read
// failed is not a conflict yet: it may be our own. A write that failed otherwise and is
// not there may still be on its way: its error stands, whatever is there instead.
func TestReadAfterWrite(t *testing.T) {
	t.Parallel()
	lost, noRoute := errors.New("no reply"), errors.New("no route")
	inTheWay := &types.ConditionalCheckFailedException{}
	other := planted("k", `{"key":"k","version":1,"write_id":"w","state":"settled"}`)
	for name, c := range map[string]struct {
		put             error
		item            item
		get             error
		create, replace error // nil is any error but a conflict
	}{
		"in the way, and gone":     {inTheWay, nil, nil, nil, ledger.ErrConflict},
		"in the way, and not read": {inTheWay, nil, noRoute, noRoute, noRoute},
		"lost, and not there":      {lost, nil, nil, lost, lost},
		"lost, and another there":  {lost, other, nil, lost, lost},
		"lost, and not read":       {lost, nil, errors.ErrUnsupported, lost, lost},
	} {
		store := dynamo.NewLedger(fake{
			put: func() error { return c.put },
			get: func(context.Context) (item, error) { return c.item, c.get },
		}.config())
		existing, create := store.Create(t.Context(), ledgertest.First("k"))
		replace := store.Replace(t.Context(), ledgertest.Next(ledgertest.First("k")))
		for err, want := range map[error]error{create: c.create, replace: c.replace} {
			conflict := errors.Is(err, ledger.ErrConflict)
			if err == nil || existing != nil || conflict != errors.Is(want, ledger.ErrConflict) || want != nil && !errors.Is(err, want) {
				t.Errorf("%s: %v, %v; want %v", name, existing, err, want)
			}
		}
	}
}

// The reply to a write is lost, the SDK sends it again, and the failed condition of the
// second is known for the success of the first. When both replies are lost a read finds
// the write; when that is lost too, the caller learns that it knows nothing.
func TestLostReply(t *testing.T) {
	t.Parallel()
	s := testbed.StartDynamo(t)
	checkLostReply(t, newWorld(t, s), nth("PutItem", 1), true)
	checkLostReply(t, newWorld(t, s), func(op string, _ int) bool { return op == "PutItem" }, true)
	checkLostReply(t, newWorld(t, s), func(string, int) bool { return true }, false)
}

func checkLostReply(t *testing.T, w *world, lost func(op string, n int) bool, ok bool) {
	t.Helper()
	w.loses(lost)
	store, r := w.ledger(), ledgertest.Full("k")
	next := ledgertest.Next(r)
	for _, call := range []func() error{
		func() error { return errOf(store.Create(t.Context(), r)) },
		func() error { return store.Replace(t.Context(), next) },
	} {
		err := call()
		if n := w.took()["PutItem"]; (err == nil) != ok || errors.Is(err, ledger.ErrConflict) || n != 2 {
			t.Errorf("sent %d times: %v; want success: %v, and no named error", n, err, ok)
		}
	}
	w.loses(nil)
	ledgertest.Holds(t, store, next)
}

// A call ends after its time, its own or the configured one: the read after a failed
// condition included, and however many partitions of the index hang.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		api := fake{
			put: func() error {
				<-time.After(10 * time.Millisecond)
				return &types.ConditionalCheckFailedException{}
			},
			get: func(ctx context.Context) (item, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			query: func(ctx context.Context, _ string, _ *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}
		api.update = func() (item, error) { return nil, api.put() }
		for _, configured := range []time.Duration{0, 20 * time.Millisecond} {
			c := api.config()
			c.Timeout = configured
			store, limits, index := dynamo.NewLedger(c), dynamo.NewLimits(c), dynamo.NewIndex(c)
			for verb, call := range map[string]func() error{
				"create":  func() error { return errOf(store.Create(ctx, ledgertest.First("k"))) },
				"replace": func() error { return store.Replace(ctx, ledgertest.First("k")) },
				"fetch":   func() error { return errOf(store.Fetch(ctx, "k")) },
				"acquire": func() error { return errOf3(limits.Acquire(ctx, "dns", lease("a"), 1)) },
				"take":    func() error { return errOf3(limits.Take(ctx, "c", noon, limit.Units{All: 1}, 9)) },
				"file":    func() error { return errOf3(dynamo.NewFile(c, "f").Get(ctx)) },
				"owed":    func() error { return errOf(index.Owed(ctx, ledger.Place{}, 10)) },
			} {
				want := map[bool]time.Duration{true: dynamo.DefaultIndexTimeout, false: dynamo.DefaultTimeout}[verb == "owed"]
				if configured > 0 {
					want = configured
				}
				start := time.Now()
				if err := call(); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != want {
					t.Errorf("%s took %v: %v; want %v and the deadline", verb, time.Since(start), err, want)
				}
			}
		}
	})
}

func TestNewPanics(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"no API":         func() { dynamo.NewLedger(dynamo.Config{Table: "t"}) },
		"no table":       func() { dynamo.NewLimits(dynamo.Config{API: fake{}}) },
		"scan, no API":   func() { dynamo.NewScan(dynamo.ScanConfig{Table: "t"}) },
		"scan, no table": func() { dynamo.NewScan(dynamo.ScanConfig{API: fake{}}) },
		"no region": func() {
			dynamo.NewClient(dynamo.ClientConfig{Credentials: testbed.Dynamo{}.ClientConfig().Credentials})
		},
		"no credentials": func() { dynamo.NewClient(dynamo.ClientConfig{Region: "us-east-1"}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func zipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(s))
	must(t, errors.Join(err, z.Close()))
	return b.Bytes()
}

func TestFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testbed.StartDynamo(t))
	// What one process puts, another gets.
	config := dynamo.Config{API: w.direct, Table: w.table, Timeout: patience}
	const key = "rdap|bootstrap"
	one, other := dynamo.NewFile(config, key), dynamo.NewFile(config, key)
	if doc, fetched, err := one.Get(t.Context()); doc != nil || !fetched.IsZero() || err != nil {
		t.Fatalf("Get of nothing = %q, %v, %v", doc, fetched, err)
	}
	for i, doc := range []string{`{"version":"1.0"}`, strings.Repeat(`["com"],`, 50_000)} {
		at := noon.Add(time.Duration(i) * time.Hour)
		must(t, one.Put(t.Context(), []byte(doc), at.Add(999*time.Millisecond)))
		if got, fetched, err := other.Get(t.Context()); string(got) != doc || !fetched.Equal(at) || err != nil {
			t.Errorf("Get = %d bytes, %v, %v; want %d bytes, %v", len(got), fetched, err, len(doc), at)
		}
	}
	noise := make([]byte, 500<<10)
	rand.Read(noise)
	for _, large := range [][]byte{noise, make([]byte, 5<<20)} {
		if err := one.Put(t.Context(), large, noon); !errors.Is(err, dynamo.ErrTooLarge) {
			t.Errorf("Put of %d bytes = %v", len(large), err)
		}
	}
	if got, _, err := other.Get(t.Context()); len(got) != 400_000 || err != nil {
		t.Errorf("after it: %d bytes, %v", len(got), err)
	}
	sound, now := zipped(t, "x"), num("1")
	for name, it := range map[string]item{
		"no file": {"fetched": now}, "no time": {"file": bin(sound)}, "odd time": {"file": bin(sound), "fetched": num("1.5")},
		"not gzip": {"file": bin([]byte("x")), "fetched": now}, "cut short": {"file": bin(sound[:len(sound)-3]), "fetched": now},
		"text": {"file": str("x"), "fetched": now}, "expands a lot": {"file": bin(zipped(t, strings.Repeat("x", 5<<20))), "fetched": now},
	} {
		it["pk"] = str(key)
		w.put(it)
		if doc, _, err := one.Get(t.Context()); err == nil || doc != nil {
			t.Errorf("%s: Get = %d bytes, %v", name, len(doc), err)
		}
	}
	down := dynamo.NewFile(fake{get: func(context.Context) (item, error) { return nil, errDown }, put: func() error { return errDown }}.config(), key)
	if doc, _, err := down.Get(t.Context()); !errors.Is(err, errDown) || doc != nil {
		t.Errorf("Get = %q, %v", doc, err)
	}
	if err := down.Put(t.Context(), []byte("x"), noon); !errors.Is(err, errDown) {
		t.Errorf("Put = %v", err)
	}
}
