package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hostfacts/hostfacts/infra/paymcp/buyer"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

const (
	// maxBody limits how much of a response is read, in bytes.
	maxBody = 4 << 20
	// maxPages and maxTools limit the list of tools that is read.
	maxPages = 20
	maxTools = 200
	// connectTime limits the time to connect to the server.
	connectTime = 15 * time.Second
)

// upstream is the paid server. Many calls share a session until one of them fails.
type upstream struct {
	url    string
	client *mcp.Client
	http   *http.Client
	mu     sync.Mutex
	shared *session
}

// session is an MCP session with the server. After a failure, the session is closed as soon as
// no call uses it any more.
type session struct {
	*mcp.ClientSession
	users  int
	failed bool
}

func newUpstream(url string, transport http.RoundTripper) *upstream {
	return &upstream{
		url: url,
		client: mcp.NewClient(&mcp.Implementation{
			Name:    "pay-mcp",
			Title:   "pay-mcp",
			Version: version,
		}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}),
		http: &http.Client{
			Transport: limitedTransport{transport},
			// Redirects are not followed, because a payment is only for the server that was
			// allowed.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// limitedTransport is a transport that limits how much of a response is read.
type limitedTransport struct{ transport http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = &limitedBody{ReadCloser: res.Body, left: maxBody}
	return res, nil
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (l *limitedBody) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("the server's answer has more than %d bytes", maxBody)
	}
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// acquireSession returns the shared session. If there is none, acquireSession connects to the
// server. The caller must release the session with releaseSession.
func (u *upstream) acquireSession(ctx context.Context) (*session, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shared == nil {
		ctx, cancel := context.WithTimeout(ctx, connectTime)
		defer cancel()
		s, err := u.client.Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint:             u.url,
			HTTPClient:           u.http,
			MaxRetries:           -1,
			DisableStandaloneSSE: true,
			MaxEventSize:         maxBody,
		}, nil)
		if err != nil {
			return nil, err
		}
		u.shared = &session{ClientSession: s}
	}
	u.shared.users++
	return u.shared, nil
}

// releaseSession releases a session. After a failure, the session is not used again.
func (u *upstream) releaseSession(s *session, failed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s.users--
	s.failed = s.failed || failed
	if s.failed && u.shared == s {
		u.shared = nil
	}
	if s.failed && s.users == 0 {
		go func() { _ = s.Close() }() // Close may send a request; nobody waits for its answer
	}
}

// Call implements buyer.Upstream.
func (u *upstream) Call(ctx context.Context, q buyer.Request) (buyer.Reply, error) {
	s, err := u.acquireSession(ctx)
	if err != nil {
		return buyer.Reply{}, &buyer.NotSent{Cause: fmt.Errorf("the server cannot be reached: %w", withSafeText(err))}
	}
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	res, err := s.CallTool(ctx, &mcp.CallToolParams{
		Meta:      q.Meta,
		Name:      q.Tool,
		Arguments: q.Arguments,
	})
	said, isSaid := errors.AsType[*jsonrpc.Error](err)
	isSaid = isSaid && !isFromSDK(said.Code)
	u.releaseSession(s, err != nil && !isSaid)
	switch {
	case err == nil:
		return replyOf(res)
	case isSaid && sent.Load():
		return buyer.Reply{}, &buyer.ServerError{
			Code:    said.Code,
			Message: said.Message,
			Data:    said.Data,
		}
	case !sent.Load():
		return buyer.Reply{}, &buyer.NotSent{Cause: withSafeText(err)}
	}
	return buyer.Reply{}, withSafeText(err)
}

// isFromSDK reports whether the SDK made up this error code, for a closed connection or for an
// HTTP status. All other codes come from the server.
func isFromSDK(code int64) bool {
	const (
		closing  = -32003
		unknown  = -32004
		rejected = -32005
	)
	return code == closing || code == unknown || code == rejected
}

// withSafeText returns an error whose text is safe for a model and for a log, although the
// original text may quote the server.
func withSafeText(err error) error {
	if err == nil {
		return nil
	}
	return safeTextError{untrusted.Text(err.Error()), err}
}

// safeTextError is an error whose text was replaced.
type safeTextError struct {
	text  string
	cause error
}

// Error implements error.
func (e safeTextError) Error() string { return e.text }

// Unwrap returns the original error.
func (e safeTextError) Unwrap() error { return e.cause }

// replyOf converts a result of the SDK to a reply. The reply is what the server wrote, as far
// as the SDK preserves that.
func replyOf(res *mcp.CallToolResult) (buyer.Reply, error) {
	content, err := json.Marshal(res.Content)
	if err != nil {
		return buyer.Reply{}, err
	}
	r := buyer.Reply{Content: content, IsError: res.IsError, Meta: map[string]json.RawMessage{}}
	for name, v := range res.Meta {
		raw, err := json.Marshal(v)
		if err != nil {
			return buyer.Reply{}, err
		}
		r.Meta[name] = raw
	}
	if res.StructuredContent == nil {
		return r, nil
	}
	// The SDK reads numbers as float64, which can lose digits. If the text holds the same
	// object, the text is used, because it is exactly what the server wrote.
	var same any
	if text := r.Text(); json.Unmarshal([]byte(text), &same) == nil && reflect.DeepEqual(same, res.StructuredContent) {
		r.Structured = json.RawMessage(text)
		return r, nil
	}
	r.Structured, err = json.Marshal(res.StructuredContent)
	return r, err
}

// tools returns the server's name and version, and its tools.
func (u *upstream) tools(ctx context.Context) (*mcp.Implementation, []*mcp.Tool, error) {
	s, err := u.acquireSession(ctx)
	if err != nil {
		return nil, nil, withSafeText(err)
	}
	limited, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	var all []*mcp.Tool
	params := &mcp.ListToolsParams{}
	for range maxPages {
		var page *mcp.ListToolsResult
		if page, err = s.ListTools(limited, params); err != nil {
			break
		}
		all = append(all, page.Tools...)
		if params = (&mcp.ListToolsParams{Cursor: page.NextCursor}); page.NextCursor == "" || len(all) >= maxTools {
			break
		}
	}
	var name *mcp.Implementation
	if greeting := s.InitializeResult(); greeting != nil {
		name = greeting.ServerInfo
	}
	u.releaseSession(s, err != nil)
	if err != nil {
		return nil, nil, withSafeText(err)
	}
	return name, all[:min(len(all), maxTools)], nil
}
