package gameday

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// What scenarios do to the world's table, past its door.

func (w *world) store() *dynamo.Table { return w.db.Open(w.name) }

// bundlePlaces are the places of a bundle, by the template's default.
const bundlePlaces = 20

// placesTaken takes every place of an operation for clients who are not there.
func placesTaken(operation string, n int) breakage {
	var leases []limit.Lease
	for i := range n {
		leases = append(leases, limit.Lease{ID: fmt.Sprintf("%04d-elsewhere", i), Until: time.Unix(4_000_000_000, 0)})
	}
	return breakage{
		breaks: func(w *world) {
			for _, l := range leases {
				if _, ok, err := w.store().Acquire(w.Context(), operation, l, n); err != nil || !ok {
					w.Fatalf("a place is not free: %v", err)
				}
			}
		},
		mends: func(w *world) { must(w, w.store().Remove(w.Context(), operation, leases...)) },
	}
}

// strangeRecord leaves a payment in doubt whose terms say nothing, so that nobody
// can read it; and deletes it in the end.
func strangeRecord() breakage {
	const key = "eip155:1|strange|strange|strange"
	return breakage{
		breaks: func(w *world) {
			past := time.Now().Add(-time.Hour)
			l := ledger.New(w.store(), func() time.Time { return past }, rand.Text)
			c, err := l.Claim(w.Context(), ledger.Payment{
				Key: key, AuthDigest: "a", SigDigest: "s", Request: "GET /", Terms: json.RawMessage("{}"), ValidBefore: past.Add(time.Minute),
			}, past.Add(time.Minute))
			must(w, err)
			must(w, c.Hold.End(w.Context(), ledger.EventUncertain, "timeout", ""))
		},
		mends: func(w *world) {
			_, err := dynamo.NewClient(w.db.Config()).DeleteItem(w.Context(), &dynamodb.DeleteItemInput{
				TableName: &w.name, Key: map[string]types.AttributeValue{dynamo.AttrKey: &types.AttributeValueMemberS{Value: key}},
			})
			must(w, err)
		},
	}
}

// exhaust uses up what is left of the lookups of each payment, as its payer
// would who asks again as soon as that is allowed and gets the same error. That
// takes eleven minutes, so the payment is put two hours back first.
func exhaust(w *world, payers []*payer) {
	w.Helper()
	store, debts := w.store(), w.owed()
	for _, p := range payers {
		r, err := store.Fetch(w.Context(), debts[p.address].Key)
		must(w, err)
		if r == nil || r.State != ledger.Settled || r.Lookups != 1 || r.LastFault == nil {
			w.Fatalf("the record of a payer who is owed is %+v", r)
		}
		const back = 2 * time.Hour
		r.CreatedAt, r.SettledAt, r.LookupAt = r.CreatedAt.Add(-back), r.SettledAt.Add(-back), r.LookupAt.Add(-back)
		r.Version, r.WriteID = r.Version+1, rand.Text()
		ledgertest.MustPut(w, store, *r)
		now := r.LookupAt
		l := ledger.New(store, func() time.Time { return now }, rand.Text)
		paid := ledger.Payment{
			Key: r.Key, AuthDigest: r.AuthDigest, SigDigest: r.SigDigest, Request: r.Request, Terms: r.Terms, ValidBefore: r.ValidBefore, Token: r.Token, Purchase: r.Purchase,
		}
		for n := r.Lookups; n < ledger.MaxLookups; n++ {
			now = now.Add(11 * time.Minute)
			claim, err := l.Claim(w.Context(), paid, now.Add(30*time.Second))
			must(w, err)
			if claim.Result != ledger.Held {
				w.Fatalf("the next lookup is not allowed: standing %d", claim.Result)
			}
			must(w, claim.Hold.Release(w.Context(), *r.LastFault))
		}
	}
}
