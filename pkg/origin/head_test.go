package origin

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/hostfacts/hostfacts/pkg/fault"
)

func TestText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "plain": "plain", "café €": "café €", "caf\xe9": "café", "\xff\x00": "ÿ\x00", "é\xe9": "Ã©é",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestEnded: a verdict about the target is no time-out, also when the time ends with it.
func TestEnded(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	blocked, reset := fault.New(fault.BlockedAddress, nil), errors.New("reset")
	for _, c := range []struct {
		ctx     context.Context
		err     error
		timeout bool
	}{{over, blocked, false}, {over, reset, true}, {t.Context(), blocked, false}, {t.Context(), reset, false}} {
		got := ended(c.ctx, c.err)
		if !errors.Is(got, c.err) || errors.Is(got, ErrTimeout) != c.timeout {
			t.Errorf("%v with the time over (%v) is %v", c.err, c.ctx.Err(), got)
		}
	}
}

// FuzzText: the outcome is UTF-8 and, where it changed anything, gives back
// every byte.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a", "caf\xe9", "\xff", "é\xe9", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q: %q is not UTF-8", s, got)
		}
		if utf8.ValidString(s) {
			if got != s {
				t.Errorf("%q was changed to %q", s, got)
			}
			return
		}
		var back []byte
		for _, r := range got {
			back = append(back, byte(r))
		}
		if string(back) != s {
			t.Errorf("%q: %q gives back %q", s, got, back)
		}
	})
}

// FuzzFailed: whatever is wrong with an answer, there are words for it.
func FuzzFailed(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 999 x\r\n\r\n", "http/1.1 200 OK\r\n\r\n", "\r\n\r\n", "HTTP/1.1 200 OK\r\nA\r\n\r\n", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		l := &line{in: NewReader(bytes.NewReader(wire))}
		l.in.Allow(MaxHead)
		if _, err := l.in.Head(0); err != nil && l.failed("HEAD", err).Message == "" {
			t.Errorf("%v has no message", err)
		}
	})
}
