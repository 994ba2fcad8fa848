package dynamo_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
)

// patience replaces the production time-out, which is not what is tested.
const patience = time.Minute

// peer is a table on a running server, reached through a proxy that counts the
// calls and loses replies.
type peer struct {
	client *dynamodb.Client // past the proxy
	front  *dynamodb.Client
	table  string

	mu    sync.Mutex
	calls map[string]int
	// lost is asked after the server has processed a call; when it returns true
	// the connection is closed without a reply.
	lost func(op string, n int) bool
}

var errLost = errors.New("lost on purpose")

func newPeer(t testing.TB, s dynamotest.Server) *peer {
	t.Helper()
	p := &peer{client: dynamo.NewClient(s.ClientConfig()), table: s.Table(t), calls: map[string]int{}}
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	proxy.ModifyResponse = func(res *http.Response) error {
		if p.count(res.Request) {
			return errLost
		}
		return nil
	}
	proxy.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, errLost) && !errors.Is(err, context.Canceled) {
			t.Errorf("proxy: %v", err)
		}
		panic(http.ErrAbortHandler) // closes the connection
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	p.front = dynamo.NewClient(dynamotest.Server{URL: front.URL}.ClientConfig())
	return p
}

func (p *peer) count(r *http.Request) (lose bool) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[op]++
	return p.lost != nil && p.lost(op, p.calls[op])
}

// loses loses the reply to the nth update from now on.
func (p *peer) loses(n int) {
	p.taken()
	p.lost = func(op string, i int) bool { return op == "UpdateItem" && i == n }
}

// taken returns the calls of each kind since the last time.
func (p *peer) taken() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := maps.Clone(p.calls)
	clear(p.calls)
	return calls
}

func (p *peer) store(t testing.TB) *dynamo.Limits {
	return dynamo.NewLimits(dynamo.Config{API: withOldItem{strictLimits{t, p.front}}, Table: p.table, Timeout: patience})
}

// plain is a Store that sees what the server answers, without old items.
func (p *peer) plain(t testing.TB) *dynamo.Limits {
	return dynamo.NewLimits(dynamo.Config{API: strictLimits{t, p.front}, Table: p.table, Timeout: patience})
}

func (p *peer) item(t *testing.T, pk string) map[string]types.AttributeValue {
	t.Helper()
	out, err := p.client.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &p.table, Key: map[string]types.AttributeValue{"pk": str(pk)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func (p *peer) put(t *testing.T, item map[string]types.AttributeValue) {
	t.Helper()
	if _, err := p.client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &p.table, Item: item}); err != nil {
		t.Fatal(err)
	}
}

func leasesOf(m map[string]types.AttributeValue) types.AttributeValue {
	return &types.AttributeValueMemberM{Value: m}
}

// withOldItem does what DynamoDB does and the server does not: it returns the
// old item with a failed condition when it is asked to.
type withOldItem struct{ dynamo.API }

func (w withOldItem) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	out, err := w.API.UpdateItem(ctx, in, o...)
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) && in.ReturnValuesOnConditionCheckFailure == types.ReturnValuesOnConditionCheckFailureAllOld {
		got, gone := w.API.GetItem(ctx, &dynamodb.GetItemInput{TableName: in.TableName, Key: in.Key, ConsistentRead: aws.Bool(true)})
		if gone != nil {
			return nil, gone
		}
		return nil, &types.ConditionalCheckFailedException{Message: failed.Message, Item: got.Item}
	}
	return out, err
}

// strictLimits is an API that fails the test on what DynamoDB would refuse and the
// server may not.
type strictLimits struct {
	t testing.TB
	dynamo.API
}

func (s strictLimits) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	condition, update := aws.ToString(in.ConditionExpression), aws.ToString(in.UpdateExpression)
	const most = 4096
	if len(condition) > most || len(update) > most {
		s.t.Errorf("expressions of %d and %d bytes, %d are possible", len(condition), len(update), most)
	}
	operators := strings.Count(condition, " AND ") + strings.Count(condition, " OR ") + strings.Count(condition, "(") +
		strings.Count(condition, "=") + strings.Count(condition, "<")
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

func (s strictLimits) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if !aws.ToBool(in.ConsistentRead) {
		s.t.Error("GetItem is not consistent")
	}
	return s.API.GetItem(ctx, in, o...)
}
