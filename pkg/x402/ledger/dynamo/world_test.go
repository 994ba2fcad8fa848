package dynamo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// testTimeout replaces the production time-out in the tests that do not test the time-out.
const testTimeout = time.Minute

var (
	noon      = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)
	exportAll = cmp.Exporter(func(reflect.Type) bool { return true })
)

type item = map[string]types.AttributeValue

func str(s string) types.AttributeValue    { return &types.AttributeValueMemberS{Value: s} }
func num(n string) types.AttributeValue    { return &types.AttributeValueMemberN{Value: n} }
func bin(b []byte) types.AttributeValue    { return &types.AttributeValueMemberB{Value: b} }
func set(s ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: s} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the error of a call that has one result besides the error; errOf3 does the
// same for two results.
func errOf[T any](_ T, err error) error { return err }

func errOf3[T, U any](_ T, _ U, err error) error { return err }

// world is a table on a server. It is also the HTTP client that the table uses. As that
// client, it records the calls and their charges, and can lose replies.
type world struct {
	*dynamo.Table
	t         *testing.T
	uncounted *dynamodb.Client // another client, whose calls are not counted
	client    aws.HTTPClient
	name      string

	mu      sync.Mutex
	charges charges
	// losesReply is called after the server has processed a call. op is the operation, and n
	// is how many calls of that operation there have been since the last call of takeCharges
	// or loseReplies. If losesReply returns true, the reply is lost.
	losesReply func(op string, n int) bool
}

// charges holds the number of calls of each operation, and the capacity units that the server
// says it has charged. tableUnits is the sum for the table, maxUnits is the largest charge for
// one call on the table, and indexUnits is the sum for the index. When a record's index keys
// change, DynamoDB charges the index for removing the old entry and for adding the new one.
// The server dynalite charges nothing for that.
type charges struct {
	calls                            map[string]int
	tableUnits, maxUnits, indexUnits float64
}

func newWorld(t *testing.T, s cloud.Dynamo) *world {
	t.Helper()
	c := s.Config()
	w := &world{t: t, uncounted: dynamo.NewClient(c), client: c.HTTPClient, name: s.Table(t)}
	c.HTTPClient = w
	w.Table, w.charges.calls = dynamo.New(dynamo.APIOf(dynamo.NewClient(c)), w.name), map[string]int{}
	w.Timeout = testTimeout
	return w
}

// put writes an item. The call is not counted.
func (w *world) put(it item) {
	w.t.Helper()
	_, err := w.uncounted.PutItem(w.t.Context(), &dynamodb.PutItemInput{TableName: &w.name, Item: it})
	must(w.t, err)
}

func (w *world) item(key string) item {
	w.t.Helper()
	out, err := w.uncounted.GetItem(w.t.Context(), &dynamodb.GetItemInput{TableName: &w.name, Key: item{"pk": str(key)}, ConsistentRead: aws.Bool(true)})
	must(w.t, err)
	return out.Item
}

// Plant implements ledgertest.Planter.
func (w *world) Plant(_ context.Context, key string, doc []byte) error {
	w.put(plantedItem(key, string(doc)))
	return nil
}

func plantedItem(key, doc string) item {
	return item{"pk": str(key), "version": num("1"), "write_id": str("w"), "state": str("settled"), "record": dynamo.Packed(doc)}
}

// takeCharges returns the calls and charges since the last call of takeCharges or loseReplies,
// and begins to count again.
func (w *world) takeCharges() charges {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.charges
	w.charges = charges{calls: map[string]int{}}
	return seen
}

// loseReplies sets which replies are lost from now on: those of the calls for which the given
// function returns true. The function gets the operation of a call, and how many calls of that
// operation there have been since loseReplies or takeCharges was last called, including this
// one. If the function is nil, no reply is lost.
func (w *world) loseReplies(which func(op string, n int) bool) {
	w.takeCharges()
	w.losesReply = which
}

// nth returns a function for loseReplies that selects the nth call of one operation.
func nth(kind string, nth int) func(op string, n int) bool {
	return func(op string, n int) bool { return op == kind && n == nth }
}

// Do implements aws.HTTPClient. It fails the test if a GetItem, or a Scan with a prefix, does
// not ask for a consistent read.
func (w *world) Do(req *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(req.Body)
	if reads := op == "GetItem" || bytes.Contains(body, []byte("begins_with")); reads && !bytes.Contains(body, []byte(`"ConsistentRead":true`)) {
		w.t.Errorf("a read that is not consistent: %s, %v", body, err)
	}
	body = append([]byte(`{"ReturnConsumedCapacity":"INDEXES",`), body[1:]...)
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	reply, err := io.ReadAll(res.Body)
	if lost := w.charge(op, reply); lost || err != nil {
		return nil, errors.Join(errors.New("the reply is lost"), err)
	}
	res.Body = io.NopCloser(bytes.NewReader(reply))
	return res, nil
}

// charge records a call and the capacity that its reply says was charged. It reports whether
// the reply is to be lost.
func (w *world) charge(op string, reply []byte) (lost bool) {
	type units struct{ CapacityUnits float64 }
	var charged struct {
		ConsumedCapacity struct {
			units
			GlobalSecondaryIndexes map[string]units
		}
	}
	if err := json.Unmarshal(reply, &charged); err != nil {
		w.t.Errorf("reply %s: %v", reply, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	table, index := charged.ConsumedCapacity.CapacityUnits, charged.ConsumedCapacity.GlobalSecondaryIndexes[dynamo.IndexName]
	table -= index.CapacityUnits
	w.charges.indexUnits += index.CapacityUnits
	w.charges.tableUnits += table
	w.charges.maxUnits = max(w.charges.maxUnits, table)
	w.charges.calls[op]++
	return w.losesReply != nil && w.losesReply(op, w.charges.calls[op])
}

// fake is an API whose calls return the item and the error of a function. PutItem returns only
// the error.
type fake func(ctx context.Context, op string) (item, error)

func (f fake) table() *dynamo.Table {
	return dynamo.New(dynamo.API{GetItem: f.GetItem, PutItem: f.PutItem, UpdateItem: f.UpdateItem, Query: f.Query, Scan: f.Scan}, "t")
}

func (f fake) PutItem(ctx context.Context, _ *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	_, err := f(ctx, "put")
	return &dynamodb.PutItemOutput{}, err
}

func (f fake) GetItem(ctx context.Context, _ *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	it, err := f(ctx, "get")
	return &dynamodb.GetItemOutput{Item: it}, err
}

func (f fake) UpdateItem(ctx context.Context, _ *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	it, err := f(ctx, "update")
	return &dynamodb.UpdateItemOutput{Attributes: it}, err
}

func (f fake) Query(ctx context.Context, _ *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	it, err := f(ctx, "query")
	return &dynamodb.QueryOutput{Items: []item{it}}, err
}

func (f fake) Scan(ctx context.Context, _ *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	it, err := f(ctx, "scan")
	return &dynamodb.ScanOutput{Items: []item{it}}, err
}
