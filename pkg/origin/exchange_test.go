package origin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/hostfacts/hostfacts/pkg/origin"
)

// TestUntil: done returns when the end has.
func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		done := origin.Until(ctx, func() {
			time.Sleep(time.Second) // in the bubble
			ended = true
		})
		cancel()
		if !done() || !ended {
			t.Error("the end was not told, or not awaited")
		}
		if origin.Until(t.Context(), func() { t.Error("ended") })() {
			t.Error("an end was told")
		}
	})
}

const most = 1 << 20

// answer reads an answer whole.
func answer(wire string) (origin.Head, string, error) {
	r := origin.NewReader(strings.NewReader(wire))
	r.Allow(origin.MaxHead)
	h, err := r.Head(5)
	if err != nil {
		return h, "", err
	}
	r.Allow(most)
	body, err := r.Body("GET", h)
	if err != nil {
		return h, "", err
	}
	b, err := io.ReadAll(body)
	return h, string(b), err
}

func TestBody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wire, want string
		err        error
	}{
		"length":                {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", "ab", nil},
		"the same length twice": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nabc", "ab", nil},
		"until the end":         {"HTTP/1.0 200 OK\r\n\r\nabc", "abc", nil},
		"chunks":                {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1;x=y\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "abc", nil},
		"chunks and a length":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n2\r\nbc\r\n0\r\n\r\n", "bc", nil},
		"no content":            {"HTTP/1.1 204 No\r\n\r\nabc", "", nil},
		"after a hint":          {"HTTP/1.1 103 E\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", "a", nil},
		"an upgrade":            {"HTTP/1.1 101 x\r\n\r\nabc", "abc", nil},
		"HTTP/0.9":              {"HTTP/0.9 200 OK\r\n\r\na", "", origin.ErrStatusLine},
		"cut":                   {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", "abc", io.ErrUnexpectedEOF},
		"chunk cut":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "abc", io.ErrUnexpectedEOF},
		"two lengths":           {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", "", origin.ErrFraming},
		"a sign":                {"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nabc", "", origin.ErrFraming},
		"another coding":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nabc", "", origin.ErrFraming},
		"chunks in HTTP/1.0":    {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "", origin.ErrFraming},
		"too long":              {"HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("a", 2*most), "", origin.ErrLong},
		"head too long":         {"HTTP/1.0 200 OK\r\nA: " + strings.Repeat("a", origin.MaxHead), "", origin.ErrLong},
		"five hints":            {strings.Repeat("HTTP/1.1 103 E\r\n\r\n", 5) + "HTTP/1.0 200 OK\r\n\r\na", "a", nil},
		"six hints":             {strings.Repeat("HTTP/1.1 103 E\r\n\r\n", 6) + "HTTP/1.0 200 OK\r\n\r\na", "", origin.ErrInterim},
		"no HTTP":               {"220 smtp\r\n", "", origin.ErrStatusLine},
		"no colon":              {"HTTP/1.1 200 OK\r\nSet-Cookie sid=SECRET\r\nContent-Length: 1\r\n\r\nab", "a", nil},
		"no status":             {"HTTP/1.1 099 OK\r\n\r\n", "", origin.ErrStatus},
	} {
		_, got, err := answer(c.wire)
		if !errors.Is(err, c.err) || c.err == nil && err != nil || (c.err == nil || c.want != "") && got != c.want {
			t.Errorf("%s: %.20q, %v; want %q, %v", name, got, err, c.want, c.err)
		}
	}
}

// FuzzAnswer feeds the reader. What it takes is a final status with header names that
// are tokens and values that hold no control bytes but tabs, and it reads no more than
// it may.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nServer: a\r\n\r\n", "HTTP/1.1 103 E\r\nA: b\r\n\r\nHTTP/1.0 404\n\n", "HTTP/1.1 101 x\r\n\r\n",
		"HTTP/9.9 200\r\nA:\r\n b\r\n\r\n", "http/1.1 200 OK\r\n\r\n", "HTTP/1.1  200\r\n\r\n", "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\nTransfer-Encoding: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
		"HTTP/1.0 200\n:\n\n", "HTTP/1.1 999 x\r\n a: b\r\nno\r\n c: d\r\nA : \x01b\tc\r\r\n\r\n",
		strings.Repeat("HTTP/1.1 100 C\r\n\r\n", 50) + "HTTP/1.1 204 N\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		const body = 1 << 10
		from := bytes.NewReader(append(wire, make([]byte, 2*origin.MaxHead)...))
		r := origin.NewReader(from)
		r.Allow(origin.MaxHead)
		h, err := r.Head(0)
		if err != nil {
			return
		}
		if h.Status < 200 && h.Status != 101 || h.Status > 999 || h.Minor < 0 || h.Minor > 1 {
			t.Errorf("status %d, minor version %d", h.Status, h.Minor)
		}
		for k, values := range h.Header {
			if textproto.CanonicalMIMEHeaderKey(k) != k || !httpguts.ValidHeaderFieldName(k) {
				t.Errorf("name %q", k)
			}
			for _, v := range values {
				if !httpguts.ValidHeaderFieldValue(v) || strings.Trim(v, " \t") != v {
					t.Errorf("%s: %q", k, v)
				}
			}
		}
		r.Allow(body)
		if b, err := r.Body("GET", h); err == nil {
			_, _ = io.Copy(io.Discard, b) // ends
		}
		if read := int(from.Size()) - from.Len(); read > origin.MaxHead+body {
			t.Errorf("read %d bytes", read)
		}
	})
}
