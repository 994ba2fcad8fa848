package testbed

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

func TestStart(t *testing.T) {
	t.Parallel()
	a, b := StartDynamo(t), StartDynamo(t)
	if a.URL == b.URL {
		t.Errorf("two servers at %s", a.URL)
	}
	store := a.Store(t)
	r := ledgertest.First("k")
	if existing, err := store.Create(t.Context(), r); existing != nil || err != nil {
		t.Fatalf("Create = %v, %v", existing, err)
	}
	if got, err := store.Fetch(t.Context(), "k"); err != nil || got == nil || got.WriteID != r.WriteID {
		t.Errorf("Fetch = %v, %v", got, err)
	}
	tables, err := dynamo.NewClient(b.ClientConfig()).ListTables(t.Context(), &dynamodb.ListTablesInput{})
	if err != nil || len(tables.TableNames) != 0 {
		t.Errorf("the other server has tables %v, %v; want none", tables, err)
	}
}

// The server of a test that is over does not answer any more.
func TestStartEnds(t *testing.T) {
	t.Parallel()
	var s Dynamo
	t.Run("inner", func(t *testing.T) { s = StartDynamo(t) })
	if s.URL == "" {
		t.Skip("the inner test was skipped")
	}
	if err := dynamo.EnsureTable(t.Context(), dynamo.NewClient(s.ClientConfig()), "t"); err == nil {
		t.Error("the server is still there")
	}
}
