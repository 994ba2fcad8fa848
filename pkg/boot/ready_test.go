package boot

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/service"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// TestReadyItems checks that a process reads the results that another process has stored, with
// times to the millisecond. Of several processes that have read the same item, only one may
// probe. Versions must not share an item.
func TestReadyItems(t *testing.T) {
	t.Parallel()
	server := cloud.StartDynamo(t)
	name := server.Table(t)
	storeOf := func(version string) service.ReadyStore {
		return Config{Ledger: Table{Name: name, AWS: server.Config()}, Version: version}.readyStore()
	}
	one, another := storeOf("7"), storeOf("8")
	at := time.UnixMilli(1_800_000_000_123)
	for n := range 3 {
		was, err := one.Load(t.Context())
		check(t, err)
		if n > 0 && (!was.Claimed.Equal(at) || !was.Kept.Equal(at) || string(was.Checks) != `{"ledger":{"status":"ok"}}`) {
			t.Errorf("%d: %+v", n, was)
		}
		at = at.Add(time.Minute)
		var granted atomic.Int32
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				yes, err := one.Claim(t.Context(), was, at)
				check(t, err)
				if yes {
					granted.Add(1)
				}
			})
		}
		all.Wait()
		if granted.Load() != 1 {
			t.Errorf("%d: granted %d times", n, granted.Load())
		}
		check(t, one.Keep(t.Context(), []byte(`{"ledger":{"status":"ok"}}`), at))
	}
	if was, err := another.Load(t.Context()); err != nil || len(was.Checks) > 0 {
		t.Errorf("of another version: %+v, %v", was, err)
	}
	if got := storeOf(""); got != nil {
		t.Errorf("without a version there is %v", got)
	}
	down := readyItems{dynamo.APIOf(dynamo.NewClient(server.Config())), "none", "ready|7"}
	if _, err := down.Load(t.Context()); err == nil {
		t.Error("a table that is not there is read")
	}
	if _, err := down.Claim(t.Context(), service.KeptReady{}, at); err == nil {
		t.Error("a table that is not there is claimed")
	}
	if err := down.Keep(t.Context(), nil, at); err == nil {
		t.Error("a table that is not there keeps")
	}
}
