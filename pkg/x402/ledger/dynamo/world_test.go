package dynamo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// patience replaces the production time-out, which is not what is tested.
const patience = time.Minute

var (
	noon  = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)
	exact = cmp.Exporter(func(reflect.Type) bool { return true })
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

// errOf and errOf3 are the errors of calls.
func errOf[T any](_ T, err error) error { return err }

func errOf3[T, U any](_ T, _ U, err error) error { return err }

// world is a table on a server, and a proxy before it that counts the calls and what they
// are charged, and loses replies.
type world struct {
	*dynamo.Table // behind the proxy
	t             *testing.T
	target        string
	direct        *dynamodb.Client // past the proxy
	front         *dynamodb.Client
	table         string

	mu    sync.Mutex
	calls map[string]int
	// units are what the server says it has charged for the table, and for its index,
	// which DynamoDB charges for what leaves it and for what comes whenever the keys
	// change that it lists a record by. Dynalite charges nothing for an index.
	units, index, most float64
	// lost is asked after the server has processed a call; when it returns true the
	// connection is closed without a reply.
	lost func(op string, n int) bool
}

func newWorld(t *testing.T, s testbed.Dynamo) *world {
	t.Helper()
	w := &world{t: t, target: s.URL, direct: dynamo.NewClient(s.Config()), table: s.Table(t), calls: map[string]int{}}
	front := httptest.NewServer(w)
	t.Cleanup(front.Close)
	w.front = dynamo.NewClient(testbed.Dynamo{URL: front.URL}.Config())
	w.Table = w.over(w.front)
	return w
}

// over is the table, behind an API.
func (w *world) over(api dynamo.API) *dynamo.Table {
	t := dynamo.New(api, w.table)
	t.Timeout = patience
	return t
}

// put writes an item behind the back of the stores, and item reads one.
func (w *world) put(it item) {
	w.t.Helper()
	_, err := w.direct.PutItem(w.t.Context(), &dynamodb.PutItemInput{TableName: &w.table, Item: it})
	must(w.t, err)
}

func (w *world) item(key string) item {
	w.t.Helper()
	out, err := w.direct.GetItem(w.t.Context(), &dynamodb.GetItemInput{TableName: &w.table, Key: item{"pk": str(key)}, ConsistentRead: aws.Bool(true)})
	must(w.t, err)
	return out.Item
}

// took returns the calls of each kind since the last time.
func (w *world) took() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = map[string]int{}
	return calls
}

// loses loses replies from now on; the calls are counted from here. nil loses none.
func (w *world) loses(which func(op string, n int) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.calls = which, map[string]int{}
}

// nth is the nth call of a kind.
func nth(kind string, nth int) func(op string, n int) bool {
	return func(op string, n int) bool { return op == kind && n == nth }
}

// check ends a call on an error of the proxy's own.
func (w *world) check(err error) {
	if err != nil {
		w.t.Errorf("proxy: %v", err)
		panic(http.ErrAbortHandler)
	}
}

func (w *world) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	w.mu.Lock()
	w.calls[op]++
	n, lost := w.calls[op], w.lost
	w.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	w.check(err)
	if reads := op == "GetItem" || bytes.Contains(body, []byte("begins_with")); reads && !bytes.Contains(body, []byte(`"ConsistentRead":true`)) {
		w.t.Errorf("a read that is not consistent: %s", body)
	}
	body = append([]byte(`{"ReturnConsumedCapacity":"INDEXES",`), body[1:]...)
	// The server processes it even when the client has gone.
	forward, err := http.NewRequest(http.MethodPost, w.target, bytes.NewReader(body))
	w.check(err)
	forward.Header = req.Header
	res, err := http.DefaultClient.Do(forward)
	w.check(err)
	defer func() { _ = res.Body.Close() }()
	reply, err := io.ReadAll(res.Body)
	w.check(err)
	w.charge(reply)
	if lost != nil && lost(op, n) {
		panic(http.ErrAbortHandler) // closes the connection
	}
	maps.Copy(out.Header(), res.Header)
	out.WriteHeader(res.StatusCode)
	_, _ = out.Write(reply) // the client may be gone
}

func (w *world) charge(reply []byte) {
	type units struct{ CapacityUnits float64 }
	var charged struct {
		ConsumedCapacity struct {
			units
			GlobalSecondaryIndexes map[string]units
		}
	}
	w.check(json.Unmarshal(reply, &charged))
	w.mu.Lock()
	defer w.mu.Unlock()
	all := charged.ConsumedCapacity.CapacityUnits
	for _, x := range charged.ConsumedCapacity.GlobalSecondaryIndexes {
		w.index += x.CapacityUnits
		all -= x.CapacityUnits
	}
	w.units += all
	w.most = max(w.most, all)
}

// spent is what was charged since the last time, in how many calls, and for one of them
// at most.
func (w *world) spent() (units, index, most float64, calls int) {
	for _, n := range w.took() {
		calls += n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	units, index, most = w.units, w.index, w.most
	w.units, w.index, w.most = 0, 0, 0
	return units, index, most, calls
}

// fake is an API of functions. A call of one that is not there panics.
type fake struct {
	put    func() error
	get    func(context.Context) (item, error)
	update func() (item, error)
	query  func(ctx context.Context, partition string) (*dynamodb.QueryOutput, error)
	scan   func() (*dynamodb.ScanOutput, error)
}

func (f fake) table() *dynamo.Table { return dynamo.New(f, "t") }

func (f fake) PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return &dynamodb.PutItemOutput{}, f.put()
}

func (f fake) GetItem(ctx context.Context, _ *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	it, err := f.get(ctx)
	return &dynamodb.GetItemOutput{Item: it}, err
}

func (f fake) UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	it, err := f.update()
	return &dynamodb.UpdateItemOutput{Attributes: it}, err
}

func (f fake) Query(ctx context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return f.query(ctx, in.ExpressionAttributeValues[":open"].(*types.AttributeValueMemberS).Value) //nolint:forcetypeassert // a failed test
}

func (f fake) Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	return f.scan()
}
