package ledgertest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// viewCase is a case of the contract of a view V of a store, which lists keys.
type viewCase[V any] struct {
	name string
	run  func(*testing.T, ledger.Store, V)
}

// exerciseView runs cases in parallel, each on a store and a view of its own that
// open returns.
func exerciseView[V any](t *testing.T, open func(*testing.T) (ledger.Store, V), cases []viewCase[V]) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, v := open(t)
			c.run(t, s, v)
		})
	}
}

// checkKeys compares a list of keys, of the call that what names, with the one that
// it should be.
func checkKeys(t *testing.T, what string, want, got []string, err error) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s (-want +got), %v:\n%s", what, err, diff)
	}
}

// checkEnded checks that a call gives no keys and the error of its context, which
// has ended.
func checkEnded(t *testing.T, what string, list func(context.Context) ([]string, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if keys, err := list(ctx); !errors.Is(err, context.Canceled) || keys != nil {
		t.Errorf("%s = %q, %v; want the context's error", what, keys, err)
	}
}
