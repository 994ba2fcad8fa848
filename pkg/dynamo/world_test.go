package dynamo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
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

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

var endpoint = flag.String("endpoint", "", "run against the DynamoDB at this URL (DynamoDB Local, say) instead of a server of our own")

func server(t *testing.T) dynamotest.Server {
	if *endpoint != "" {
		return dynamotest.Server{URL: *endpoint}
	}
	return dynamotest.Start(t)
}

// patience replaces the production time-out, which is not what is tested.
const patience = time.Minute

var (
	noon  = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)
	exact = cmp.Exporter(func(reflect.Type) bool { return true })
)

type item = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }
func bin(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
func leasesOf(m item) types.AttributeValue {
	return &types.AttributeValueMemberM{Value: m}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf and errOf3 are the errors of calls.
func errOf[T any](_ T, err error) error { return err }

func errOf3[T, U any](_ T, _ U, err error) error { return err }

// world is a table on a server, and a proxy before it that counts the calls and can
// do what the server does not: return the old item with a failed condition, and lose
// replies.
type world struct {
	t        *testing.T
	target   string
	direct   *dynamodb.Client // past the proxy
	front    *dynamodb.Client
	table    string
	withItem bool

	mu    sync.Mutex
	calls map[string]int
	// lost is asked after the server has processed a call; when it returns true the
	// connection is closed without a reply.
	lost func(op string, n int) bool
}

func newWorld(t *testing.T, s dynamotest.Server, withItem bool) *world {
	t.Helper()
	w := &world{t: t, target: s.URL, direct: dynamo.NewClient(s.ClientConfig()), table: s.Table(t), withItem: withItem, calls: map[string]int{}}
	front := httptest.NewServer(w)
	t.Cleanup(front.Close)
	w.front = dynamo.NewClient(dynamotest.Server{URL: front.URL}.ClientConfig())
	return w
}

func (w *world) config() dynamo.Config {
	return dynamo.Config{API: strict{w.t, w.front}, Table: w.table, Timeout: patience}
}

func (w *world) ledger() *dynamo.Ledger { return dynamo.NewLedger(w.config()) }

func (w *world) limits() *dynamo.Limits { return dynamo.NewLimits(w.config()) }

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
	status, header, reply := w.forward(req, op, body)
	if w.withItem && bytes.Contains(reply, []byte("ConditionalCheckFailedException")) {
		reply = w.addItem(req, body, reply)
		header.Del("X-Amz-Crc32") // of the reply without the item
	}
	if lost != nil && lost(op, n) {
		panic(http.ErrAbortHandler) // closes the connection
	}
	header.Del("Content-Length")
	maps.Copy(out.Header(), header)
	out.WriteHeader(status)
	_, _ = out.Write(reply) // the client may be gone
}

func (w *world) forward(req *http.Request, op string, body []byte) (int, http.Header, []byte) {
	out, err := http.NewRequest(http.MethodPost, w.target, bytes.NewReader(body))
	w.check(err)
	out.Header = req.Header.Clone()
	out.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	res, err := http.DefaultClient.Do(out)
	w.check(err)
	defer func() { _ = res.Body.Close() }()
	reply, err := io.ReadAll(res.Body)
	w.check(err)
	return res.StatusCode, res.Header, reply
}

// addItem does for a failed condition what DynamoDB does when it is asked.
func (w *world) addItem(req *http.Request, body, reply []byte) []byte {
	var write struct {
		TableName                           string
		Item, Key                           map[string]json.RawMessage
		ReturnValuesOnConditionCheckFailure string
	}
	w.check(json.Unmarshal(body, &write))
	if write.ReturnValuesOnConditionCheckFailure != "ALL_OLD" {
		return reply
	}
	key := write.Key
	if key == nil {
		key = map[string]json.RawMessage{"pk": write.Item["pk"]}
	}
	get, err := json.Marshal(map[string]any{"TableName": write.TableName, "ConsistentRead": true, "Key": key})
	w.check(err)
	_, _, got := w.forward(req, "GetItem", get)
	var failure map[string]json.RawMessage
	var found struct{ Item json.RawMessage }
	w.check(json.Unmarshal(reply, &failure))
	w.check(json.Unmarshal(got, &found))
	if found.Item == nil {
		return reply // nothing was there
	}
	failure["Item"] = found.Item
	full, err := json.Marshal(failure)
	w.check(err)
	return full
}

// strict is an API that fails the test on a call that no store may make, and on what
// DynamoDB would refuse and the server may not.
type strict struct {
	t *testing.T
	dynamo.API
}

func (s strict) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if c := aws.ToString(in.ConditionExpression); c != "attribute_not_exists(pk)" && c != "version = :read" {
		s.t.Errorf("PutItem with condition %q", c)
	}
	if in.ReturnValuesOnConditionCheckFailure != types.ReturnValuesOnConditionCheckFailureAllOld {
		s.t.Error("PutItem does not ask for the old item")
	}
	return s.API.PutItem(ctx, in, o...)
}

func (s strict) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	condition, update := aws.ToString(in.ConditionExpression), aws.ToString(in.UpdateExpression)
	if len(condition) > 4096 || len(update) > 4096 {
		s.t.Errorf("expressions of %d and %d bytes, 4,096 are possible", len(condition), len(update))
	}
	operators := 0
	for _, operator := range []string{" AND ", " OR ", "(", "=", "<"} {
		operators += strings.Count(condition, operator)
	}
	if operators > 300 {
		s.t.Errorf("%d operators, 300 are possible: %s", operators, condition)
	}
	for name := range in.ExpressionAttributeNames {
		if !strings.Contains(condition+update, name) {
			s.t.Errorf("name %s is not used", name)
		}
	}
	for value := range in.ExpressionAttributeValues {
		if !strings.Contains(condition+update, value) {
			s.t.Errorf("value %s is not used", value)
		}
	}
	return s.API.UpdateItem(ctx, in, o...)
}

func (s strict) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if !aws.ToBool(in.ConsistentRead) {
		s.t.Error("GetItem is not consistent")
	}
	return s.API.GetItem(ctx, in, o...)
}

// fake is an API of functions. A call of one that is not there panics.
type fake struct {
	put    func() error
	get    func(context.Context) (item, error)
	update func() (item, error)
	query  func(ctx context.Context, partition string, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error)
	scan   func(*dynamodb.ScanInput) (*dynamodb.ScanOutput, error)
}

func (f fake) config() dynamo.Config { return dynamo.Config{API: f, Table: "t"} }

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
	return f.query(ctx, in.ExpressionAttributeValues[":open"].(*types.AttributeValueMemberS).Value, in) //nolint:forcetypeassert // a failed test
}

func (f fake) Scan(_ context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	return f.scan(in)
}
