package dynamo_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
)

// proxy stands before a server, counts the calls, and can do what the server
// does not: return the old item with a failed condition, and lose replies.
type proxy struct {
	t        *testing.T
	target   string
	withItem bool
	// lost is called after the server has processed a call; when it returns
	// true the connection is closed without a reply.
	lost func(op string, n int) bool

	mu    sync.Mutex
	calls map[string]int
}

// start returns the proxy's address.
func (p *proxy) start(t *testing.T, server dynamotest.Server) dynamotest.Server {
	t.Helper()
	p.t, p.target, p.calls = t, server.URL, map[string]int{}
	front := httptest.NewServer(p)
	t.Cleanup(front.Close)
	return dynamotest.Server{URL: front.URL}
}

// count returns how many calls of each kind arrived since the last count.
func (p *proxy) count() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = map[string]int{}
	return calls
}

// check ends a call on an error of the proxy's own.
func (p *proxy) check(err error) {
	if err != nil {
		p.t.Errorf("proxy: %v", err)
		panic(http.ErrAbortHandler)
	}
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	p.mu.Lock()
	p.calls[op]++
	n := p.calls[op]
	p.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	p.check(err)
	status, header, reply := p.forward(req, op, body)
	if p.withItem && op == "PutItem" && bytes.Contains(reply, []byte("ConditionalCheckFailedException")) {
		reply = p.addItem(req, body, reply)
		header.Del("X-Amz-Crc32") // of the reply without the item
	}
	if p.lost != nil && p.lost(op, n) {
		panic(http.ErrAbortHandler) // closes the connection
	}
	header.Del("Content-Length")
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = w.Write(reply) // the client may be gone
}

func (p *proxy) forward(req *http.Request, op string, body []byte) (int, http.Header, []byte) {
	out, err := http.NewRequest(http.MethodPost, p.target, bytes.NewReader(body))
	p.check(err)
	out.Header = req.Header.Clone()
	out.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	res, err := http.DefaultClient.Do(out)
	p.check(err)
	defer func() { _ = res.Body.Close() }()
	reply, err := io.ReadAll(res.Body)
	p.check(err)
	return res.StatusCode, res.Header, reply
}

// addItem does for a failed PutItem what DynamoDB does when it is asked.
func (p *proxy) addItem(req *http.Request, body, reply []byte) []byte {
	var put struct {
		TableName                           string
		Item                                map[string]json.RawMessage
		ReturnValuesOnConditionCheckFailure string
	}
	if err := json.Unmarshal(body, &put); err != nil || put.ReturnValuesOnConditionCheckFailure != "ALL_OLD" {
		p.t.Errorf("proxy: %s (%v) does not ask for the old item", body, err)
		return reply
	}
	get, err := json.Marshal(map[string]any{
		"TableName": put.TableName, "ConsistentRead": true, "Key": map[string]any{"pk": put.Item["pk"]},
	})
	p.check(err)
	_, _, got := p.forward(req, "GetItem", get)
	var failure map[string]json.RawMessage
	var found struct{ Item json.RawMessage }
	p.check(json.Unmarshal(reply, &failure))
	p.check(json.Unmarshal(got, &found))
	if found.Item == nil {
		return reply // nothing was there
	}
	failure["Item"] = found.Item
	full, err := json.Marshal(failure)
	p.check(err)
	return full
}
