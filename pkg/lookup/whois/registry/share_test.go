package registry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A part of a lookup has its share of the time that is left, and never more than
// its own bound.
func TestShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]time.Duration{
			0: fetchTimeout, time.Second: 500 * time.Millisecond, 2 * fetchTimeout: fetchTimeout, time.Minute: fetchTimeout,
		} {
			ctx, cancel := t.Context(), func() {}
			if left > 0 {
				ctx, cancel = context.WithTimeout(ctx, left)
			}
			if got := share(ctx, 2, fetchTimeout); got != want {
				t.Errorf("half of %s is %s, want %s", left, got, want)
			}
			cancel()
		}
	})
}
