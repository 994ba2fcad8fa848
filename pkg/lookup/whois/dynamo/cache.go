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
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/lookup/whois"
)

// The attributes of the item. The key's name is that of the ledger's table; a
// test compares them.
const (
	// AttrKey is the partition key (S).
	AttrKey = "pk"
	// AttrFile is the file, compressed with gzip (B): it costs a quarter of the
	// capacity.
	AttrFile = "file"
	// AttrFetched is when it was fetched (N, unix seconds).
	AttrFetched = "fetched"
)

// Key is the item's key.
const Key = "rdap|bootstrap"

// DefaultTimeout bounds one call, resends included (design §3).
const DefaultTimeout = 1500 * time.Millisecond

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
type Config struct {
	API     API           // required
	Table   string        // name or ARN of the ledger's table, required
	Timeout time.Duration // of one call; DefaultTimeout when 0
}

// Cache is a whois.Cache on a DynamoDB table.
type Cache struct {
	api     API
	table   string
	timeout time.Duration
}

var (
	_ whois.Cache = (*Cache)(nil)
	_ API         = (*dynamodb.Client)(nil)
)

// New returns a Cache. It panics without an API or a table.
func New(c Config) *Cache {
	if c.API == nil || c.Table == "" {
		panic("dynamo: New needs an API and a table")
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return &Cache{api: c.API, table: c.Table, timeout: c.Timeout}
}

type item = map[string]types.AttributeValue

// Get implements whois.Cache. An item that it cannot read is an error.
func (c *Cache) Get(ctx context.Context) ([]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	out, err := c.api.GetItem(ctx, &dynamodb.GetItemInput{ // a second's delay does no harm, and costs half
		TableName: &c.table,
		Key:       item{AttrKey: &types.AttributeValueMemberS{Value: Key}},
	})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("dynamo: get item: %w", err)
	}
	if len(out.Item) == 0 {
		return nil, time.Time{}, nil
	}
	file, ok := out.Item[AttrFile].(*types.AttributeValueMemberB)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: no %s", Key, AttrFile)
	}
	fetched, ok := out.Item[AttrFetched].(*types.AttributeValueMemberN)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: no %s", Key, AttrFetched)
	}
	seconds, err := strconv.ParseInt(fetched.Value, 10, 64)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: %w", Key, err)
	}
	doc, err := decompress(file.Value)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: %w", Key, err)
	}
	return doc, time.Unix(seconds, 0).UTC(), nil
}

// Put implements whois.Cache.
func (c *Cache) Put(ctx context.Context, doc []byte, fetched time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	stored, err := compress(doc)
	if err != nil {
		return fmt.Errorf("dynamo: compress: %w", err)
	}
	if len(doc) > maxFile || len(stored) > maxStored {
		return ErrTooLarge
	}
	_, err = c.api.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &c.table,
		Item: item{
			AttrKey:     &types.AttributeValueMemberS{Value: Key},
			AttrFile:    &types.AttributeValueMemberB{Value: stored},
			AttrFetched: &types.AttributeValueMemberN{Value: strconv.FormatInt(fetched.Unix(), 10)},
		},
	})
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
