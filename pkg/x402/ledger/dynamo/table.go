package dynamo

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// DefaultTimeout bounds one call of a Table, including resends and the read after a failed
// condition.
const DefaultTimeout = 1500 * time.Millisecond

// item holds some or all attributes of a DynamoDB item.
type item = map[string]types.AttributeValue

// API holds the operations of a *dynamodb.Client that a Table uses (see APIOf). API is not an
// interface, because an interface would make programs 1.6 MB larger. A program with
// text/template can call methods by name. In such a program the linker keeps every method of a
// type that is converted to an interface, and a client has fifty methods that a Table does not
// use.
type API struct {
	GetItem    func(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem    func(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem func(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	Query      func(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	Scan       func(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// APIOf returns the operations that a Table needs from a client.
func APIOf(c *dynamodb.Client) API { return API{c.GetItem, c.PutItem, c.UpdateItem, c.Query, c.Scan} }

// Table is a DynamoDB table with the records of package ledger and the counts and leases of
// package limit. It implements ledger.Store, ledger.Index, ledger.Rows and limit.Store. It is
// safe for concurrent use.
type Table struct {
	// Timeout bounds one call of Fetch, Put, Count, Acquire or Remove.
	Timeout time.Duration

	api         API
	name        string
	mostKept    int
	pageSize    int       // the largest number of items in a reply, so that the reply arrives within the time of an attempt
	compressors sync.Pool // the compressors for records; each is large, so it is used again
}

// A table keeps the compressed body of an answer up to a limit, in bytes. The limit is
// DefaultKept unless Keep sets another one. The largest limit is LargestKept, which leaves
// room in an item for the rest of the record. Each write of the record costs one write unit
// for each KB.
const (
	DefaultKept = ledger.LeastKept
	LargestKept = 300 << 10
)

// maxItem bounds the size of an item's key, record and answer together, in bytes. DynamoDB
// allows 400 KB for the whole item; the difference is for the attribute names and the other
// attributes.
const maxItem = 399 << 10

// New returns the table with the given name or ARN, without checking it (see Open and Check).
func New(api API, name string) *Table {
	return &Table{
		Timeout:  DefaultTimeout,
		api:      api,
		name:     name,
		mostKept: DefaultKept,
		pageSize: 500,
		compressors: sync.Pool{
			New: func() any { return newCompressor() },
		},
	}
}

func newCompressor() *flate.Writer {
	w, _ := flate.NewWriterDict(nil, flate.DefaultCompression, []byte(dictionary)) // fails only for an invalid level
	return w
}

// MostKept implements ledger.Store.
func (t *Table) MostKept() int { return t.mostKept }

// Fetch implements ledger.Store.
func (t *Table) Fetch(ctx context.Context, key string) (ledger.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	return t.currentRecord(ctx, key, nil)
}

// Put implements ledger.Store.
func (t *Table) Put(ctx context.Context, r ledger.Record) (current ledger.Record, err error) {
	write, err := t.encode(r)
	if err != nil {
		return nil, err
	}
	head := r.Head()
	condition := "version = :read"
	values := item{":read": numberValue(head.Version - 1)}
	if head.Version == 1 {
		condition = "attribute_not_exists(" + AttrKey + ")"
		values = nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	_, err = t.api.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &t.name,
		Item:                                write,
		ConditionExpression:                 &condition,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return t.currentRecord(ctx, head.Key, failed.Item)
	}
	if err == nil {
		return r, nil
	}
	// The write may have taken effect, although its replies were lost. If Put then returned an
	// error, a payer would wait for the end of a lease that nobody uses. So read the item in
	// the rest of the call's time. If the read does not find the write, Put returns an error,
	// because the write may still be on its way.
	held, _ := t.currentRecord(ctx, head.Key, nil)
	if held != nil && held.Head().WriteID == head.WriteID {
		return held, nil
	}
	return nil, fmt.Errorf("dynamo: put item: %w", err)
}

// currentRecord returns the record under a key, or nil if there is none. If the caller already
// has the item of the record, knownItem is that item. If knownItem is empty, currentRecord
// reads the table.
func (t *Table) currentRecord(ctx context.Context, key string, knownItem item) (ledger.Record, error) {
	knownItem, err := t.item(ctx, keyItem(key), knownItem)
	if err != nil || len(knownItem) == 0 {
		return nil, err
	}
	return decode(key, knownItem)
}

// item returns knownItem, if knownItem is not empty. Otherwise it reads the item under the key
// with a consistent read. The result is empty if the table has no item under the key.
func (t *Table) item(ctx context.Context, key, knownItem item) (item, error) {
	if len(knownItem) > 0 {
		return knownItem, nil
	}
	out, err := t.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &t.name,
		Key:            key,
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, fmt.Errorf("dynamo: get item: %w", err)
	}
	return out.Item, nil
}

// keyItem returns an item that has only its key.
func keyItem(key string) item { return item{AttrKey: textValue(key)} }

func textValue(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func numberValue(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// decodeItem decodes attributes of an item into the fields of a struct. If the item lacks an
// attribute, the field for it does not change. An attribute whose type does not fit its field
// is an error.
func decodeItem(it item, into any) error {
	if err := attributevalue.UnmarshalMap(it, into); err != nil {
		return fmt.Errorf("%w: %w", ledger.ErrCorrupt, err)
	}
	return nil
}

// storedRecord has the attributes of a record's item that decode reads. The attribute record
// has the whole record except the compressed body of the answer, which is in the attribute
// answer. The other attributes repeat parts of the record, for the conditions of writes and
// for operators.
type storedRecord struct {
	Key     string `dynamodbav:"pk"`
	Version int64  `dynamodbav:"version"` // compared by the condition of a Put
	WriteID string `dynamodbav:"write_id"`
	Status  string `dynamodbav:"state"`
	Record  []byte `dynamodbav:"record"`           // the packed JSON form of the record
	Answer  []byte `dynamodbav:"answer,omitempty"` // the compressed body of the answer
}

// recordItem is the whole item of a record. The attributes that it adds to storedRecord are
// for the TTL and the index. decode does not read these attributes, and every write sets them
// again, so a wrong value in them costs nobody an answer.
type recordItem struct {
	storedRecord
	ExpiresAt  int64  `dynamodbav:"expires_at,omitempty"`
	Open       string `dynamodbav:"open,omitempty"`
	LeaseUntil int64  `dynamodbav:"lease_until,omitempty"`
}

// encode returns the item of a record.
func (t *Table) encode(r ledger.Record) (item, error) {
	doc, body, err := ledger.Marshal(r)
	if err != nil {
		return nil, err
	}
	head := r.Head()
	record := recordItem{
		storedRecord: storedRecord{
			Key:     head.Key,
			Version: head.Version,
			WriteID: head.WriteID,
			Status:  r.Status(),
			Record:  t.pack(doc),
			Answer:  body,
		},
	}
	size := len(record.Key) + len(record.Record) + len(record.Answer)
	if size > maxItem {
		return nil, fmt.Errorf("dynamo: encode record: %d bytes are more than an item has", size)
	}
	if !head.ExpiresAt.IsZero() {
		record.ExpiresAt = head.ExpiresAt.Unix()
	}
	if list, at := r.Listed(); list != "" {
		record.Open = partition(list, shardOf(head.Key))
		record.LeaseUntil = ceilMilli(at)
	}
	it, err := attributevalue.MarshalMap(record)
	if err != nil {
		return nil, fmt.Errorf("dynamo: encode record: %w", err)
	}
	return it, nil
}

// partition returns the partition key of the index for a shard of a list.
func partition(list string, shard int) string { return list + "#" + strconv.Itoa(shard) }

// shardOf returns the shard of a record's key. The function must never change, because it has
// decided the shard of every stored record.
func shardOf(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return int(h.Sum32() % shards)
}

// ceilMilli returns a time in unix milliseconds, rounded up, so that no lease is listed as
// ended before its end.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// decode returns the record in an item. It returns an error if the record has another key than
// the given one, or if an attribute of the item does not agree with the record.
func decode(key string, it item) (ledger.Record, error) {
	var stored storedRecord
	if err := decodeItem(it, &stored); err != nil {
		return nil, err
	}
	doc, err := unpack(stored.Record)
	if err != nil {
		return nil, err
	}
	r, err := ledger.Unmarshal(key, doc, stored.Answer)
	if err != nil {
		return nil, err
	}
	head := r.Head()
	if stored.Key != key || stored.Version != head.Version || stored.WriteID != head.WriteID || stored.Status != r.Status() {
		return nil, fmt.Errorf("%w: the key, version, write id or state of the item is not that of its record", ledger.ErrCorrupt)
	}
	return r, nil
}

// DynamoDB charges a write by the kilobyte of the item, rounded up. A record has about 1.7 KB
// as JSON, and a third of that if it is compressed with a preset dictionary. So a claim and a
// settlement cost one write unit each instead of two.

// packFormat is the first byte of a packed record. It means that the rest is compressed with
// DEFLATE (RFC 1951) and the preset dictionary below.
const packFormat = 1

// dictionary has text that most records contain. It must never change, because the records in
// existing tables were packed with it. Another dictionary needs another value of packFormat.
const dictionary = `"last_fault":{"code":"","message":""},"refusals":1,"refused_at":"","disproved":true,` +
	`"doubt":true,"sent":true,"reason":"an earlier attempt ended without a verdict","owner":"` +
	`supersededboughtuncertainrefused"owed":["],"reason":"no evidence yet",` +
	`"asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","extra":{"name":"USDC"` +
	`|0x036cbd53842c5426634e7929541ec2318f3dcf7e|"network":"eip155:84532"` +
	`{"key":"purchase|eip155:8453|0x833589fcd6edb6e08f4c7c32d4f71b54bda02913|0x","version":5,"write_id":"` +
	`","state":"redeemed","settled","settling","auth_digest":"","sig_digest":"","request":"",` +
	`"terms":{"scheme":"exact","network":"eip155:8453","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",` +
	`"amount":"5000","payTo":"0x","maxTimeoutSeconds":300,"extra":{"name":"USD Coin","version":"2","paymentFlow":"upfront"}},` +
	`"payload":{"signature":"0x","authorization":{"from":"0x","to":"0x","value":"5000","validAfter":"0","validBefore":"17` +
	`","nonce":"0x"}},"proof":{"token":"","key":""},` +
	`"purchase":"purchase|eip155:8453|0x833589fcd6edb6e08f4c7c32d4f71b54bda02913|0x|request:|key:` +
	`","attempt":1,"lease_until":"2026-11-22T12:00:00.123456789Z","transaction":"0x",` +
	`"receipt":{"transaction":"0x","payer":"0x","network":"eip155:8453"},"lookups":1,"lookup_at":"2026-` +
	`","answer":{"status":200,"encoding":"gzip","stored":true},"valid_before":"2026-` +
	`","created_at":"2026-11-22T12:00:00.123456789Z","updated_at":"2026-","settled_at":"2026-","answered_at":"2026-","expires_at":"2026-"}`

// pack compresses the JSON form of a record (see packFormat).
func (t *Table) pack(doc []byte) []byte {
	w := t.compressors.Get().(*flate.Writer) //nolint:forcetypeassert // the pool contains only this type
	defer t.compressors.Put(w)
	b := bytes.NewBuffer([]byte{packFormat})
	w.Reset(b)
	_, _ = w.Write(doc) // a write to a buffer never fails
	_ = w.Close()
	return b.Bytes()
}

// maxDocument bounds the JSON form of a record. It is far above the size of any record.
const maxDocument = 400 << 10

// unpack returns the JSON form of a packed record. It returns an error if the JSON form has
// more than maxDocument bytes.
func unpack(packed []byte) ([]byte, error) {
	if len(packed) == 0 || packed[0] != packFormat {
		return nil, fmt.Errorf("%w: the record is not packed in a way that is known here", ledger.ErrCorrupt)
	}
	inflated := flate.NewReaderDict(bytes.NewReader(packed[1:]), []byte(dictionary))
	doc, err := io.ReadAll(io.LimitReader(inflated, maxDocument+1))
	if err == nil && len(doc) > maxDocument {
		err = fmt.Errorf("more than %d bytes", maxDocument)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: unpack record: %w", ledger.ErrCorrupt, err)
	}
	return doc, nil
}
