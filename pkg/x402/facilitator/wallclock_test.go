package facilitator

import (
	"errors"
	"testing"
	"time"
	"unsafe"
)

// thawed is what time.Now says after a sleep of which only the clock on the
// wall knows: the seconds on the wall go on, the monotonic reading does not. A
// time.Time with both readings can only be had from time.Now, so the wall's
// seconds, which begin at bit 30 of its first word, are moved in place.
func thawed(t *testing.T, now time.Time, slept time.Duration) time.Time {
	t.Helper()
	const nanosecondBits = 30
	after := now
	*(*uint64)(unsafe.Pointer(&after)) += uint64(slept/time.Second) << nanosecondBits
	if after.Sub(now) != 0 || after.Round(0).Sub(now.Round(0)) != slept {
		t.Fatalf("time.Time is not laid out as it was: %s and %s are %s apart, by the wall %s",
			now, after, after.Sub(now), after.Round(0).Sub(now.Round(0)))
	}
	return after
}

// A function that was frozen for a minute reads its credentials again, though
// its monotonic clock has stood still.
func TestLazyGoesByTheWall(t *testing.T) {
	t.Parallel()
	v := &vault{err: errors.New("throttled")}
	l := Lazy(v.load)
	now := time.Now()
	if _, err := l.Authorization(t.Context(), Call{Now: now}); err == nil || v.reads != 1 {
		t.Fatalf("the first reading: %v, %d readings", err, v.reads)
	}
	v.creds, v.err = mustBearer(t, "one"), nil
	now = thawed(t, now, 59*time.Second)
	if _, err := l.Authorization(t.Context(), Call{Now: now}); err == nil || v.reads != 1 {
		t.Errorf("within a minute: %v, %d readings", err, v.reads)
	}
	now = thawed(t, now, time.Second)
	if h, err := l.Authorization(t.Context(), Call{Now: now}); err != nil || h != "Bearer one" || v.reads != 2 {
		t.Errorf("after a minute on the wall: %q, %v, %d readings", h, err, v.reads)
	}
	l.Rejected()
	v.creds = mustBearer(t, "two")
	now = thawed(t, now, time.Minute)
	if h, err := l.Authorization(t.Context(), Call{Now: now}); err != nil || h != "Bearer two" {
		t.Errorf("a rejected secret: %q, %v", h, err)
	}
}
