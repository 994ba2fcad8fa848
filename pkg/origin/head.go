package origin

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// maxHead bounds what is read for one head, in bytes, interim answers included.
const maxHead = 64 << 10

// What is wrong with an answer.
var (
	errStatusLine = errors.New("malformed status line")
	errStatus     = errors.New("status below 100")
)

// head is the head of an answer.
type head struct {
	status int // 101, or 200 to 999
	minor  int // 0 for HTTP/1.0 and 1 for everything later
	// header has the fields in their order under each name. Lines that are not a field
	// are left out, and values have no control bytes but tabs; their bytes need not be
	// UTF-8.
	header http.Header
}

// readHead reads the head of the final answer and passes over interim ones. 101 is
// final, though nobody asked for it.
func readHead(from *bufio.Reader) (head, error) {
	text := textproto.NewReader(from)
	for {
		first, err := text.ReadLine()
		if err != nil {
			return head{}, fmt.Errorf("status line: %w", err)
		}
		status, minor, err := statusLine(first)
		if err != nil {
			return head{}, err
		}
		fields, err := readFields(text)
		if err != nil {
			return head{}, fmt.Errorf("header: %w", err)
		}
		if status >= 200 || status == http.StatusSwitchingProtocols {
			return head{status, minor, fields}, nil
		}
	}
}

// readFields reads the lines up to the empty one. As browsers do, it passes over those
// that are not a field, together with those that continue them, and takes a first line
// that begins with white space.
func readFields(text *textproto.Reader) (http.Header, error) {
	fields := http.Header{}
	for {
		start, err := text.R.Peek(1)
		if err != nil {
			return nil, err
		}
		blank := start[0] == ' ' || start[0] == '\t'
		line, err := text.ReadContinuedLine()
		if err != nil {
			return nil, err
		}
		if line == "" && !blank {
			return fields, nil
		}
		if name, value, ok := field(line); ok {
			fields[name] = append(fields[name], value)
		}
	}
}

// field reads a line of a header. White space before the colon is not a part of the
// name (RFC 9112 §5.1), and control bytes are not part of the value.
func field(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	name = strings.TrimRight(name, " \t")
	if !ok || !httpguts.ValidHeaderFieldName(name) {
		return "", "", false
	}
	kept := make([]byte, 0, len(value))
	for i := range len(value) {
		if b := value[i]; b >= ' ' && b != 0x7f || b == '\t' {
			kept = append(kept, b)
		}
	}
	return textproto.CanonicalMIMEHeaderKey(name), strings.Trim(string(kept), " \t"), true
}

// statusLine reads "HTTP/1.1 200 OK" (RFC 9112 §4). As with curl, the reason may be
// missing or stick to the status, and the version may be in lower case or that of
// another protocol than is spoken.
func statusLine(s string) (status, minor int, err error) {
	version, rest, _ := strings.Cut(strings.ToUpper(s), " ")
	if version == "HTTP/2" {
		version = "HTTP/1.1"
	}
	major, minor, ok := http.ParseHTTPVersion(version)
	rest = strings.TrimLeft(rest, " ")
	if !ok || major < 1 || len(rest)-len(strings.TrimLeft(rest, "0123456789")) != len("200") {
		return 0, 0, errStatusLine
	}
	if major > 1 || minor > 1 {
		minor = 1
	}
	status, _ = strconv.Atoi(rest[:3]) // three digits
	if status < 100 {
		return 0, 0, errStatus
	}
	return status, minor, nil
}

// persists reports whether the connection can take another request after this answer:
// the server keeps it open (RFC 9112 §9.3), and the answer ends with its head (§6.3).
func (h head) persists(method string) bool {
	if h.minor == 0 || h.status == http.StatusSwitchingProtocols ||
		strings.Contains(strings.ToLower(strings.Join(h.header["Connection"], ",")), "close") {
		return false
	}
	if method == http.MethodHead || h.status == http.StatusNoContent || h.status == http.StatusNotModified {
		return true
	}
	length := h.header["Content-Length"]
	return len(length) == 1 && length[0] == "0" && len(h.header["Transfer-Encoding"]) == 0
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
