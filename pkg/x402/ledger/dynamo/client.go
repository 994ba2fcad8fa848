package dynamo

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

const (
	// DefaultAttemptTimeout bounds one attempt to send a request and read its reply. On a
	// connection that has died without a sign, no reply comes. The time is short, so that a
	// second attempt still fits into DefaultTimeout.
	DefaultAttemptTimeout = 700 * time.Millisecond

	// idleTimeout is how long an idle connection is kept. It is short because Lambda freezes
	// the process between two invocations, and a connection that was idle during the freeze is
	// dead.
	idleTimeout = 5 * time.Second
	// maxReply bounds a reply, in bytes. An item has at most 400 KB, and maxReply is far above
	// the size of such an item in JSON.
	maxReply = 4 << 20
	// maxIdle is how many idle connections are kept, enough for a burst of concurrent calls.
	maxIdle = 64
)

// Open checks the table with the given name or ARN (see Check) and returns it. c has the
// region, the credentials and the endpoint; config.LoadDefaultConfig of the AWS SDK finds
// them. Open creates nothing. The only option is Keep.
//
// Open needs the permissions dynamodb:DescribeTable and DescribeTimeToLive; the Table needs
// GetItem, PutItem and UpdateItem. Lists of records need two more permissions: List needs
// Query on the index, and Page needs Scan.
func Open(ctx context.Context, c aws.Config, table string, options ...Option) (*Table, error) {
	if c.Region == "" {
		return nil, errors.New("dynamo: no AWS region is configured; AWS_REGION names one")
	}
	var set settings
	for _, option := range options {
		option(&set)
	}
	kept := cmp.Or(set.mostKept, DefaultKept)
	if kept < 0 || kept > LargestKept {
		return nil, fmt.Errorf("dynamo: Keep(%d) is more than a table can keep of an answer: at most %d bytes fit beside the rest of its record",
			kept, LargestKept)
	}
	c.HTTPClient = nil // NewClient then sets an HTTP client with time-outs; the one in c, which found the credentials, has none
	client := NewClient(c)
	if err := Check(ctx, client, table); err != nil {
		return nil, err
	}
	t := New(APIOf(client), table)
	t.mostKept = kept
	return t, nil
}

// Option is a setting of Open.
type Option func(*settings)

type settings struct {
	mostKept int
}

// Keep sets the size of the largest answer that the table keeps, in bytes of the answer's
// compressed body. The default is DefaultKept. Open refuses more than LargestKept.
func Keep(bytes int) Option {
	return func(s *settings) { s.mostKept = bytes }
}

// NewClient returns a client of DynamoDB that sends a request at most twice. If c has no HTTP
// client, NewClient sets one that has the time-outs of a Table and uses no proxy from the
// environment.
//
// If the reply to a write was lost, the second attempt fails because the first has succeeded.
// The Table then recognizes the stored write by its id.
func NewClient(c aws.Config) *dynamodb.Client {
	if c.HTTPClient == nil {
		c.HTTPClient = HTTPClient(DefaultAttemptTimeout, maxReply, idleTimeout)
	}
	c.Retryer = newRetryer
	// Use the host name of the region. The host name of an account would be one more name to
	// resolve, and only some credentials know their account.
	return dynamodb.NewFromConfig(c, func(o *dynamodb.Options) {
		o.AccountIDEndpointMode = aws.AccountIDEndpointModeDisabled
	})
}

// newRetryer returns a retryer that sends a request at most twice.
func newRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 2
		o.Backoff = retry.BackoffDelayerFunc(backoff)
	})
}

// backoff returns a random pause before the second attempt, so that many clients do not repeat
// their requests at the same time.
func backoff(int, error) (time.Duration, error) {
	return 25*time.Millisecond + rand.N(50*time.Millisecond), nil
}

// Check returns an error if a table cannot be used as a Table: it does not exist, or its key,
// its index or its TTL is missing or wrong. It does not check the TTL if the server does not
// support TTL.
func Check(ctx context.Context, client *dynamodb.Client, table string) error {
	described, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	_, missing := errors.AsType[*types.ResourceNotFoundException](err)
	switch {
	case missing:
		return fmt.Errorf("dynamo: there is no table %s; create it with the partition key %s (S), the index %s over %s (S) and %s (N) with keys only, and TTL on %s",
			table, AttrKey, IndexName, AttrOpen, AttrLeaseUntil, AttrExpiresAt)
	case err != nil:
		return fmt.Errorf("dynamo: describe table %s: %w", table, err)
	case !reflect.DeepEqual(described.Table.KeySchema, keys(AttrKey)):
		return fmt.Errorf("dynamo: table %s has another key than %s", table, AttrKey)
	case !hasIndex(described.Table):
		return fmt.Errorf("dynamo: table %s has no index %s over %s and %s", table, IndexName, AttrOpen, AttrLeaseUntil)
	}
	deletes, err := deletesOldItems(ctx, client, table)
	if err != nil {
		return err
	}
	if !deletes {
		return fmt.Errorf("dynamo: table %s does not delete old items: turn on its TTL, on the attribute %s", table, AttrExpiresAt)
	}
	return nil
}

// hasIndex reports whether a table has the index that a Table needs.
func hasIndex(table *types.TableDescription) bool {
	for _, index := range table.GlobalSecondaryIndexes {
		named := aws.ToString(index.IndexName) == IndexName
		if named && reflect.DeepEqual(index.KeySchema, keys(AttrOpen, AttrLeaseUntil)) {
			return true
		}
	}
	return false
}

// deletesOldItems reports whether a table's TTL is on, for the attribute AttrExpiresAt. It
// reports true if the server does not support TTL.
func deletesOldItems(ctx context.Context, client *dynamodb.Client, table string) (bool, error) {
	ttl, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	switch {
	case isUnknown(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("dynamo: describe the TTL of table %s: %w", table, err)
	}
	description := ttl.TimeToLiveDescription
	if description == nil || aws.ToString(description.AttributeName) != AttrExpiresAt {
		return false, nil
	}
	status := description.TimeToLiveStatus
	return status == types.TimeToLiveStatusEnabled || status == types.TimeToLiveStatusEnabling, nil
}

// Create creates a table with the given name and its index, unless a table of that name
// exists. In both cases it waits until the table is active, and turns on the table's TTL if
// that is off. Open accepts a table that Create has created. In production a program never
// creates the table: the deployment creates it, with its backups and its protection.
func Create(ctx context.Context, client *dynamodb.Client, table string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   &table,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema:   keys(AttrKey),
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(AttrKey), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(AttrOpen), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(AttrLeaseUntil), AttributeType: types.ScalarAttributeTypeN},
		},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName:  aws.String(IndexName),
			KeySchema:  keys(AttrOpen, AttrLeaseUntil),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}},
	})
	if _, there := errors.AsType[*types.ResourceInUseException](err); err != nil && !there {
		return fmt.Errorf("dynamo: create table %s: %w", table, err)
	}
	wait := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay = 20 * time.Millisecond
		o.MaxDelay = time.Second
	})
	if err := wait.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, time.Minute); err != nil {
		return fmt.Errorf("dynamo: wait for table %s: %w", table, err)
	}
	deletes, err := deletesOldItems(ctx, client, table)
	if err != nil || deletes {
		return err
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(AttrExpiresAt),
			Enabled:       aws.Bool(true),
		},
	})
	if err != nil && !isUnknown(err) {
		return fmt.Errorf("dynamo: turn on the TTL of table %s: %w", table, err)
	}
	return nil
}

// isUnknown reports whether an error says that the server does not support the operation.
func isUnknown(err error) bool {
	apiError, ok := errors.AsType[smithy.APIError](err)
	return ok && apiError.ErrorCode() == "UnknownOperationException"
}

// keys returns a key schema with a partition key and, if sort is given, a sort key.
func keys(partition string, sort ...string) []types.KeySchemaElement {
	schema := []types.KeySchemaElement{
		{AttributeName: &partition, KeyType: types.KeyTypeHash},
	}
	for _, attribute := range sort {
		schema = append(schema, types.KeySchemaElement{
			AttributeName: &attribute,
			KeyType:       types.KeyTypeRange,
		})
	}
	return schema
}

// HTTPClient returns an HTTP client for a client of the AWS SDK. The HTTP client ends an
// attempt after the given time, which includes the time to connect. It accepts replies of at
// most maxReply bytes. It closes a connection that has been idle for the time idle; if idle is
// 0, it keeps no connection. The idle time is measured by the wall clock, which runs on while
// Lambda freezes the process. The HTTP client uses no proxy from the environment and follows
// no redirect.
func HTTPClient(attempt time.Duration, maxReply int64, idle time.Duration) *http.Client {
	dialer := &net.Dialer{
		Timeout:   attempt,
		KeepAlive: -1, // no TCP keep-alives: no connection is idle long enough to need them
	}
	transport := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: attempt,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(4), // makes connecting after a freeze cheaper
		},
		MaxIdleConns:        maxIdle,
		MaxIdleConnsPerHost: maxIdle,
		IdleConnTimeout:     idle,
		DisableKeepAlives:   idle == 0,
		DisableCompression:  true,
	}
	return &http.Client{
		Transport: attempts{
			next:     transport,
			timeout:  attempt,
			maxReply: maxReply,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// attempts limits the time of each attempt. It reads the whole reply, so that an incomplete
// reply counts as a failed attempt, which the SDK repeats. After a failed attempt it closes
// all idle connections: they may all have died during a freeze, and the second attempt must
// not wait on a dead connection.
type attempts struct {
	next     *http.Transport
	timeout  time.Duration
	maxReply int64
}

func (a attempts) RoundTrip(req *http.Request) (_ *http.Response, err error) {
	defer func() {
		if err != nil {
			a.next.CloseIdleConnections()
		}
	}()
	ctx, cancel := context.WithTimeout(req.Context(), a.timeout)
	defer cancel()
	res, err := a.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.ContentLength > a.maxReply {
		return nil, a.tooLongError()
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, a.maxReply+1))
	if err != nil {
		return nil, fmt.Errorf("read the reply: %w", err)
	}
	if int64(len(body)) > a.maxReply {
		return nil, a.tooLongError()
	}
	out := *res
	out.Body = io.NopCloser(bytes.NewReader(body))
	return &out, nil
}

func (a attempts) tooLongError() error {
	return fmt.Errorf("a reply of more than %d bytes", a.maxReply)
}
