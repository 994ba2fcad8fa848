package dynamotable

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
)

// The attributes of a File.
const (
	// AttrFile is the file, compressed with gzip (B): it costs a quarter of the
	// capacity.
	AttrFile = "file"
	// AttrFetched is when it was fetched (N, unix seconds).
	AttrFetched = "fetched"
)

const (
	maxFile   = 4 << 20   // bytes of a file after decompression
	maxStored = 380 << 10 // DynamoDB takes 400 KB an item
)

// ErrTooLarge says that a file does not fit into an item. Nothing was sent.
var ErrTooLarge = errors.New("dynamotable: the file is too large for an item")

// FileAPI is what a File calls. A *dynamodb.Client is one.
type FileAPI interface {
	Getter
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// File is a file that the table keeps between the records of others: one item,
// which has none of a record's attributes and whose key no record can have. The last
// writer wins, and it never expires: an old file is better than none. It is a
// whois.Cache.
type File struct {
	Table[FileAPI]
	key string
}

// OpenFile returns the file with a key. It panics without an API or a table.
func OpenFile(c Config[FileAPI], key string) *File { return &File{Open(c, DefaultTimeout), key} }

// Get returns the file and when it was fetched, to the second; nothing when there is
// none. An item that it cannot read is an error.
func (f *File) Get(ctx context.Context) ([]byte, time.Time, error) {
	ctx, cancel := f.Bound(ctx)
	defer cancel()
	it, err := Get(ctx, f.API, f.Name, f.key, false)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("dynamotable: %w", err)
	}
	if len(it) == 0 {
		return nil, time.Time{}, nil
	}
	file, ok := it[AttrFile].(*types.AttributeValueMemberB)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("dynamotable: item %s: no %s", f.key, AttrFile)
	}
	seconds, ok := NumberOf(it, AttrFetched)
	if !ok {
		return nil, time.Time{}, fmt.Errorf("dynamotable: item %s: no %s", f.key, AttrFetched)
	}
	doc, err := decompress(file.Value)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("dynamotable: item %s: %w", f.key, err)
	}
	return doc, time.Unix(seconds, 0).UTC(), nil
}

// Put replaces the file.
func (f *File) Put(ctx context.Context, doc []byte, fetched time.Time) error {
	ctx, cancel := f.Bound(ctx)
	defer cancel()
	stored, err := compress(doc)
	if err != nil {
		return fmt.Errorf("dynamotable: compress: %w", err)
	}
	if len(doc) > maxFile || len(stored) > maxStored {
		return ErrTooLarge
	}
	it := Key(f.key)
	it[AttrFile], it[AttrFetched] = &types.AttributeValueMemberB{Value: stored}, Number(fetched.Unix())
	_, err = f.API.PutItem(ctx, &dynamodb.PutItemInput{TableName: &f.Name, Item: it})
	if err != nil {
		return fmt.Errorf("dynamotable: put item: %w", err)
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
