package chain

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// secret stands for a provider's key, which must not appear in any cause.
const secret = "s3cr3tk3y"

// proxy is a server in front of the node of a chain. It counts the calls, and its rule may
// change the answers.
type proxy struct {
	server *httptest.Server
	target http.Handler
	mu     sync.Mutex
	rule   rule
	calls  []call
	trips  int // the number of messages since the last reset; a batch is one message
	batch  int // the largest batch that is accepted, in requests; 0 means any
}

func startProxy(t testing.TB, target http.Handler, r rule) *proxy {
	p := &proxy{target: target, rule: r}
	p.server = httptest.NewServer(p)
	t.Cleanup(func() {
		p.server.CloseClientConnections() // some connections hang on purpose
		p.server.Close()
	})
	return p
}

// url returns a URL with the secret in every component that can hold one.
func (p *proxy) url() string {
	return strings.Replace(p.server.URL, "http://", "http://user:"+secret+"@", 1) + "/v2/" + secret + "?key=" + secret
}

// reset forgets the calls and sets the rule. With a nil rule, every call goes to the node.
func (p *proxy) reset(r rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule, p.calls, p.trips = r, nil, 0
}

// methods returns the methods of the calls since the last reset.
func (p *proxy) methods() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		names = append(names, c.Method)
	}
	return names
}

// messages returns the number of messages since the last reset.
func (p *proxy) messages() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	user, password, _ := r.BasicAuth()
	if err != nil || user != "user" || password != secret || r.URL.String() != "/v2/"+secret+"?key="+secret {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.trips++
	most := p.batch
	p.mu.Unlock()
	var list []json.RawMessage
	switch {
	case json.Unmarshal(body, &list) != nil:
		p.serve(r.Context(), w, body, false)
	case most > 0 && len(list) > most:
		http.Error(w, "batch too large", http.StatusBadRequest)
	default:
		p.serveBatch(r.Context(), w, list)
	}
}

// serveBatch answers each request of a batch separately. An answer that is not a JSON-RPC reply
// becomes the answer to the whole batch.
func (p *proxy) serveBatch(ctx context.Context, w http.ResponseWriter, list []json.RawMessage) {
	replies := make([]json.RawMessage, len(list))
	for i, body := range list {
		one := httptest.NewRecorder()
		p.serve(ctx, one, body, len(list) > 1)
		replies[i] = one.Body.Bytes()
		if !json.Valid(replies[i]) {
			w.WriteHeader(one.Code)
			_, _ = w.Write(replies[i])
			return
		}
	}
	_ = json.NewEncoder(w).Encode(replies)
}

func (p *proxy) serve(ctx context.Context, w http.ResponseWriter, body []byte, batched bool) {
	c := call{ResponseWriter: w, clientGone: ctx.Done(), body: string(body), batched: batched, node: p.ask}
	if json.Unmarshal(body, &c) != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	c.callsBefore = len(p.calls)
	p.calls = append(p.calls, c)
	rule := p.rule
	p.mu.Unlock()
	if rule == nil || !rule(&c) {
		c.say(c.node(c.body))
	}
}

// ask sends a body to the node behind the proxy, and returns the node's answer.
func (p *proxy) ask(body string) string {
	r, answer := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)), httptest.NewRecorder()
	r.Header.Set("Content-Type", "application/json")
	p.target.ServeHTTP(answer, r)
	return answer.Body.String()
}

// call is one call on its way through the proxy.
type call struct {
	http.ResponseWriter `json:"-"`

	ID     json.RawMessage   `json:"id"`
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`

	body        string
	clientGone  <-chan struct{}          // closed when the client has given up
	batched     bool                     // whether the call is one of the calls in a batch
	callsBefore int                      // the number of calls before it since the last reset
	node        func(body string) string // sends a body to the node behind the proxy, and returns its answer
}

// say writes an answer, or the beginning of one, and returns true.
func (c *call) say(text string) bool {
	_, _ = io.WriteString(c, text) // the client may be gone
	return true
}

// mentions reports whether a call contains a quoted text, such as a block or a transaction.
func (c *call) mentions(what string) bool { return strings.Contains(c.body, `"`+what+`"`) }

// rule may answer a call instead of the node, and then returns true. If it returns false, the
// call goes to the node.
type rule func(c *call) bool

// onMethod applies a rule to the calls of one method.
func onMethod(method string, r rule) rule {
	return func(c *call) bool { return c.Method == method && r(c) }
}

// onMention applies a rule to the calls that mention a text.
func onMention(what string, r rule) rule {
	return func(c *call) bool { return c.mentions(what) && r(c) }
}

// either tries two rules in order, and stops if the first one answers.
func either(a, b rule) rule {
	return func(c *call) bool { return a(c) || b(c) }
}

// limitRange applies the rule refusal to each search of more than maxBlocks blocks.
func limitRange(t testing.TB, maxBlocks uint64, refusal rule) rule {
	return onMethod(methodLogs, func(c *call) bool {
		var filter map[string]json.RawMessage
		err := json.Unmarshal(c.Params[0], &filter)
		from, err1 := decodeQuantity(filter["fromBlock"])
		to, err2 := decodeQuantity(filter["toBlock"])
		if err := errors.Join(err, err1, err2); err != nil || to < from {
			t.Errorf("a search for %s: %v", c.Params[0], err)
		}
		return to-from+1 > maxBlocks && refusal(c)
	})
}

// reply answers with a JSON-RPC reply that has the given member.
func reply(status int, member string) rule {
	return func(c *call) bool { return plainBody(status, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,`+member+`}`)(c) }
}

func result(raw string) rule { return reply(http.StatusOK, `"result":`+raw) }

// refusal answers with a JSON-RPC error.
func refusal(status int, object string) rule { return reply(status, `"error":`+object) }

func refuseAnyway() rule { return refusal(http.StatusOK, `{"code":-32000,"message":"no"}`) }

// tooWide refuses a range of blocks with the error of a real provider.
func tooWide() rule {
	return refusal(http.StatusOK, `{"code":-32602,"message":"query exceeds max block range"}`)
}

// plainBody answers with a body that is not JSON-RPC.
func plainBody(status int, body string) rule {
	return func(c *call) bool {
		c.WriteHeader(status)
		return c.say(body)
	}
}

// slowDown answers as a node does to a client that calls too often.
func slowDown() rule { return plainBody(http.StatusTooManyRequests, "slow down") }

// changeAnswer changes the text of the node's answers.
func changeAnswer(change func(answer string) string) rule {
	return func(c *call) bool { return c.say(change(c.node(c.body))) }
}

// rewrite replaces texts in the node's answers to calls of one method. The texts are pairs of
// old and new.
func rewrite(method string, pairs ...string) rule {
	return onMethod(method, changeAnswer(strings.NewReplacer(pairs...).Replace))
}

// changeLogs changes the list of logs in the node's answer to a search. The function change
// gets the text between the brackets of the list, and returns the new text.
func changeLogs(change func(logs string) string) rule {
	return onMethod(methodLogs, changeAnswer(func(answer string) string {
		before, rest, _ := strings.Cut(answer, `"result":[`)
		end := strings.LastIndex(rest, "]")
		return before + `"result":[` + change(rest[:end]) + rest[end:]
	}))
}

// setMember replaces a member of a block, such as its number or time.
func setMember(name, value string) rule {
	return changeAnswer(func(answer string) string {
		before, rest, _ := strings.Cut(answer, `"`+name+`":"`)
		_, after, _ := strings.Cut(rest, `"`)
		return before + `"` + name + `":"` + value + `"` + after
	})
}

// askInstead replaces a quoted text in each call that mentions it. The node then answers about
// something else, such as another block.
func askInstead(what, other string) rule {
	return onMention(what, func(c *call) bool { return c.say(c.node(strings.Replace(c.body, `"`+what+`"`, `"`+other+`"`, 1))) })
}
