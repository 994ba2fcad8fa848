package service_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// spent is what a client's requests have cost.
type spent struct {
	Writes, Units, Reads, Verifies, Settles, Looks int
}

// usage counts what the environments of a deployment spend. They share it.
type usage struct {
	mu sync.Mutex
	spent
	// trip is how long each call of the table takes.
	trip time.Duration
	// load takes what is written, where a test asks what the table can take.
	load *tableLoad
}

// above says that something cost more than the most that it may.
func (s spent) above(most spent) bool {
	return s.Writes > most.Writes || s.Units > most.Units || s.Reads > most.Reads ||
		s.Verifies > most.Verifies || s.Settles > most.Settles || s.Looks > most.Looks
}

func (b *usage) reset() { b.add(func(s *spent) { *s = spent{} }) }

func (b *usage) add(f func(*spent)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.spent)
}

// wrote counts a write of so many units.
func (b *usage) wrote(units int) {
	b.add(func(s *spent) { s.Writes++; s.Units += units })
	time.Sleep(b.trip)
}

// countingStore is a ledger's store that counts write units by the size of the
// items that DynamoDB would be sent: by the larger of the old and the new item, and
// one in the index for each entry that is removed or added.
type countingStore struct {
	ledger.Store
	bill  *usage
	scale *itemSizes
}

func (s countingStore) Create(ctx context.Context, r ledger.Record) (*ledger.Record, error) {
	if err := s.bill.load.record(s.scale, r, itemSize{}); err != nil {
		return nil, err
	}
	existing, err := s.Store.Create(ctx, r)
	if existing != nil { // a failed condition costs what is there
		s.bill.wrote(s.scale.sizeOf(*existing).table)
		return existing, err
	}
	s.bill.wrote(s.scale.sizeOf(r).units(itemSize{}))
	return nil, err
}

func (s countingStore) Replace(ctx context.Context, r ledger.Record) error {
	old, err := s.Store.Fetch(ctx, r.Key)
	if err != nil {
		return err
	}
	var was itemSize
	if old != nil {
		was = s.scale.sizeOf(*old)
	}
	if err := s.bill.load.record(s.scale, r, was); err != nil {
		return err
	}
	s.bill.wrote(s.scale.sizeOf(r).units(was))
	return s.Store.Replace(ctx, r)
}

func (s countingStore) Fetch(ctx context.Context, key string) (*ledger.Record, error) {
	s.bill.add(func(s *spent) { s.Reads++ })
	time.Sleep(s.bill.trip)
	return s.Store.Fetch(ctx, key)
}

// itemSize is the size of an item: its write units in the table, and its keys in the
// index, which are empty if it is not in the index.
type itemSize struct {
	table int
	index string
}

// units is how many write units it takes to write an item over another.
func (w itemSize) units(old itemSize) int {
	units := max(w.table, old.table)
	if w.index == old.index {
		return units
	}
	for _, keys := range []string{w.index, old.index} {
		if keys != "" {
			units++
		}
	}
	return units
}

// itemSizes measures records in the form in which a store sends them.
type itemSizes struct {
	dynamo.API
	mu    sync.Mutex
	store *dynamo.Ledger
	sent  map[string]types.AttributeValue
}

func newScale() *itemSizes {
	s := &itemSizes{}
	s.store = dynamo.NewLedger(dynamo.Config{API: s, Table: "t"})
	return s
}

func (s *itemSizes) sizeOf(r ledger.Record) itemSize {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Version = 1
	if _, err := s.store.Create(context.Background(), r); err != nil {
		panic(err)
	}
	size, index := 0, ""
	for name, value := range s.sent {
		size += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += len(v.Value)/2 + 2
		default:
			panic(fmt.Sprintf("an attribute of type %T", v))
		}
	}
	if list, ok := s.sent[dynamo.AttrOpen].(*types.AttributeValueMemberS); ok {
		index = list.Value + " " + s.sent[dynamo.AttrLeaseUntil].(*types.AttributeValueMemberN).Value //nolint:forcetypeassert // the store writes both
	}
	return itemSize{table: (size + 1023) / 1024, index: index}
}

func (s *itemSizes) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	s.sent = in.Item
	return &dynamodb.PutItemOutput{}, nil
}

func (s *itemSizes) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	panic("an item is read to be written")
}

// watchedLimits call watch before each call of the limits' store: with the operation
// whose slots are updated, or with none where a client's requests are counted.
type watchedLimits struct {
	limit.Memory
	watch func(ctx context.Context, operation string) error
}

func (l *watchedLimits) Add(ctx context.Context, client string, window time.Time, n limit.Units) (limit.Units, error) {
	if err := l.watch(ctx, ""); err != nil {
		return limit.Units{}, err
	}
	return l.Memory.Add(ctx, client, window, n)
}

func (l *watchedLimits) Take(
	ctx context.Context, client string, window time.Time, n limit.Units, most int,
) (limit.Units, bool, error) {
	if err := l.watch(ctx, ""); err != nil {
		return limit.Units{}, false, err
	}
	return l.Memory.Take(ctx, client, window, n, most)
}

func (l *watchedLimits) Acquire(ctx context.Context, op string, lease limit.Lease, most int) ([]limit.Lease, bool, error) {
	if err := l.watch(ctx, op); err != nil {
		return nil, false, err
	}
	return l.Memory.Acquire(ctx, op, lease, most)
}

func (l *watchedLimits) Remove(ctx context.Context, op string, leases ...limit.Lease) error {
	if err := l.watch(ctx, op); err != nil {
		return err
	}
	return l.Memory.Remove(ctx, op, leases...)
}
