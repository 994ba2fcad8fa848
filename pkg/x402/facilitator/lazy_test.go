package facilitator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// vault is a secret store that the test controls.
type vault struct {
	reads int
	creds Credentials
	err   error
}

func (v *vault) load(context.Context) (Credentials, error) {
	v.reads++ // one caller at a time
	return v.creds, v.err
}

func TestLazyCredentials(t *testing.T) {
	t.Parallel()
	v := &vault{err: errors.New("throttled")}
	l := Lazy(v.load)
	now := time.Unix(1000, 0)
	step := func(what string, wait time.Duration, want string, reads int) { // "" is an error
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
	l.Rejected()
	now = time.Now() // with the clock that stands still while a function is frozen
	step("nor does one that stood still", 0, "Bearer four", 8)
	if at := l.(*lazy).readAt; at != at.Round(0) {
		t.Errorf("the time of a reading is %s, and goes by that clock", at)
	}
}

func TestLazyWaitsNoLongerThanItsCaller(t *testing.T) {
	t.Parallel()
	started, release, readings := make(chan struct{}), make(chan struct{}), 0
	l := Lazy(func(ctx context.Context) (Credentials, error) {
		if readings++; readings > 1 {
			return None(), nil
		}
		close(started)
		<-release
		return nil, ctx.Err()
	})
	ask := func(ctx context.Context) error {
		_, err := l.Authorization(ctx, Call{Now: time.Unix(1, 0)})
		return err
	}
	first, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ask(first) }()
	<-started
	second, cancelSecond := context.WithCancel(t.Context())
	cancelSecond()
	if err := ask(second); !errors.Is(err, context.Canceled) {
		t.Errorf("second: %v", err)
	}
	cancel()
	close(release)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("first: %v", err)
	}
	// A caller who gave up has not used up the minute's one reading.
	if err := ask(t.Context()); err != nil {
		t.Errorf("third: %v", err)
	}
}

// TestRotatedSecret is the path of a rotation through the client: 401, and after a
// minute a new secret, without a restart.
func TestRotatedSecret(t *testing.T) {
	t.Parallel()
	v, now := &vault{creds: mustBearer(t, "old")}, time.Unix(1000, 0)
	f := newClient(t, Config{
		Credentials: Lazy(v.load), Now: func() time.Time { return now },
		URL: serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer new" {
				w.WriteHeader(http.StatusUnauthorized)
			} else {
				_, _ = io.WriteString(w, settled)
			}
		}),
	})
	if s := settle(t, f); s.Class != x402.TurnedAway || s.Code != fault.FacilitatorUnauthorized {
		t.Fatalf("old secret: %+v", s)
	}
	v.creds, now = mustBearer(t, "new"), now.Add(reloadAfter)
	if s := settle(t, f); s.Class != x402.Moved || v.reads != 2 {
		t.Fatalf("new secret, %d reads: %+v", v.reads, s)
	}
}
