package origin

import (
	"bufio"
	"bytes"
	"net/textproto"
	"strings"
	"testing"
	"unicode/utf8"
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

// FuzzHead feeds the parser of answers. What it takes is a final status with
// header values that hold no control bytes, and it reads no more than it may.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nServer: a\r\n\r\n", "HTTP/1.1 103 E\r\nA: b\r\n\r\nHTTP/1.0 404\n\n", "HTTP/1.1 101 x\r\n\r\n",
		"HTTP/1.1 999 x\r\n\r\n", "HTTP/9.9 200\r\nA:\r\n b\r\n\r\n", "http/1.1 200 OK\r\n\r\n", "HTTP/1.1  200\r\n\r\n", "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\nTransfer-Encoding: x\r\n\r\n",
		strings.Repeat("HTTP/1.1 100 C\r\n\r\n", 50) + "HTTP/1.1 204 N\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		from := bytes.NewReader(append(wire, make([]byte, 2*maxHead)...))
		l := &line{in: &meter{from: from, left: maxHead}}
		l.buf = bufio.NewReader(l.in)
		status, header, minor, err := l.head()
		if read := int(from.Size()) - from.Len(); read > maxHead {
			t.Errorf("read %d bytes", read)
		}
		if err != nil {
			if f := l.failed("HEAD", err); f.Message == "" {
				t.Errorf("%v has no message", err)
			}
			return
		}
		if status < 200 && status != 101 || status > 599 || minor < 0 || minor > 1 {
			t.Errorf("status %d, minor version %d", status, minor)
		}
		for k, values := range header {
			if textproto.CanonicalMIMEHeaderKey(k) != k {
				t.Errorf("name %q", k)
			}
			for _, v := range values {
				if strings.ContainsAny(v, "\r\n\x00") {
					t.Errorf("%s: %q", k, v)
				}
			}
		}
	})
}
