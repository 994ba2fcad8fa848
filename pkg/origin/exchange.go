package origin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// MaxHead bounds what is read for one head, in bytes, interim answers included.
const MaxHead = 64 << 10

// What is wrong with an answer.
var (
	ErrLong       = errors.New("longer than allowed")
	ErrStatusLine = errors.New("malformed status line")
	ErrStatus     = errors.New("status below 100")
	ErrInterim    = errors.New("too many interim answers")
	ErrFraming    = errors.New("malformed length or transfer encoding")
)

// Until calls end when ctx ends, which must end every read and write of the
// exchange at once. The caller calls done after the last of them: it returns
// when nothing of this is left, and says whether end was called.
func Until(ctx context.Context, end func()) (done func() (ended bool)) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		end()
	})
	return func() bool {
		if stop() {
			return false
		}
		<-over
		return true
	}
}

// Reader reads answers from a connection, and no more of them than is allowed.
type Reader struct {
	*bufio.Reader
	allowance *allowance
}

// NewReader returns a Reader that may read nothing yet.
func NewReader(from io.Reader) *Reader {
	a := &allowance{from: from}
	return &Reader{Reader: bufio.NewReader(a), allowance: a}
}

// Allow sets how many bytes may be taken off the connection from here on, and
// forgets what came before.
func (r *Reader) Allow(n int64) { r.allowance.left, r.allowance.got = n, false }

// Spent says that the allowance is used up: what looks malformed may be cut.
func (r *Reader) Spent() bool { return r.allowance.left == 0 }

// Got says that anything was received since Allow.
func (r *Reader) Got() bool { return r.allowance.got }

// allowance reads until it is used up.
type allowance struct {
	from io.Reader
	left int64
	got  bool
}

func (a *allowance) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, ErrLong
	}
	n, err := a.from.Read(p[:min(int64(len(p)), a.left)])
	a.left -= int64(n)
	a.got = a.got || n > 0
	return n, err
}

// Head is the head of an answer.
type Head struct {
	Status int // 101, or 200 to 999
	Minor  int // 0 for HTTP/1.0 and 1 for everything later
	// Header has the fields in their order under each name. Lines that are no
	// field are not there, and values have no control bytes but tabs; their bytes
	// need not be UTF-8.
	Header http.Header
}

// Head reads the head of the final answer. Interim answers are passed over, as
// many as most, or as fit into the allowance when that is 0; 101 is final, though
// nobody asked for it.
func (r *Reader) Head(most int) (Head, error) {
	text := textproto.NewReader(r.Reader)
	for interim := 0; ; interim++ {
		if most > 0 && interim > most {
			return Head{}, ErrInterim
		}
		first, err := text.ReadLine()
		if err != nil {
			return Head{}, fmt.Errorf("status line: %w", err)
		}
		status, minor, err := statusLine(first)
		if err != nil {
			return Head{}, err
		}
		if status < 100 {
			return Head{}, ErrStatus
		}
		fields, err := header(text)
		if err != nil {
			return Head{}, fmt.Errorf("header: %w", err)
		}
		if status >= 200 || status == http.StatusSwitchingProtocols {
			return Head{status, minor, fields}, nil
		}
	}
}

// header reads the lines up to the empty one. As browsers do, it passes over those
// that are no field, together with those that continue them, and takes a first line
// that begins with white space.
func header(text *textproto.Reader) (http.Header, error) {
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
// name (RFC 9112 §5.1), and control bytes are not one of the value.
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
		return 0, 0, ErrStatusLine
	}
	if major > 1 || minor > 1 {
		minor = 1
	}
	status, err = strconv.Atoi(rest[:3])
	return status, minor, err
}

// Persists reports whether the server keeps the connection open (RFC 9112 §9.3).
func (h Head) Persists() bool {
	return h.Minor == 1 && h.Status != http.StatusSwitchingProtocols &&
		!strings.Contains(strings.ToLower(strings.Join(h.Header["Connection"], ",")), "close")
}

// Bodiless reports whether the answer ends with its head (RFC 9112 §6.3).
func (h Head) Bodiless(method string) bool {
	if method == http.MethodHead || h.Status == http.StatusNoContent || h.Status == http.StatusNotModified {
		return true
	}
	length := h.Header["Content-Length"]
	return len(length) == 1 && length[0] == "0" && len(h.Header["Transfer-Encoding"]) == 0
}

// Body is the body of an answer, by its chunks, its length or the end of the
// connection (RFC 9112 §6.3). One that is cut short ends with
// io.ErrUnexpectedEOF.
func (r *Reader) Body(method string, h Head) (io.Reader, error) {
	if h.Bodiless(method) {
		return http.NoBody, nil
	}
	if coding := h.Header["Transfer-Encoding"]; len(coding) > 0 {
		if len(coding) > 1 || h.Minor == 0 || !strings.EqualFold(strings.TrimSpace(coding[0]), "chunked") {
			return nil, ErrFraming
		}
		return httputil.NewChunkedReader(r.Reader), nil
	}
	lengths := slices.Compact(slices.Clone(h.Header["Content-Length"]))
	switch len(lengths) {
	case 0:
		return r.Reader, nil
	case 1:
		// Digits alone: ParseUint takes no sign, and the error would quote.
		n, err := strconv.ParseUint(strings.TrimSpace(lengths[0]), 10, 63)
		if err != nil {
			return nil, ErrFraming
		}
		return &exactly{r.Reader, int64(n)}, nil
	}
	return nil, ErrFraming
}

// exactly reads n bytes.
type exactly struct {
	from io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.from.Read(p[:min(int64(len(p)), e.left)])
	if e.left -= int64(n); e.left > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
