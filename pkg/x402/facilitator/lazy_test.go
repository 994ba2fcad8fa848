package facilitator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// vault is a secret store that the test controls.
type vault struct {
	mu    sync.Mutex
	reads int
	creds Credentials
	err   error
}

func (v *vault) load(context.Context) (Credentials, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reads++
	return v.creds, v.err
}

func mustBearer(t *testing.T, token string) Credentials {
	t.Helper()
	b, err := Bearer(token)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLazyCredentials(t *testing.T) {
	t.Parallel()
	v := &vault{err: errors.New("throttled")}
	l := Lazy(v.load)
	now := time.Unix(1000, 0)
	step := func(what string, wait time.Duration, want string, reads int) {
		t.Helper()
		now = now.Add(wait)
		h, err := l.Authorization(t.Context(), Call{Now: now})
		if (want == "") != (err != nil) || h != want || v.reads != reads {
			t.Errorf("%s: got %q, %v after %d reads; want %q after %d", what, h, err, v.reads, want, reads)
		}
	}
	step("the first reading fails", 0, "", 1)
	v.creds, v.err = mustBearer(t, "one"), nil
	step("and is not repeated at once", 59*time.Second, "", 1)
	step("but after a minute", time.Second, "Bearer one", 2)
	step("and then kept", time.Hour, "Bearer one", 2)
	l.Rejected()
	l.Rejected()
	v.creds = mustBearer(t, "two")
	step("a 401 reads again", 0, "Bearer two", 3)
	l.Rejected()
	step("not within a minute", 59*time.Second, "Bearer two", 3)
	v.creds, v.err = nil, errors.New("gone")
	step("a failed reading leaves the old ones", time.Second, "Bearer two", 4)
	v.err = nil
	step("no credentials are a failure", time.Minute, "Bearer two", 5)
	v.creds = mustBearer(t, "three")
	step("and it tries again", time.Minute, "Bearer three", 6)
	step("once", time.Hour, "Bearer three", 6)
	l.Rejected()
	v.creds = mustBearer(t, "four")
	step("a clock that was set back does not hold it up", -2*time.Hour, "Bearer four", 7)
}

func TestLazyWaitsNoLongerThanItsCaller(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	good := mustBearer(t, "one")
	l := Lazy(func(ctx context.Context) (Credentials, error) {
		select {
		case <-started: // a later reading
			return good, nil
		default:
		}
		close(started)
		<-release
		return nil, ctx.Err()
	})
	first, cancelFirst := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := l.Authorization(first, Call{Now: time.Unix(1, 0)})
		done <- err
	}()
	<-started
	second, cancelSecond := context.WithCancel(t.Context())
	cancelSecond()
	if _, err := l.Authorization(second, Call{Now: time.Unix(1, 0)}); !errors.Is(err, context.Canceled) {
		t.Errorf("second: %v", err)
	}
	cancelFirst()
	close(release)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("first: %v", err)
	}
	// A caller who gave up has not used up the minute's one reading.
	if h, err := l.Authorization(t.Context(), Call{Now: time.Unix(1, 0)}); err != nil || h != "Bearer one" {
		t.Errorf("third: %q, %v", h, err)
	}
}

func TestLazyIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	v := &vault{creds: mustBearer(t, "one")}
	l := Lazy(v.load)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if h, err := l.Authorization(t.Context(), Call{Now: time.Unix(1, 0)}); err != nil || h != "Bearer one" {
				t.Errorf("%q, %v", h, err)
			}
			l.Rejected()
		})
	}
	wg.Wait()
	if v.reads != 1 {
		t.Errorf("%d readings within a minute", v.reads)
	}
}

// TestRotatedSecret is the whole path of a rotation: 401, and after a minute a
// new secret, without a restart.
func TestRotatedSecret(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, settled)
	}))
	defer srv.Close()
	v := &vault{creds: mustBearer(t, "old")}
	now := time.Unix(1000, 0)
	f := newClient(t, Config{URL: srv.URL, Credentials: Lazy(v.load), Now: func() time.Time { return now }})
	settle := func() x402.Settlement { return f.Settle(within(t, 5*time.Second), testPayload(), testRequirements()) }
	if s := settle(); s.Class != x402.TurnedAway || s.Code != fault.FacilitatorUnauthorized {
		t.Fatalf("old secret: %+v", s)
	}
	v.creds = mustBearer(t, "new")
	if s := settle(); s.Class != x402.TurnedAway || v.reads != 1 {
		t.Fatalf("within a minute, %d reads: %+v", v.reads, s)
	}
	now = now.Add(time.Minute)
	if s := settle(); s.Class != x402.Moved || v.reads != 2 {
		t.Fatalf("new secret, %d reads: %+v", v.reads, s)
	}
}

func TestUnreadableCredentialsSendNothing(t *testing.T) {
	t.Parallel()
	sent := false
	never := roundTrip(func(*http.Request) (*http.Response, error) { sent = true; return respond(200, settled), nil })
	cdpKey, err := CDP("key", edSecret())
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("access denied")
	for name, c := range map[string]Config{
		"secret store": {Credentials: Lazy(func(context.Context) (Credentials, error) { return nil, broken })},
		"randomness":   {Credentials: cdpKey, Random: bytes.NewReader([]byte("short"))},
	} {
		c.URL, c.Transport = "https://facilitator.example", never
		f := newClient(t, c)
		s := f.Settle(t.Context(), testPayload(), testRequirements())
		if s.Class != x402.NotSent || s.Code != fault.FacilitatorMisconfigured || s.Reason != "credentials_unreadable" || sent {
			t.Errorf("%s: %+v (sent: %v)", name, s, sent)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	slow := newClient(t, Config{URL: "https://facilitator.example", Transport: never,
		Credentials: Lazy(func(context.Context) (Credentials, error) { cancel(); return nil, broken })})
	if s := slow.Settle(ctx, testPayload(), testRequirements()); s.Class != x402.NotSent || s.Code != fault.FacilitatorUnavailable || sent {
		t.Errorf("time up while reading: %+v (sent: %v)", s, sent)
	}
}

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
