package dynamo_test

import (
	"context"
	"flag"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

var endpoint = flag.String("endpoint", "", "run against the DynamoDB at this URL (DynamoDB Local, say) instead of a server of our own")

func server(t testing.TB) dynamotest.Server {
	if *endpoint != "" {
		return dynamotest.Server{URL: *endpoint}
	}
	return dynamotest.Start(t)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// strict is an API that fails the test on a call that a Store must not make.
type strict struct {
	t *testing.T
	dynamo.API
}

func (s strict) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	condition := aws.ToString(in.ConditionExpression)
	if condition != "attribute_not_exists(pk)" && condition != "version = :read" {
		s.t.Errorf("PutItem with condition %q", condition)
	}
	if in.ReturnValuesOnConditionCheckFailure != types.ReturnValuesOnConditionCheckFailureAllOld {
		s.t.Error("PutItem does not ask for the old item")
	}
	return s.API.PutItem(ctx, in, o...)
}

func (s strict) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if !aws.ToBool(in.ConsistentRead) {
		s.t.Error("GetItem is not consistent")
	}
	return s.API.GetItem(ctx, in, o...)
}

// planter is a Store on a table that can be written behind its back.
type planter struct {
	*dynamo.Ledger
	client *dynamodb.Client
	table  string
}

var _ ledgertest.Planter = whole{}

func newPlanter(t *testing.T, s dynamotest.Server) planter {
	client, table := dynamo.NewClient(s.ClientConfig()), s.Table(t)
	store := dynamo.NewLedger(dynamo.Config{API: strict{t, client}, Table: table, Timeout: time.Minute})
	return planter{Ledger: store, client: client, table: table}
}

func (p planter) Plant(ctx context.Context, key string, doc []byte) error {
	return p.put(ctx, attributes(key, string(doc)))
}

func (p planter) put(ctx context.Context, item map[string]types.AttributeValue) error {
	_, err := p.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &p.table, Item: item})
	return err
}

func attributes(key, doc string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"pk": str(key), "version": num("1"), "write_id": str("w"), "state": str("settled"), "record": str(doc),
	}
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }

// whole is a planter with the views of its store, which read pages of one size; 0 is
// the usual one.
type whole struct {
	planter
	*dynamo.Index
	*dynamo.Scan
}

func newWhole(t *testing.T, s dynamotest.Server, page int32) ledgertest.Planter {
	p := newPlanter(t, s)
	return whole{
		planter: p,
		Index:   dynamo.NewIndex(dynamo.Config{API: querier{p.client, page}, Table: p.table, Timeout: time.Minute}),
		Scan:    dynamo.NewScan(dynamo.ScanConfig{API: p.client, Table: p.table, Page: page}),
	}
}

// The server returns no old items; the proxy adds them, as DynamoDB does.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := server(t)
	t.Run("without the old item, in one page", func(t *testing.T) {
		t.Parallel()
		ledgertest.Exercise(t, func(t *testing.T) ledgertest.Planter { return newWhole(t, s, 0) })
	})
	t.Run("with the old item, in pages of 3", func(t *testing.T) {
		t.Parallel()
		ledgertest.Exercise(t, func(t *testing.T) ledgertest.Planter {
			return newWhole(t, (&proxy{withItem: true}).start(t, s), 3)
		})
	})
}

func TestItem(t *testing.T) {
	t.Parallel()
	p := newPlanter(t, server(t))
	full, bare := ledgertest.Full("full"), ledgertest.First("bare")
	bare.ExpiresAt = time.Time{}
	owed := ledgertest.First("owed")
	owed.State, owed.LeaseUntil, owed.ExpiresAt = ledger.Settled, owed.LeaseUntil.Add(time.Nanosecond), time.Time{}
	for _, r := range []ledger.Record{full, bare, owed} {
		ledgertest.MustCreate(t, p, r)
		doc, body, err := r.Marshal()
		must(t, err)
		want := map[string]types.AttributeValue{
			"pk": str(r.Key), "version": num("1"), "write_id": str(r.WriteID),
			"state": str(string(r.State)),
		}
		if r.Key == "full" {
			want["answer"] = &types.AttributeValueMemberB{Value: body}
			want["expires_at"] = num("1793534407") // 2026-11-01T12:00:07Z
		}
		switch r.Key {
		case "bare":
			want["open"], want["lease_until"] = str("open#13"), num("1793534430000") // 12:00:30
		case "owed":
			want["open"], want["lease_until"] = str("open#10"), num("1793534430001") // and a nanosecond
		}
		out, err := p.client.GetItem(t.Context(), &dynamodb.GetItemInput{
			TableName: &p.table, Key: map[string]types.AttributeValue{"pk": str(r.Key)},
		})
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := dynamo.Unpack(out.Item["record"])
		if string(unpacked) != string(doc) || err != nil {
			t.Errorf("record %s, %v; want %s", unpacked, err, doc)
		}
		delete(out.Item, "record")
		if diff := cmp.Diff(want, out.Item, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("item (-want +got):\n%s", diff)
		}
	}
}

// sound is the record that attributes describes.
func sound(key string) string {
	return `{"key":"` + key + `","version":1,"write_id":"w","state":"settled"}`
}


// TestOnDynamoDBLocal: the suites that every store passes, on DynamoDB Local, which
// shares its code with the service: it returns the old item with a failed condition
// as DynamoDB does, and charges for the index.
func TestOnDynamoDBLocal(t *testing.T) {
	t.Parallel()
	s := dynamotest.StartLocal(t)
	t.Run("conformance", func(t *testing.T) {
		t.Parallel()
		ledgertest.Exercise(t, func(t *testing.T) ledgertest.Planter { return newWhole(t, s, 0) })
	})
	t.Run("write units", func(t *testing.T) {
		t.Parallel()
		checkWriteUnits(t, s)
	})
}
