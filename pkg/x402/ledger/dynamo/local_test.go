package dynamo_test

import (
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// TestOnDynamoDBLocal: the suites that every store passes, on DynamoDB Local, which
// shares its code with the service: it returns the old item with a failed condition
// as DynamoDB does, and charges for the index.
func TestOnDynamoDBLocal(t *testing.T) {
	t.Parallel()
	s := dynamotest.StartLocal(t)
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		ledgertest.Exercise(t, func(t *testing.T) ledger.Store { return newPlanter(t, s) })
	})
	t.Run("purchases", func(t *testing.T) {
		t.Parallel()
		ledgertest.ExercisePurchases(t, func(t *testing.T) ledger.Store { return newPlanter(t, s) })
	})
	t.Run("index", func(t *testing.T) {
		t.Parallel()
		ledgertest.ExerciseIndex(t, func(t *testing.T) (ledger.Store, ledger.Index) {
			client, table := dynamotable.NewClient(s.ClientConfig()), s.Table(t)
			return dynamo.New(dynamo.Config{API: client, Table: table, Timeout: time.Minute}),
				dynamo.NewIndex(dynamo.IndexConfig{API: client, Table: table, Timeout: time.Minute})
		})
	})
	t.Run("payers", func(t *testing.T) {
		t.Parallel()
		ledgertest.ExercisePayers(t, func(t *testing.T) (ledger.Store, ledger.Payers) {
			client, table := dynamotable.NewClient(s.ClientConfig()), s.Table(t)
			return dynamo.New(dynamo.Config{API: client, Table: table, Timeout: time.Minute}),
				dynamo.NewScan(dynamo.ScanConfig{API: client, Table: table})
		})
	})
	t.Run("write units", func(t *testing.T) {
		t.Parallel()
		checkWriteUnits(t, s)
	})
}
