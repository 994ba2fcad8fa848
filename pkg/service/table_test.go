package service_test

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/limit/limittest"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// raceDetector makes signatures fifteen times as slow, so what needs many is counted without
// it, which make test does as well.
func raceDetector() bool {
	build, _ := debug.ReadBuildInfo()
	return slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// spent is what a client's requests have cost.
type spent struct {
	Writes, Units, Reads, Verifies, Settles, Looks int
}

// above says that something cost more than the most that it may.
func (s spent) above(most spent) bool {
	return s.Writes > most.Writes || s.Units > most.Units || s.Reads > most.Reads ||
		s.Verifies > most.Verifies || s.Settles > most.Settles || s.Looks > most.Looks
}

// table is a model of DynamoDB, which the environments of a deployment share: a ledger's
// store, and what the limits write. It counts what is spent.
type table struct {
	ledger.Store
	dynamo.API // of which encode calls PutItem alone
	mu         sync.Mutex
	spent
	trip time.Duration // how long each call takes
	// hot has what is written to each item and each partition of the index, where a test
	// asks what the table can take of that.
	hot map[string]*hot

	encode *dynamo.Ledger // sends its items to PutItem
	item   map[string]types.AttributeValue
}

func newTable() *table {
	t := &table{Store: &ledgertest.Memory{}}
	t.encode = dynamo.NewLedger(dynamo.Config{API: t, Table: "t"})
	return t
}

func (t *table) add(f func(*spent)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.spent)
}

func (t *table) reset() { t.add(func(s *spent) { *s = spent{} }) }

// write takes so many units for an item, and one for each entry that is removed from the
// index or added.
func (t *table) write(item string, units int, entries ...string) error {
	for _, keys := range entries {
		partition, _, _ := strings.Cut(keys, " ")
		if err := t.take("index "+partition, 1); err != nil {
			return err
		}
	}
	if err := t.take(item, units); err != nil {
		return err
	}
	t.add(func(s *spent) { s.Writes++; s.Units += units + len(entries) })
	time.Sleep(t.trip)
	return nil
}

func (t *table) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	units, entry := t.sizeOf(r)
	existing, err := t.Store.Fetch(ctx, r.Key)
	if existing != nil { // a failed condition costs what is there
		units, _ = t.sizeOf(*existing)
		entry = nil
	}
	if err = errors.Join(err, t.write("record "+r.Key, units, entry...)); err != nil {
		return nil, err
	}
	return t.Store.Create(ctx, r)
}

// Replace costs as much as the larger of the old and the new item.
func (t *table) Replace(ctx context.Context, r ledger.Record) error {
	old, err := t.Store.Fetch(ctx, r.Key)
	if err != nil {
		return err
	}
	units, entry := t.sizeOf(r)
	was, left := t.sizeOf(*old)
	if slices.Equal(entry, left) {
		entry, left = nil, nil
	}
	if err := t.write("record "+r.Key, max(units, was), append(entry, left...)...); err != nil {
		return err
	}
	return t.Store.Replace(ctx, r)
}

func (t *table) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	t.add(func(s *spent) { s.Reads++ })
	time.Sleep(t.trip)
	return t.Store.Fetch(ctx, key)
}

// limits is a store of the limits in the table.
func (t *table) limits() *limittest.Watched {
	s := &limittest.Watched{}
	s.Before = func(ctx context.Context, c limittest.Call) error {
		if c.Verb == "add" || c.Verb == "take" {
			return t.write("count "+c.Of, 1) // below a kilobyte (see package pkg/dynamo)
		}
		held, _, err := s.Memory.Acquire(ctx, c.Of, limit.Lease{}, 0)
		// One item, of 20 bytes a lease (pkg/dynamo's TestSlotUnits).
		return errors.Join(err, t.write("slots "+c.Of, (20*(len(held)+1)+1023)/1024))
	}
	return s
}

// sizeOf is the write units of a record in the form in which a store sends it, and its
// entry in the index, if it has one: the partition, and the key in it.
func (t *table) sizeOf(r ledger.Record) (units int, entry []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Version = 1
	if _, err := t.encode.Create(context.Background(), r); err != nil {
		panic(err)
	}
	size, until := 0, ""
	for name, value := range t.item {
		size += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += len(v.Value)/2 + 2
			if name == dynamo.AttrLeaseUntil {
				until = v.Value
			}
		}
	}
	if list, ok := t.item[dynamo.AttrOpen].(*types.AttributeValueMemberS); ok {
		entry = []string{list.Value + " " + until}
	}
	return (size + 1023) / 1024, entry
}

// PutItem is what encode sends.
func (t *table) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	t.item = in.Item
	return &dynamodb.PutItemOutput{}, nil
}

func (t *table) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	panic("an item is read to be written")
}
