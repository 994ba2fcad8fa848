package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

const (
	// maxBody bounds a reply about one authorization. The longest honest ones
	// are a block's header with the hashes of its transactions and the receipt
	// of a large multicall, some 100 KiB.
	maxBody = 1 << 20
	// maxScanBody bounds a reply about all transfers to a payee. The longest
	// honest one is a list of 10,000 logs, the most that large providers send;
	// it is some 6 MiB.
	maxScanBody = 8 << 20
	maxHeader   = 32 << 10
	// maxExcerpt bounds what a cause quotes of a node's own words.
	maxExcerpt = 160

	dialTimeout = 3 * time.Second
	tlsTimeout  = 3 * time.Second
	// idleTimeout is short: a connection is kept for the calls of one Find,
	// and a frozen Lambda environment must not find an old one.
	idleTimeout = 5 * time.Second
)

// Private causes.
var (
	errTooLong    = errors.New("reply is too long")
	errOutOfCalls = errors.New("not finished within the permitted number of calls")
)

// nodeError is a node's refusal to answer: a JSON-RPC error object.
type nodeError struct {
	status  int // HTTP
	code    int64
	message string
}

func (e *nodeError) Error() string {
	return fmt.Sprintf("node answered error %d (HTTP %d): %s", e.code, e.status, e.message)
}

// statusError is an HTTP answer that is no JSON-RPC reply.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("node answered HTTP %d", e.status) }

// endpoint sends JSON-RPC requests.
type endpoint struct {
	url       *url.URL
	transport http.RoundTripper
	userAgent string
	lastID    atomic.Uint64
}

type request struct {
	Version string `json:"jsonrpc"`
	ID      uint64 `json:"id"`
	Method  string `json:"method"`
	Params  []any  `json:"params"`
}

// call sends one request and returns its checked result, which may be null and
// is at most so many bytes long.
func (e *endpoint) call(ctx context.Context, most int, method string, params ...any) (json.RawMessage, error) {
	r := e.request(method, params)
	status, reply, err := e.exchange(ctx, most, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	result, err := decodeReply(status, reply, r.ID)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return result, nil
}

// request numbers a call. Its parameters are a list also when it has none.
func (e *endpoint) request(method string, params []any) request {
	if params == nil {
		params = []any{}
	}
	return request{Version: "2.0", ID: e.lastID.Add(1), Method: method, Params: params}
}

// exchange posts one message and returns the answer's HTTP status and body.
// It uses the transport directly: http.Client would follow redirects, and
// would put the URL into its errors.
func (e *endpoint) exchange(ctx context.Context, most int, message any) (int, []byte, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return 0, nil, err
	}
	req, err := e.newRequest(ctx, body)
	if err != nil {
		return 0, nil, err
	}
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	reply, err := readBody(resp.Body, most)
	return resp.StatusCode, reply, err
}

func (e *endpoint) newRequest(ctx context.Context, body []byte) (*http.Request, error) {
	target := *e.url
	target.User = nil // it goes into a header, where no transport quotes it
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://placeholder.invalid/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.URL, req.Host = &target, target.Host
	req.Header = http.Header{
		"Accept":       {"application/json"},
		"Content-Type": {"application/json"},
		"User-Agent":   {e.userAgent},
		// Asked for by name, so that no transport decodes: the bound on the
		// body is then a bound on memory.
		"Accept-Encoding": {"identity"},
		// Empty, so that it is not sent: it tells net/http that the request
		// may go out again when a kept connection turns out to be closed.
		// Every call here only reads.
		"Idempotency-Key": {},
	}
	if user := e.url.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	return req, nil
}

func readBody(r io.Reader, most int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("read the reply: %w", err)
	}
	if len(b) > most {
		return nil, fmt.Errorf("%w: over %d bytes", errTooLong, most)
	}
	return b, nil
}

// newTransport returns the client's own transport: HTTP/1.1, no proxy from the
// environment, connections kept for the calls of one Find.
func newTransport() *http.Transport {
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:    tlsTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    4,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              only1,
	}
}

// decodeReply checks one reply to the request with this id. Only HTTP 200
// carries a result; an error may come with any status.
func decodeReply(status int, body []byte, id uint64) (json.RawMessage, error) {
	o, err := parseObject(body)
	if err != nil && status != http.StatusOK {
		return nil, &statusError{status}
	}
	if err != nil {
		return nil, err
	}
	return o.result(status, id)
}

// result is what o answers to the request with this id.
func (o object) result(status int, id uint64) (json.RawMessage, error) {
	err := o.answers(id)
	if failure, failed := o["error"]; err == nil && failed {
		return nil, decodeError(status, failure)
	}
	if status != http.StatusOK {
		return nil, &statusError{status}
	}
	if err != nil {
		return nil, err
	}
	return o["result"], nil
}

// answers says whether o is a JSON-RPC 2.0 reply to the request with this id: a
// result or an error and not both. An error to a request that the node could
// not read has a null id.
func (o object) answers(id uint64) error {
	_, failed := o["error"]
	_, succeeded := o["result"]
	got := string(o["id"])
	switch {
	case string(o["jsonrpc"]) != `"2.0"` || failed == succeeded:
		return errors.New("reply is not JSON-RPC 2.0")
	case got != strconv.FormatUint(id, 10) && (!failed || got != "null"):
		return fmt.Errorf("reply has id %s, the request had %d", excerpt(got), id)
	}
	return nil
}

// decodeError reads an error object as far as it can be read: whatever it
// says, it is not an answer.
func decodeError(status int, raw json.RawMessage) error {
	e := &nodeError{status: status}
	o, err := parseObject(raw)
	if err != nil {
		return errors.New("reply has an error that is no object")
	}
	code, err := strconv.ParseInt(string(o["code"]), 10, 64)
	if err != nil {
		return errors.New("reply has an error without a code")
	}
	e.code = code
	var message string
	if json.Unmarshal(o["message"], &message) != nil {
		message = ""
	}
	e.message = excerpt(message)
	return e
}

// object is a JSON object, one level deep.
type object strictjson.Members

// maxDepth bounds nesting. A receipt in a batch, at about six, is the deepest
// that is asked for.
const maxDepth = 32

// parseObject reads exactly one JSON object.
func parseObject(b []byte) (object, error) {
	o, err := strictjson.Split(b, maxDepth)
	if err != nil {
		return nil, fmt.Errorf("reply: %w", err)
	}
	return object(o), nil
}

// excerpt quotes a node's words for a cause.
func excerpt(s string) string { return printable.Quote(s, maxExcerpt) }
