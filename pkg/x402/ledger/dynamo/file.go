package dynamo

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const (
	maxFile   = 4 << 20   // bytes of a file after decompression
	maxStored = 380 << 10 // DynamoDB takes 400 KB an item
)

// File is a file that the table keeps between the records of others: one item. The last
// writer wins, and it never expires: an old file is better than none. It is a
// whois.Cache.
type File struct {
	store
	key string
}

// NewFile returns the file with a key. It panics without an API or a table.
func NewFile(c Config, key string) *File { return &File{open(c, DefaultTimeout), key} }

// Get returns the file and when it was fetched, to the second; nothing when there is
// none. An item that it cannot read is an error.
func (f *File) Get(ctx context.Context) ([]byte, time.Time, error) {
	ctx, cancel := f.bound(ctx)
	defer cancel()
	it, err := f.get(ctx, f.key, false)
	if err != nil {
		return nil, time.Time{}, err
	}
	if len(it) == 0 {
		return nil, time.Time{}, nil
	}
	file, ok := it[AttrFile].(*types.AttributeValueMemberB)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: no %s", f.key, AttrFile)
	}
	seconds, ok := numberOf(it, AttrFetched)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: no %s", f.key, AttrFetched)
	}
	doc, err := decompress(file.Value)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("dynamo: item %s: %w", f.key, err)
	}
	return doc, time.Unix(seconds, 0).UTC(), nil
}

// Put replaces the file.
func (f *File) Put(ctx context.Context, doc []byte, fetched time.Time) error {
	ctx, cancel := f.bound(ctx)
	defer cancel()
	stored, err := compress(doc)
	if err != nil {
		return fmt.Errorf("dynamo: compress: %w", err)
	}
	if len(doc) > maxFile || len(stored) > maxStored {
		return ErrTooLarge
	}
	it := keyed(f.key)
	it[AttrFile], it[AttrFetched] = &types.AttributeValueMemberB{Value: stored}, number(fetched.Unix())
	_, err = f.api.PutItem(ctx, &dynamodb.PutItemInput{TableName: &f.table, Item: it})
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
