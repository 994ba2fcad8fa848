package dynamo_test

import (
	"context"
	"errors"
	"flag"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

var endpoint = flag.String("endpoint", "", "run against the DynamoDB at this URL (DynamoDB Local, say) instead of a server of our own")

func server(t testing.TB) dynamotest.Server {
	if *endpoint != "" {
		return dynamotest.Server{URL: *endpoint}
	}
	return dynamotest.Start(t)
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
	*dynamo.Store
	client *dynamodb.Client
	table  string
}

var _ ledgertest.Planter = planter{}

func newPlanter(t *testing.T, s dynamotest.Server) planter {
	client, table := dynamotable.NewClient(s.ClientConfig()), s.Table(t)
	store := dynamo.New(dynamo.Config{API: strict{t, client}, Table: table, Timeout: time.Minute})
	return planter{Store: store, client: client, table: table}
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

// The server returns no old items; the proxy adds them, as DynamoDB does.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := server(t)
	t.Run("without the old item", func(t *testing.T) {
		t.Parallel()
		ledgertest.Exercise(t, func(t *testing.T) ledger.Store { return newPlanter(t, s) })
	})
	t.Run("purchases", func(t *testing.T) {
		t.Parallel()
		ledgertest.ExercisePurchases(t, func(t *testing.T) ledger.Store { return newPlanter(t, s) })
	})
	t.Run("with the old item", func(t *testing.T) {
		t.Parallel()
		ledgertest.Exercise(t, func(t *testing.T) ledger.Store {
			return newPlanter(t, (&proxy{withItem: true}).start(t, s))
		})
	})
}

func TestIndexConformance(t *testing.T) {
	t.Parallel()
	s := server(t)
	for name, pages := range map[string]int32{"in one page": 0, "in pages of 3": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ledgertest.ExerciseIndex(t, func(t *testing.T) (ledger.Store, ledger.Index) {
				client, table := dynamotable.NewClient(s.ClientConfig()), s.Table(t)
				api := &querier{QueryAPI: client, page: pages}
				return dynamo.New(dynamo.Config{API: client, Table: table, Timeout: time.Minute}),
					dynamo.NewIndex(dynamo.IndexConfig{API: api, Table: table, Timeout: time.Minute})
			})
		})
	}
}

func TestPayersConformance(t *testing.T) {
	t.Parallel()
	s := server(t)
	for name, page := range map[string]int32{"in one page": 0, "in pages of 3": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ledgertest.ExercisePayers(t, func(t *testing.T) (ledger.Store, ledger.Payers) {
				client, table := dynamotable.NewClient(s.ClientConfig()), s.Table(t)
				return dynamo.New(dynamo.Config{API: client, Table: table, Timeout: time.Minute}),
					dynamo.NewScan(dynamo.ScanConfig{API: client, Table: table, Page: page})
			})
		})
	}
}

func TestRowsConformance(t *testing.T) {
	t.Parallel()
	s := server(t)
	for name, page := range map[string]int32{"in one page": 0, "in pages of 3": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ledgertest.ExerciseRows(t, func(t *testing.T) (ledger.Store, ledger.Rows) {
				p := newPlanter(t, s)
				return p, dynamo.NewScan(dynamo.ScanConfig{API: p.client, Table: p.table, Page: page})
			})
		})
	}
}

func TestItem(t *testing.T) {
	t.Parallel()
	p := newPlanter(t, server(t))
	full, bare := ledgertest.Full("full"), ledgertest.First("bare")
	bare.ExpiresAt = time.Time{}
	owed := ledgertest.First("owed")
	owed.State, owed.LeaseUntil, owed.ExpiresAt = ledger.Settled, owed.LeaseUntil.Add(time.Nanosecond), time.Time{}
	for _, r := range []ledger.Record{full, bare, owed} {
		if existing, err := p.Create(t.Context(), r); existing != nil || err != nil {
			t.Fatalf("Create = %v, %v", existing, err)
		}
		doc, body, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
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

// An item whose attributes and record disagree is corrupt, whatever reads it.
func TestCorruptItem(t *testing.T) {
	t.Parallel()
	s := server(t)
	direct := newPlanter(t, s)
	withItem := dynamo.New(dynamo.Config{
		API: dynamotable.NewClient((&proxy{withItem: true}).start(t, s).ClientConfig()), Table: direct.table, Timeout: time.Minute,
	})
	for name, spoil := range map[string]func(item map[string]types.AttributeValue){
		"another version":  func(it map[string]types.AttributeValue) { it["version"] = num("2") },
		"half a version":   func(it map[string]types.AttributeValue) { it["version"] = num("1.5") },
		"a huge version":   func(it map[string]types.AttributeValue) { it["version"] = num("1e30") },
		"version as text":  func(it map[string]types.AttributeValue) { it["version"] = str("1") },
		"no version":       func(it map[string]types.AttributeValue) { delete(it, "version") },
		"another write id": func(it map[string]types.AttributeValue) { it["write_id"] = str("v") },
		"no write id":      func(it map[string]types.AttributeValue) { delete(it, "write_id") },
		"another state":    func(it map[string]types.AttributeValue) { it["state"] = str("redeemed") },
		"no state":         func(it map[string]types.AttributeValue) { delete(it, "state") },
		"no record":        func(it map[string]types.AttributeValue) { delete(it, "record") },
		"record as bytes": func(it map[string]types.AttributeValue) {
			it["record"] = &types.AttributeValueMemberB{Value: []byte("{}")}
		},
		"record of another":   func(it map[string]types.AttributeValue) { it["record"] = str(sound("x")) },
		"answer as text":      func(it map[string]types.AttributeValue) { it["answer"] = str("x") },
		"answer that is null": func(it map[string]types.AttributeValue) { it["answer"] = &types.AttributeValueMemberNULL{Value: true} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			item := attributes(name, sound(name))
			if err := direct.put(t.Context(), item); err != nil {
				t.Fatal(err)
			}
			if r, err := direct.Fetch(t.Context(), name); err != nil || r == nil {
				t.Fatalf("Fetch of the sound item = %v, %v", r, err)
			}
			spoil(item)
			if err := direct.put(t.Context(), item); err != nil {
				t.Fatal(err)
			}
			for _, store := range []*dynamo.Store{direct.Store, withItem} {
				if r, err := store.Fetch(t.Context(), name); r != nil || !errors.Is(err, ledger.ErrCorrupt) {
					t.Errorf("Fetch = %v, %v; want ErrCorrupt", r, err)
				}
				if r, err := store.Create(t.Context(), ledgertest.First(name)); r != nil || !errors.Is(err, ledger.ErrCorrupt) {
					t.Errorf("Create = %v, %v; want ErrCorrupt", r, err)
				}
				late := ledgertest.First(name)
				late.Version = 9
				if err := store.Replace(t.Context(), late); !errors.Is(err, ledger.ErrCorrupt) {
					t.Errorf("Replace = %v, want ErrCorrupt", err)
				}
			}
		})
	}
}

// sound is the record that attributes describes.
func sound(key string) string {
	return `{"key":"` + key + `","version":1,"write_id":"w","state":"settled"}`
}

func holds(t *testing.T, s ledger.Store, want ledger.Record) {
	t.Helper()
	got, err := s.Fetch(t.Context(), want.Key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

func BenchmarkCreate(b *testing.B)  { ledgertest.BenchCreate(b, server(b).Store(b)) }
func BenchmarkReplace(b *testing.B) { ledgertest.BenchReplace(b, server(b).Store(b)) }
