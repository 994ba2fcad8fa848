package fault_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func TestFrom(t *testing.T) {
	cause := errors.New("password=hunter2")
	if f := fault.From(cause); f.Code != fault.InternalError || strings.Contains(f.Public(), "hunter2") || !errors.Is(f, cause) {
		t.Errorf("a foreign error: %v, public %q", f, f.Public())
	}
	own := fault.Newf(fault.InvalidArguments, cause, "domain %s", "is odd")
	if f := fault.From(fmt.Errorf("wrapped: %w", own)); f != own || f.Public() != "domain is odd" {
		t.Errorf("%v", f)
	}
	// The cause may contain text that a peer sent. In a log, that text must be short and
	// without control characters.
	f := fault.New(fault.LedgerUnavailable, errors.New("\u009b2J\u202e"+strings.Repeat("\x01", 64000)))
	if text := f.Error(); len(text) > 1024 || !strings.HasPrefix(text, "ledger_unavailable: ?2J??") {
		t.Errorf("%d bytes, %.100q", len(text), text)
	}
	for message, want := range map[string]string{
		"It failed.": "internal_error: It failed: why",
		"it failed":  "internal_error: it failed: why",
	} {
		if f := fault.Newf(fault.InternalError, errors.New("why"), "%s", message); f.Error() != want || f.Public() != message {
			t.Errorf("%q and %q, want %q", f.Error(), f.Public(), want)
		}
	}
	if f := fault.New("made_up", nil); f.Info().Status != 500 || strings.Contains(f.Public(), "made_up") {
		t.Errorf("an unknown code: %+v", f.Info())
	}
}

// TestMarks checks the marks of a prevented lookup and of a silent target: every copy of a
// marked error keeps its mark, and no other error has the mark.
func TestMarks(t *testing.T) {
	own := fault.New(fault.InternalError, errors.New("waiting"))
	for name, mark := range map[string]struct {
		set       func(*fault.Error) *fault.Error
		is, other func(*fault.Error) bool
	}{
		"prevented": {(*fault.Error).Prevented, (*fault.Error).IsPrevented, (*fault.Error).IsSilence},
		"silence":   {(*fault.Error).Silence, (*fault.Error).IsSilence, (*fault.Error).IsPrevented},
	} {
		marked := mark.set(own)
		if marked.Code != own.Code || marked.Public() != own.Public() || marked.Error() != own.Error() || marked.Wait() != own.Wait() {
			t.Errorf("%s: the marked copy says %v, not %v", name, marked, own)
		}
		for err, want := range map[error]bool{
			own: false, marked: true, mark.set(marked): true, marked.After(time.Minute): true, marked.Final(): true,
			fmt.Errorf("whois: %w", marked): true, fault.New(fault.InternalError, marked): false,
			own.Info().Newf(marked, "again"): false, errors.New("waiting"): false,
		} {
			if f := fault.From(err); mark.is(f) != want || mark.other(f) {
				t.Errorf("%s: %#v: %v, want %v", name, err, mark.is(f), want)
			}
		}
	}
	if wait := own.After(time.Hour).Wait(); wait != time.Hour || own.Wait() == wait || own.Final().Wait() != 0 {
		t.Errorf("a copy waits for %s, and the one that was copied for %s", wait, own.Wait())
	}
}
