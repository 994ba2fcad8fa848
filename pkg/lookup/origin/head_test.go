package origin

import (
	"bufio"
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// FuzzAnswer reads arbitrary bytes as a head. If readHead accepts them, the answer must have a
// final status, header names that are tokens, and values without control bytes except tabs.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nServer: a\r\n\r\n", "HTTP/1.1 103 E\r\nA: b\r\n\r\nHTTP/1.0 404\n\n", "HTTP/1.1 101 x\r\n\r\n",
		"HTTP/9.9 200\r\nA:\r\n b\r\n\r\n", "http/1.1 200 OK\r\n\r\n", "HTTP/1.1  200\r\n\r\n", "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\nTransfer-Encoding: x\r\n\r\n",
		"HTTP/1.0 200\n:\n\n", "HTTP/1.1 999 x\r\n a: b\r\nno\r\n c: d\r\nA : \x01b\tc\r\r\n\r\n",
		strings.Repeat("HTTP/1.1 100 C\r\n\r\n", 50) + "HTTP/1.1 204 N\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		h, err := readHead(bufio.NewReader(bytes.NewReader(wire)))
		if err != nil {
			return
		}
		if h.Status < 200 && h.Status != 101 || h.Status > 999 || h.minor < 0 || h.minor > 1 {
			t.Errorf("status %d, minor version %d", h.Status, h.minor)
		}
		checkHeader(t, h.Header)
	})
}

// checkHeader checks the form of header names and values.
func checkHeader(t *testing.T, header http.Header) {
	t.Helper()
	for k, values := range header {
		if textproto.CanonicalMIMEHeaderKey(k) != k || !httpguts.ValidHeaderFieldName(k) {
			t.Errorf("name %q", k)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) || strings.Trim(v, " \t") != v {
				t.Errorf("%s: %q", k, v)
			}
		}
	}
}

// FuzzText checks that Text returns UTF-8 from which all original bytes can be recovered.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a", "café €", "caf\xe9", "\xff\x00", "é\xe9", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q: %q is not UTF-8", s, got)
		}
		back := s
		if got != s {
			back = ""
			for _, r := range got {
				back += string([]byte{byte(r)})
			}
		}
		if back != s || utf8.ValidString(s) && got != s {
			t.Errorf("%q: %q gives back %q", s, got, back)
		}
	})
}
