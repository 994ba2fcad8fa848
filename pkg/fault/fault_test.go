package fault_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

func TestTable(t *testing.T) {
	seen := map[fault.Code]bool{}
	for _, i := range fault.All() {
		if seen[i.Code] {
			t.Errorf("%s is in the table twice", i.Code)
		}
		seen[i.Code] = true
		if !strings.HasSuffix(i.Message, ".") || http.StatusText(i.Status) == "" || i.Status < 400 {
			t.Errorf("%s: status %d, message %q is not a sentence", i.Code, i.Status, i.Message)
		}
		// Who may come back must be told when, but for 402, 400 and 404.
		if i.Retry != (i.After > 0) {
			t.Errorf("%s: retry %v, after %s", i.Code, i.Retry, i.After)
		}
		// What is owed is our fault, and what uses the payment up cannot be repeated.
		if i.Class == fault.Answer && i.Retry || i.Class == fault.Owed && (!i.Retry || i.Status < 500) {
			t.Errorf("%s is %s, with status %d and retry %v", i.Code, i.Class, i.Status, i.Retry)
		}
	}
}

// The statuses of spec §7, as the spec's tables say them.
func TestStatusesOfTheSpec(t *testing.T) {
	for status, codes := range map[int][]fault.Code{
		400: {"invalid_domain", "invalid_type", "invalid_port", "blocked_address"},
		402: {"payment_required"}, 409: {"payment_in_progress"}, 429: {"rate_limited"},
		404: {"nxdomain", "rdap_unavailable", "not_found"},
		502: {"connect_failed", "handshake_failed", "http_failed", "rdap_upstream"},
		503: {"settlement_uncertain", "facilitator_unavailable", "facilitator_misconfigured", "facilitator_unauthorized",
			"ledger_unavailable", "payment_unavailable", "overloaded", "upstream_unavailable", "bootstrap_unavailable"},
		504: {"dns_timeout", "ssl_timeout", "whois_timeout", "headers_timeout", "redirect_timeout", "host_intel_timeout", "uptime_check_timeout"},
	} {
		for _, c := range codes {
			if i, ok := fault.Of(c); !ok || i.Status != status {
				t.Errorf("%s: %d, in the table %v; want %d", c, i.Status, ok, status)
			}
		}
	}
}

func TestFrom(t *testing.T) {
	cause := errors.New("password=hunter2")
	if f := fault.From(cause); f.Code != fault.InternalError || strings.Contains(f.Public(), "hunter2") || !errors.Is(f, cause) {
		t.Errorf("a foreign error: %v, public %q", f, f.Public())
	}
	own := fault.Newf(fault.InvalidDomain, cause, "domain %s", "is odd")
	if f := fault.From(fmt.Errorf("wrapped: %w", own)); f != own || f.Public() != "domain is odd" {
		t.Errorf("%v", f)
	}
	// The cause of an error that is logged may be a peer's words.
	f := fault.New(fault.HTTPFailed, errors.New("\u009b2J\u202e"+strings.Repeat("\x01", 64000)))
	if text := f.Error(); len(text) > 1024 || !strings.HasPrefix(text, "http_failed: ?2J??") {
		t.Errorf("%d bytes, %.100q", len(text), text)
	}
	if f := fault.New("made_up", nil); f.Info().Status != 500 || strings.Contains(f.Public(), "made_up") {
		t.Errorf("an unknown code: %+v", f.Info())
	}
}

// The mark of a lookup that was prevented, and that of a silent target, go with every
// copy of an error, and with no other error.
func TestMarks(t *testing.T) {
	own := fault.New(fault.BootstrapUnavailable, errors.New("waiting"))
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
			fault.Newf(own.Code, marked, "again"): false, errors.New("waiting"): false,
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
