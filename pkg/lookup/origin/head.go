package origin

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/hostfacts/hostfacts/pkg/lookup"
)

// maxHead bounds what is read for one head, in bytes, interim answers included. It is curl's.
const maxHead = 300 << 10

var (
	errStatus     = errors.New("status below 100")
	errStatusLine = errors.New("malformed status line")
)

// Answer is the head of an origin's answer.
type Answer struct {
	Method string // HEAD, or GET if the origin takes no HEAD
	Status int    // 101, or 200 to 999
	Peer   netip.Addr
	// Header has the fields in their order under each name. Lines that are not a field
	// are left out, and values have no control bytes but tabs; their bytes need not be
	// UTF-8.
	Header http.Header

	minor int // 0 for HTTP/1.0 and 1 for everything later
}

// maxReported bounds the values of an answer that go into a result, in bytes.
const maxReported = 64 << 10

// Reports returns http_failed for an answer whose fields of these names are too long to be
// reported.
func (a Answer) Reports(names ...string) error {
	size := 0
	for _, name := range names {
		for _, value := range a.Header.Values(name) {
			size += len(value)
		}
	}
	if size <= maxReported {
		return nil
	}
	return lookup.Faultf(lookup.HTTPFailed, nil, "The HTTPS request was answered, but the response headers that are reported here are longer than 64 KiB.")
}

// readHead reads the head of the final answer and passes over interim ones. 101 is
// final, though nobody asked for it.
func readHead(from *bufio.Reader) (a Answer, err error) {
	text := textproto.NewReader(from)
	for a.Status < 200 && a.Status != http.StatusSwitchingProtocols {
		first, err := text.ReadLine()
		if err != nil {
			return a, fmt.Errorf("status line: %w", err)
		}
		a.Status, a.minor, err = parseStatusLine(first)
		if err != nil {
			return a, err
		}
		a.Header, err = readFields(text)
		if err != nil {
			return a, fmt.Errorf("header: %w", err)
		}
	}
	return a, nil
}

// readFields reads the lines up to the empty one. As browsers do, it passes over those
// that are not a field, together with those that continue them, and takes a first line
// that begins with white space.
func readFields(text *textproto.Reader) (http.Header, error) {
	fields := http.Header{}
	for {
		start, _ := text.R.Peek(1)
		line, err := text.ReadContinuedLine()
		isEmpty := line == "" && !strings.ContainsAny(string(start), " \t")
		if err != nil || isEmpty {
			return fields, err
		}
		if name, value, ok := parseField(line); ok {
			fields[name] = append(fields[name], value)
		}
	}
}

// parseField parses a line of a header. White space before the colon does not belong to the
// name (RFC 9112 §5.1), nor control bytes to the value.
func parseField(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	name = strings.TrimRight(name, " \t")
	if !ok || !httpguts.ValidHeaderFieldName(name) {
		return "", "", false
	}
	isControl := func(b byte) bool { return (b < ' ' && b != '\t') || b == 0x7f }
	kept := slices.DeleteFunc([]byte(value), isControl)
	return textproto.CanonicalMIMEHeaderKey(name), strings.Trim(string(kept), " \t"), true
}

// parseStatusLine parses "HTTP/1.1 200 OK" (RFC 9112 §4). As with curl, the reason may be
// missing or stick to the status, and the version may be in lower case or that of
// another protocol than is spoken.
func parseStatusLine(s string) (status, minor int, err error) {
	version, rest, _ := strings.Cut(strings.ToUpper(s), " ")
	if version == "HTTP/2" {
		version = "HTTP/1.1"
	}
	major, minor, ok := http.ParseHTTPVersion(version)
	rest = strings.TrimLeft(rest, " ")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	if !ok || major < 1 || digits != len("200") {
		return 0, 0, errStatusLine
	}
	status, _ = strconv.Atoi(rest[:digits])
	if status < 100 {
		return 0, 0, errStatus
	}
	if major > 1 {
		minor = 1
	}
	return status, min(minor, 1), nil
}

// persists reports whether the server keeps the connection open (RFC 9112 §9.3) after an
// answer that ends with its head (§6.3). An answer that refuses HEAD and announces a body may
// be followed by it, which must not be taken for the next answer.
func (a Answer) persists() bool {
	connection := strings.ToLower(strings.Join(a.Header["Connection"], ","))
	if a.minor == 0 || a.Status == http.StatusSwitchingProtocols || strings.Contains(connection, "close") {
		return false
	}
	length := a.Header["Content-Length"]
	empty := []string{"0"}
	coded := len(a.Header["Transfer-Encoding"]) > 0
	switch {
	case a.Status == http.StatusNoContent, a.Status == http.StatusNotModified:
		return true
	case a.refusesHead():
		return !coded && (len(length) == 0 || slices.Equal(length, empty))
	case a.Method == http.MethodHead:
		return true
	}
	return !coded && slices.Equal(length, empty)
}

// Text is a header value as JSON can hold it. One that is not UTF-8 is read as
// ISO 8859-1, which header values were once meant to be, so that no byte is lost.
func Text(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	out := make([]rune, len(value))
	for i := range len(value) {
		out[i] = rune(value[i])
	}
	return string(out)
}
