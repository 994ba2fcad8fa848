// Package dynamo keeps the RDAP bootstrap file in the table of the payment
// ledger, beside its records, so that a new process need not ask IANA.
//
// It is one item, whose key no record can have (theirs begin with a CAIP-2
// network) and which has none of a record's attributes. The last writer wins,
// and it never expires: an old file is better than none.
package dynamo

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// The attributes of the item.
const (
	// AttrFile is the file, compressed with gzip (B): it costs a quarter of the
	// capacity.
	AttrFile = "file"
	// AttrFetched is when it was fetched (N, unix seconds).
	AttrFetched = "fetched"
)

// Key is the item's key.
const Key = "rdap|bootstrap"

const (
	maxFile   = 4 << 20   // bytes of a file after decompression
	maxStored = 380 << 10 // DynamoDB takes 400 KB an item
)

// ErrTooLarge says that a file does not fit into an item. Nothing was sent.
var ErrTooLarge = errors.New("dynamo: the bootstrap file is too large for an item")

// API is what a Cache calls. A *dynamodb.Client is one.
type API interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// Config is what a Cache is made of.
type Config = dynamotable.Config[API]

// Cache is a whois.Cache on a DynamoDB table.
type Cache struct{ dynamotable.Table[API] }

var (
	_ whois.Cache = (*Cache)(nil)
	_ API         = (*dynamodb.Client)(nil)
)

// New returns a Cache. It panics without an API or a table.
func New(c Config) *Cache { return &Cache{dynamotable.Open(c, dynamotable.DefaultTimeout)} }

// Get implements whois.Cache. An item that it cannot read is an error.
func (c *Cache) Get(ctx context.Context) ([]byte, time.Time, error) {
	ctx, cancel := c.Bound(ctx)
	defer cancel()
	it, err := dynamotable.Get(ctx, c.API, c.Name, Key, false)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("dynamo: %w", err)
	}
	if len(it) == 0 {
		return nil, time.Time{}, nil
	}
	file, ok := it[AttrFile].(*types.AttributeValueMemberB)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: no %s", Key, AttrFile)
	}
	seconds, ok := dynamotable.NumberOf(it, AttrFetched)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: no %s", Key, AttrFetched)
	}
	doc, err := decompress(file.Value)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: %w", Key, err)
	}
	return doc, time.Unix(seconds, 0).UTC(), nil
}

// Put implements whois.Cache.
func (c *Cache) Put(ctx context.Context, doc []byte, fetched time.Time) error {
	ctx, cancel := c.Bound(ctx)
	defer cancel()
	stored, err := compress(doc)
	if err != nil {
		return fmt.Errorf("dynamo: compress: %w", err)
	}
	if len(doc) > maxFile || len(stored) > maxStored {
		return ErrTooLarge
	}
	it := dynamotable.Key(Key)
	it[AttrFile], it[AttrFetched] = &types.AttributeValueMemberB{Value: stored}, dynamotable.Number(fetched.Unix())
	_, err = c.API.PutItem(ctx, &dynamodb.PutItemInput{TableName: &c.Name, Item: it})
	if err != nil {
		return fmt.Errorf("dynamo: put item: %w", err)
	}
	return nil
}

func compress(doc []byte) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(doc); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func decompress(stored []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		return nil, err
	}
	doc, err := io.ReadAll(io.LimitReader(z, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(doc) > maxFile {
		return nil, ErrTooLarge
	}
	return doc, nil
}
