package testbed

import (
	"strings"
	"testing"
	"time"
)

// Until tries until there is no error, or the test has waited for as long as Patience.
func Until(tb testing.TB, what string, try func() error) {
	tb.Helper()
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

// Crash is the part of a log in which a program says that it has crashed, or that the
// race detector has seen something; empty if there is none.
func Crash(log string) string {
	for _, bad := range []string{"panic", "DATA RACE", "fatal error", "goroutine "} {
		if at := strings.Index(log, bad); at >= 0 {
			return log[max(at-500, 0):min(at+2000, len(log))]
		}
	}
	return ""
}
