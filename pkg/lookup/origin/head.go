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

// maxHead is the largest number of bytes that are read for one answer, including the heads of
// interim answers. curl has the same limit.
const maxHead = 300 << 10

var (
	errStatus     = errors.New("status below 100")
	errStatusLine = errors.New("malformed status line")
)

// Answer is the head of a response from an origin.
type Answer struct {
	Method string // HEAD, or GET if HEAD failed or was refused
	Status int    // 101, or 200 to 999
	Peer   netip.Addr
	// Header has the values of each field name in the order received. It leaves out lines that
	// are not a field. The values have no control bytes except tabs, and need not be UTF-8.
	Header http.Header

	minor int // the minor version: 0 for HTTP/1.0, and 1 for all later versions
}

// maxReported is the largest total size, in bytes, of the header values that go into a result.
const maxReported = 64 << 10

// Reports checks that the fields with the given names may be reported in a result. It returns
// http_failed if they are longer than maxReported.
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

// readHead reads the head of the final answer and skips interim answers. Status 101 counts as
// final; the package never requests an upgrade.
func readHead(input *bufio.Reader) (a Answer, err error) {
	text := textproto.NewReader(input)
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

// readFields reads header lines up to the empty line. As browsers do, it skips every line that
// is not a field, together with its continuation lines, and accepts a first line that begins
// with white space.
func readFields(text *textproto.Reader) (http.Header, error) {
	fields := http.Header{}
	for {
		firstByte, _ := text.R.Peek(1)
		line, err := text.ReadContinuedLine()
		isEmpty := line == "" && !strings.ContainsAny(string(firstByte), " \t")
		if err != nil || isEmpty {
			return fields, err
		}
		if name, value, ok := parseField(line); ok {
			fields[name] = append(fields[name], value)
		}
	}
}

// parseField parses one header line. It removes white space between the name and the colon
// (RFC 9112 §5.1), and control bytes from the value.
func parseField(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	name = strings.TrimRight(name, " \t")
	if !ok || !httpguts.ValidHeaderFieldName(name) {
		return "", "", false
	}
	isControl := func(b byte) bool { return (b < ' ' && b != '\t') || b == 0x7f }
	cleaned := slices.DeleteFunc([]byte(value), isControl)
	return textproto.CanonicalMIMEHeaderKey(name), strings.Trim(string(cleaned), " \t"), true
}

// parseStatusLine parses a line such as "HTTP/1.1 200 OK" (RFC 9112 §4). As curl does, it
// accepts a line without a reason, or with a reason that follows the status without a space.
// It also accepts a version in lower case, and versions other than HTTP/1.1.
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

// allowsNextRequest reports whether the connection can carry another request: the server must
// keep it open (RFC 9112 §9.3), and the answer must have no body (§6.3). A server that refuses
// HEAD may send the body that its answer announces. That body must not be read as the next
// answer.
func (a Answer) allowsNextRequest() bool {
	connection := strings.ToLower(strings.Join(a.Header["Connection"], ","))
	if a.minor == 0 || a.Status == http.StatusSwitchingProtocols || strings.Contains(connection, "close") {
		return false
	}
	length := a.Header["Content-Length"]
	zeroLength := []string{"0"}
	hasTransferCoding := len(a.Header["Transfer-Encoding"]) > 0
	switch {
	case a.Status == http.StatusNoContent, a.Status == http.StatusNotModified:
		return true
	case a.refusesHead():
		return !hasTransferCoding && (len(length) == 0 || slices.Equal(length, zeroLength))
	case a.Method == http.MethodHead:
		return true
	}
	return !hasTransferCoding && slices.Equal(length, zeroLength)
}

// Text returns a header value as valid UTF-8 for JSON. It reads a value that is not UTF-8 as
// ISO 8859-1, which was once the encoding of header values. So no byte is lost.
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
