package boot

import (
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/limit"
	limitdynamo "github.com/hostfacts/hostfacts/pkg/limit/dynamo"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// LimitStore counts requests and keeps leases.
type LimitStore interface {
	limit.Counter
	limit.Leases
}

// Stores are where a deployment keeps what it must not forget.
type Stores struct {
	Ledger ledger.Store
	Limits LimitStore
}

// Stores opens the table: the ledger, and the limits, which share it.
func (t Table) Stores() Stores {
	client := t.Client()
	return Stores{
		Ledger: dynamo.New(dynamo.Config{API: client, Table: t.Name}),
		Limits: limitdynamo.New(limitdynamo.Config{API: client, Table: t.Name}),
	}
}

// caps are the limits as the documents name them.
func (l Limits) caps() catalog.Caps {
	c := catalog.Caps{PerMinute: l.PerMinute, Single: l.Single, Bundle: l.Bundle}
	c.Undecided, c.Refused = limit.Weights(l.PerMinute)
	return c
}

// limits wires the caps over a store.
func (c Config) limits(store LimitStore, now func() time.Time) service.Limits {
	return service.Limits{
		Rate:   c.rate(store, now),
		Leases: store, Single: c.Limits.Single, Bundle: c.Limits.Bundle, NewID: leaseID,
	}
}

// rate wires the clients' limit over a store; nil without one.
func (c Config) rate(store limit.Counter, now func() time.Time) *limit.Rate {
	if c.Limits.PerMinute == 0 {
		return nil
	}
	return limit.NewRate(limit.RateConfig{PerMinute: c.Limits.PerMinute, Counter: store, Now: now})
}

// leaseID is 30 random bits: it stands in an item with all others, and every
// write is paid by its size.
func leaseID() string {
	b := make([]byte, 4)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)[:limit.IDLength]
}
