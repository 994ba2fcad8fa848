package testbed

import (
	"testing"
	"time"
)

// Until calls try until try returns nil. If that takes longer than Patience, Until fails the
// test.
func Until(tb testing.TB, what string, try func() error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); ; <-tick.C {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s: %v", what, err)
		}
	}
}
