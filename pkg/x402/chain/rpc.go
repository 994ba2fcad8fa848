package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

const (
	// maxBody bounds the body of an answer. The longest expected body is about 6 MiB, for
	// 10,000 logs.
	maxBody   = 8 << 20
	maxHeader = 32 << 10
	// maxExcerpt limits how much of a node's text an error quotes.
	maxExcerpt = 160

	connectTimeout = 3 * time.Second // the time limit of the dial, and also of the TLS handshake after it
	// idleTimeout is short because a connection is kept only for the messages of one call, such
	// as Find. A Lambda environment must not use an old connection after a freeze.
	idleTimeout = 5 * time.Second
)

// errNoBatch is the error if a node does not answer a batch, perhaps because the batch is too
// large for the node. The package handles this error itself.
var errNoBatch = errors.New("node does not answer a batch of this size")

// nodeError is a JSON-RPC error object, with which a node refuses to answer.
type nodeError struct {
	status  int // HTTP status
	code    int64
	message string
}

func (e *nodeError) Error() string {
	return fmt.Sprintf("node answered error %d (HTTP %d): %s", e.code, e.status, e.message)
}

// statusError is an HTTP answer that is not a JSON-RPC reply.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("node answered HTTP %d", int(e)) }

// isTooMuch reports whether a failed call may succeed if it asks for less. Providers have
// different errors for a range that is too wide and for a batch that is too large. So every
// refusal counts, except one that is about our identity or the rate of our calls.
func isTooMuch(err error) bool {
	if refused, is := errors.AsType[*nodeError](err); is {
		return !isBarred(refused.status) && refused.code != http.StatusTooManyRequests
	}
	_, long := errors.AsType[*http.MaxBytesError](err)
	return long || errors.Is(err, statusError(http.StatusRequestEntityTooLarge)) || errors.Is(err, errNoBatch)
}

// isBarred reports whether an HTTP status is about our identity or the rate of our calls.
func isBarred(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests
}

// node is one JSON-RPC endpoint.
type node struct {
	url *url.URL
	// rightChain is set once the node has said that it is on the right chain.
	rightChain atomic.Bool
}

// newTransport returns the transport for all nodes. It uses HTTP/1.1 and no proxy from the
// environment, and keeps an idle connection only for idleTimeout.
func newTransport() *http.Transport {
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout:    connectTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    4,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              only1,
	}
}

// exchange posts one message and returns the answer's HTTP status and body. It uses the
// transport directly because http.Client would follow redirects and put the URL into its
// errors.
func (s *session) exchange(queries []query) (int, []byte, error) {
	var message any = queries
	if len(queries) == 1 {
		message = queries[0]
	}
	encoded, err := json.Marshal(message)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.node.url.String(), bytes.NewReader(encoded))
	if err != nil {
		return 0, nil, errors.New("RPC URL cannot be asked") // err would quote the URL
	}
	req.Header = http.Header{
		"Accept":       {"application/json"},
		"Content-Type": {"application/json"},
		"User-Agent":   {s.config.UserAgent},
		// With this header the transport does not decompress the body, so maxBody bounds the
		// memory.
		"Accept-Encoding": {"identity"},
		// net/http does not send this header, because the header has no value. But the header
		// tells net/http that it may send the request again if a kept connection turns out to
		// be closed. That is safe because all calls here only read.
		"Idempotency-Key": {},
	}
	if user := s.node.url.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, s.maxBody))
	if err != nil {
		return 0, nil, fmt.Errorf("read the reply: %w", err)
	}
	return resp.StatusCode, body, nil
}

// query is a JSON-RPC request. Its version and ID are set when it is sent.
type query struct {
	Version string `json:"jsonrpc"`
	ID      int    `json:"id"`
	Method  string `json:"method"`
	Params  []any  `json:"params"`
}

// decodeReplies checks the answer to one message and returns the results in the order of the
// queries. The answer to several queries is a batch, whose replies may be in any order. Each
// query must have exactly one reply.
func decodeReplies(status int, body []byte, queries []query) ([]json.RawMessage, error) {
	replies := []json.RawMessage{body}
	if len(queries) > 1 {
		replies = nil
		switch err := json.Unmarshal(body, &replies); {
		case isBarred(status):
			return nil, statusError(status)
		case err != nil || status != http.StatusOK || len(replies) != len(queries):
			return nil, errNoBatch
		}
	}
	results := make([]json.RawMessage, len(queries))
	var failed error
	for _, raw := range replies {
		reply, err := untrusted.Split(raw, maxDepth)
		if err != nil {
			return nil, orStatus(status, fmt.Errorf("reply: %w", err))
		}
		result, err := resultOf(status, reply)
		id := string(reply["id"])
		// If the node could not read the request, its error reply has a null id.
		withoutID := err != nil && id == "null" && len(queries) == 1
		at := slices.IndexFunc(queries, func(q query) bool {
			return withoutID || strconv.Itoa(q.ID) == id
		})
		if at < 0 || results[at] != nil {
			err := fmt.Errorf("reply has id %s, which no request had or another reply has", untrusted.Quote(id, maxExcerpt))
			return nil, orStatus(status, err)
		}
		if err == nil {
			results[at] = result
			continue
		}
		results[at] = raw
		if failed == nil {
			failed = fmt.Errorf("%s: %w", queries[at].Method, err)
		}
	}
	if failed != nil {
		return nil, failed
	}
	return results, nil
}

// orStatus returns a statusError if the HTTP status is not 200, and err otherwise.
func orStatus(status int, err error) error {
	if status != http.StatusOK {
		return statusError(status)
	}
	return err
}

// resultOf returns the result of a JSON-RPC 2.0 reply, or its error. A reply must have exactly
// one of the two. A result needs HTTP status 200; an error may come with any status.
func resultOf(status int, reply untrusted.Members) (json.RawMessage, error) {
	failure, failed := reply["error"]
	result, succeeded := reply["result"]
	valid := string(reply["jsonrpc"]) == `"2.0"` && failed != succeeded
	if valid && succeeded && status == http.StatusOK {
		return result, nil
	}
	if !valid || succeeded {
		return nil, orStatus(status, errors.New("reply is not JSON-RPC 2.0"))
	}
	var e struct {
		Code    *int64
		Message json.RawMessage
	}
	if json.Unmarshal(failure, &e) != nil || e.Code == nil {
		return nil, errors.New("reply has an error that is not an object with a code")
	}
	return nil, &nodeError{
		status:  status,
		code:    *e.Code,
		message: untrusted.Quote(string(e.Message), maxExcerpt),
	}
}
