package mcp

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
)

// MaxBody is the longest message that is read, in bytes.
const MaxBody = 64 << 10

// maxDepth bounds the nesting of a message, and that of a payment in it.
const maxDepth = 32

// Modern is the first revision without a handshake, and assumed that of a request that
// does not name one (revision 2025-11-25, transports).
const (
	Modern  = "2026-07-28"
	assumed = "2025-03-26"
)

// Versions are all revisions that are spoken, the newest first. All but the first begin with
// initialize.
func Versions() []string { return []string{Modern, "2025-11-25", "2025-06-18", assumed} }

const rpcVersion = "2.0"

// The protocol's headers, in the form in which net/http keeps them.
const (
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
)

// Keys of _meta in a request and a result, of revision 2026-07-28.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServer       = "io.modelcontextprotocol/serverInfo"
)

// Methods that are answered.
const (
	MethodInitialize = "initialize"
	MethodDiscover   = "server/discover"
	MethodPing       = "ping"
	MethodList       = "tools/list"
	MethodCall       = "tools/call"
)

// Request is a request or a notification, read and found to be one of its
// revision. It is not yet known to ask for anything that exists.
type Request struct {
	// ID is a JSON string or number as it was sent; nil is a notification, which
	// gets no answer.
	ID     json.RawMessage
	Method string
	Params untrusted.Object
	Modern bool
	meta   untrusted.Object
}

// Notification says that the sender waits for no answer.
func (q *Request) Notification() bool { return q.ID == nil }

// Read reads the body of a POST and compares it with its headers. If either is wrong, bad is
// the answer, and q is what could be read.
func Read(h http.Header, body []byte) (q *Request, bad *Response) {
	q = new(Request)
	if bad = q.readMessage(h, body); bad == nil {
		bad = q.readVersion(h)
	}
	if bad == nil && q.Modern {
		bad = q.readHeaders(h)
	}
	return q, bad
}

func (q *Request) readMessage(h http.Header, body []byte) *Response {
	if t := h.Get("Content-Type"); t != "" {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
			return q.Fail(http.StatusUnsupportedMediaType, codeInvalidRequest, "the body must be application/json", nil)
		}
	}
	if len(body) > MaxBody {
		return q.Fail(http.StatusRequestEntityTooLarge, codeInvalidRequest, fmt.Sprintf("the message is longer than %d bytes", MaxBody), nil)
	}
	tree, err := untrusted.Parse(body, maxDepth)
	switch {
	case err != nil && json.Valid(body):
		return q.invalid(codeInvalidRequest, "one JSON-RPC request or notification, please: %v", err)
	case err != nil:
		return q.invalid(codeParse, "the body is not JSON")
	case tree["jsonrpc"] != rpcVersion:
		return q.invalid(codeInvalidRequest, `jsonrpc must be "2.0"`)
	}
	if id, there := tree["id"]; there {
		switch id.(type) {
		case string, json.Number:
			q.ID = untrusted.Compact(id)
		default:
			return q.invalid(codeInvalidRequest, "id must be a string or a number")
		}
	}
	var ok bool
	if q.Method, _ = tree["method"].(string); q.Method == "" {
		return q.invalid(codeInvalidRequest, "method must be a string: a server that asks for nothing takes no responses")
	}
	if q.Params, ok = member(tree, "params"); !ok {
		return q.invalid(codeInvalidParams, "params must be an object")
	}
	if q.meta, ok = member(q.Params, "_meta"); !ok {
		return q.invalid(codeInvalidParams, "params._meta must be an object")
	}
	return nil
}

// member is an object in another one; empty where there is nothing by that name.
func member(of untrusted.Object, name string) (o untrusted.Object, ok bool) {
	v, there := of[name]
	o, ok = v.(untrusted.Object)
	return o, ok || !there
}

// readVersion decides by which revision the request is judged. What it says in
// _meta counts; only where that is silent does the header alone.
func (q *Request) readVersion(h http.Header) *Response {
	named, once := single(h, HeaderVersion)
	said, there := q.meta[metaVersion]
	version, text := said.(string)
	switch {
	case !once:
		return q.invalid(codeHeaderMismatch, "the header MCP-Protocol-Version was sent more than once")
	case there && !text:
		return q.invalid(codeInvalidParams, "_meta[%q] must be a string", metaVersion)
	case there && named != version:
		return q.invalid(codeHeaderMismatch, "the header MCP-Protocol-Version must be what _meta[%q] says", metaVersion)
	case !there:
		version = cmp.Or(named, assumed)
	}
	if !slices.Contains(Versions(), version) {
		says := "this server does not speak protocol version " + untrusted.Quote(version, 40)
		return q.Fail(http.StatusBadRequest, codeVersion, says, struct {
			Supported []string `json:"supported"`
			Requested string   `json:"requested"`
		}{Versions(), version})
	}
	if q.Modern = version == Modern; q.Modern && !there {
		return q.invalid(codeInvalidParams, "_meta[%q] is missing", metaVersion)
	}
	return nil
}

// readHeaders compares a request of revision 2026-07-28 with the headers that repeat
// it for what routes it (basic/transports/streamable-http).
func (q *Request) readHeaders(h http.Header) *Response {
	if _, ok := q.meta[metaCapabilities].(untrusted.Object); !ok {
		return q.invalid(codeInvalidParams, "_meta[%q] must be an object", metaCapabilities)
	}
	if method, once := single(h, HeaderMethod); !once || method != q.Method {
		return q.invalid(codeHeaderMismatch, "the header Mcp-Method must be the request's method")
	}
	var member string // which is repeated in a header
	switch q.Method {
	case MethodCall, "prompts/get":
		member = "name"
	case "resources/read":
		member = "uri"
	default:
		return nil
	}
	name, ok := q.Params[member].(string)
	if !ok {
		return q.invalid(codeInvalidParams, "params.%s must be a string", member)
	}
	named, once := single(h, HeaderName)
	if plain, ok := decodeName(named); named == "" || !once || !ok || plain != name {
		return q.invalid(codeHeaderMismatch, "the header Mcp-Name must be params.%s", member)
	}
	return nil
}

// decodeName undoes the encoding of a name that cannot be a header's value by itself.
func decodeName(s string) (name string, ok bool) {
	inner, encoded := strings.CutPrefix(s, "=?base64?")
	if !encoded {
		return s, true
	}
	inner, ok = strings.CutSuffix(inner, "?=")
	raw, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(raw), ok && err == nil
}

// single is the value of a header without the white space around it; once is false if
// it was sent more often.
func single(h http.Header, name string) (value string, once bool) {
	return strings.Trim(h.Get(name), " \t"), len(h.Values(name)) <= 1
}

// Keys of _meta that carry payments (x402 transports v2, MCP). The last one is
// this server's own.
const (
	KeyPayment  = "x402/payment"
	KeyResponse = "x402/payment-response"
	KeyPurchase = "x402/idempotency-key"
)

// Call asks for a tool.
type Call struct {
	Tool      string
	Arguments untrusted.Object
	// Payment is the x402 payment that came with it; nil is none.
	Payment untrusted.Object
	// BadPayment says what is wrong with a payment that is not a JSON object, in
	// words that may be shown to the client.
	BadPayment error
	// Keys is the purchase key, once at most. One that is not a text is empty, which
	// no key may be.
	Keys []string
}

// Paid says that the call comes with a payment, valid or not.
func (c *Call) Paid() bool { return c.Payment != nil || c.BadPayment != nil }

// Call reads a tools/call of one of the tools that has knows. The payment is an object, or
// the text of one, which some clients send.
func (q *Request) Call(has func(tool string) bool) (*Call, *Response) {
	c := &Call{}
	switch p := q.meta[KeyPayment].(type) {
	case nil:
	case untrusted.Object:
		c.Payment = p
	case string:
		var err error
		if c.Payment, err = untrusted.Parse([]byte(p), maxDepth); err != nil {
			c.BadPayment = fmt.Errorf("%s is not acceptable JSON: %w", KeyPayment, err)
		}
	default:
		c.BadPayment = errors.New(KeyPayment + " must be an object")
	}
	if key, there := q.meta[KeyPurchase]; there {
		text, _ := key.(string)
		c.Keys = []string{text}
	}
	name, ok := q.Params["name"].(string)
	if !ok {
		return nil, q.refuse(http.StatusBadRequest, codeInvalidParams, "params.name must be a string")
	}
	if c.Tool = name; !has(name) {
		return nil, q.refuse(http.StatusBadRequest, codeInvalidParams, "unknown tool %s: tools/list has their names", untrusted.Quote(name, 40))
	}
	if sent := q.Params["arguments"]; sent != nil {
		if c.Arguments, ok = sent.(untrusted.Object); !ok {
			return nil, q.refuse(http.StatusBadRequest, codeInvalidParams, "params.arguments must be an object")
		}
	}
	return c, nil
}
