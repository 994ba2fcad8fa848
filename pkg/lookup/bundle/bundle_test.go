package bundle_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/lookup/bundle"
)

type fact struct {
	N int `json:"n"`
}

func TestChild(t *testing.T) {
	for name, c := range map[string]struct {
		look func(context.Context) (fact, error)
		want string
	}{
		"result":  {func(context.Context) (fact, error) { return fact{7}, nil }, `{"n":7}`},
		"fault":   {func(context.Context) (fact, error) { return fact{}, fault.Newf(fault.NXDomain, nil, "gone") }, `{"error":{"code":"nxdomain","message":"gone"}}`},
		"foreign": {func(context.Context) (fact, error) { return fact{}, errors.New("secret") }, `"code":"internal_error"`},
		"panic":   {func(context.Context) (fact, error) { panic("secret") }, `"code":"internal_error"`},
	} {
		b, err := json.Marshal(bundle.Run(t.Context(), c.look))
		if err != nil || !strings.Contains(string(b), c.want) || strings.Contains(string(b), "secret") {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
}

func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		slow := func(ctx context.Context) (fact, error) {
			<-ctx.Done()
			return fact{}, fault.New(fault.DNSTimeout, ctx.Err())
		}
		if c := bundle.Run(t.Context(), slow); !c.Failed() || time.Since(begun) != bundle.Budget {
			t.Errorf("%v after %s", c.Fault, time.Since(begun))
		}
		whole, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		ctx, end := bundle.Children(whole)
		defer end()
		bundle.Run(ctx, slow)
		if whole.Err() != nil {
			t.Error("a slow child took the bundle's own time")
		}
	})
}

// late is a context whose deadline is past and whose timer has not fired: a
// process that was just thawed.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestOver(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ahead, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	for name, c := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"no deadline": {t.Context(), nil}, "time left": {ahead, nil}, "cancelled": {ended, context.Canceled},
		"thawed after the deadline": {late{t.Context()}, context.DeadlineExceeded},
	} {
		if err := bundle.Over(c.ctx); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
