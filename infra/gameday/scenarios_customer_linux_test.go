package gameday

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/limit"
	limitdynamo "github.com/hostfacts/hostfacts/pkg/limit/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// customerScenarios are those that customers can cause, or a single record: nobody
// is woken.
func customerScenarios() []scenario {
	return []scenario{{
		name: "customers ask about domains that say nothing", ops: []string{"dns"}, payers: several, together: true, stable: true,
		breaks: func(w *world, _ []*payer) error { w.resolvers.silent.Store(true); return nil },
		mends:  func(w *world) error { w.resolvers.silent.Store(false); return nil },
		sees:   owedWith(timeouts()),
		fires:  []string{"owed"},
	}, {
		name: "all places of an operation are taken", ops: []string{"host-intel"}, payers: several, stable: true,
		breaks: func(w *world, _ []*payer) error { return w.takePlaces("host-intel", bundlePlaces) },
		mends:  func(w *world) error { return w.leavePlaces("host-intel", bundlePlaces) },
		sees:   everybody(refusal(fault.Overloaded, "false", "true")),
		fires:  []string{"overloaded"},
	}, {
		name: "a record cannot be dealt with", ops: []string{"ping"}, payers: 1, rounds: 2, stable: true,
		breaks: func(w *world, _ []*payer) error { return w.strangeRecord() },
		mends:  func(w *world) error { return w.forget(strangeKey) },
		fires:  []string{"reconcile-failing"},
	}}
}

// bundlePlaces are the places of a bundle, by the template's default.
const bundlePlaces = 20

// places are leases of clients who are not there.
func places(n int) []limit.Lease {
	var all []limit.Lease
	for i := range n {
		all = append(all, limit.Lease{ID: fmt.Sprintf("%04d-elsewhere", i), Until: time.Unix(4_000_000_000, 0)})
	}
	return all
}

func (w *world) limits() *limitdynamo.Store {
	return limitdynamo.New(limitdynamo.Config{API: dynamotable.NewClient(w.db.ClientConfig()), Table: w.name, Timeout: patience})
}

// takePlaces takes every place of an operation.
func (w *world) takePlaces(operation string, n int) error {
	for _, l := range places(n) {
		if _, ok, err := w.limits().Acquire(w.Context(), operation, l, n); err != nil || !ok {
			return fmt.Errorf("a place is not free: %w", err)
		}
	}
	return nil
}

// leavePlaces gives them back.
func (w *world) leavePlaces(operation string, n int) error {
	return w.limits().Remove(w.Context(), operation, places(n)...)
}

// strangeKey is the key of a record that nobody can read the payment of.
const strangeKey = "eip155:1|strange|strange|strange"

// strangeRecord leaves a payment in doubt whose terms say nothing.
func (w *world) strangeRecord() error {
	past := time.Now().Add(-time.Hour)
	l := ledger.New(w.store(), func() time.Time { return past }, rand.Text)
	c, err := l.Claim(w.Context(), ledger.Payment{
		Key: strangeKey, AuthDigest: "a", SigDigest: "s", Request: "GET /", Terms: json.RawMessage("{}"), ValidBefore: past.Add(time.Minute),
	}, past.Add(time.Minute))
	if err != nil {
		return err
	}
	return c.Hold.Uncertain(w.Context(), "timeout", "")
}

// forget deletes an item of the ledger's table.
func (w *world) forget(key string) error {
	_, err := dynamotable.NewClient(w.db.ClientConfig()).DeleteItem(w.Context(), &dynamodb.DeleteItemInput{
		TableName: &w.name, Key: map[string]types.AttributeValue{dynamo.AttrKey: &types.AttributeValueMemberS{Value: key}},
	})
	return err
}
