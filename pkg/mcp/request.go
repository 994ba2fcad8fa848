package mcp

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

// MaxBody is the longest message that is read, in bytes.
const MaxBody = 64 << 10

// maxDepth bounds the nesting of a message, and that of a payment in it.
const maxDepth = 32

// Modern is the revision since which there is no handshake.
const Modern = "2026-07-28"

// assumed is the revision of a request that does not name one (revision
// 2025-11-25, transports).
const assumed = "2025-03-26"

// Legacy are the revisions that begin with initialize, the newest first.
func Legacy() []string { return []string{"2025-11-25", "2025-06-18", assumed} }

// Versions are all revisions that are spoken, the newest first.
func Versions() []string { return append([]string{Modern}, Legacy()...) }

const rpcVersion = "2.0"

// The protocol's headers, in the form in which net/http keeps them.
const (
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
)

// Keys of _meta in a request, of revision 2026-07-28.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
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
	Params strictjson.Object // never nil
	Modern bool
	meta   strictjson.Object // never nil
}

// Notification says that the sender waits for no answer.
func (q *Request) Notification() bool { return q.ID == nil }

// Read reads the body of a POST and holds it to its headers. With an error comes
// the request, too, if its id could be read.
func Read(h http.Header, body []byte) (*Request, *Error) {
	if t := h.Get("Content-Type"); t != "" {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
			return nil, &Error{Status: http.StatusUnsupportedMediaType, Code: CodeInvalidRequest, Message: "the body must be application/json"}
		}
	}
	if len(body) > MaxBody {
		return nil, &Error{
			Status: http.StatusRequestEntityTooLarge, Code: CodeInvalidRequest,
			Message: fmt.Sprintf("the message is longer than %d bytes", MaxBody),
		}
	}
	tree, err := strictjson.Parse(body, maxDepth)
	switch {
	case err != nil && json.Valid(body):
		return nil, invalid(CodeInvalidRequest, "one JSON-RPC request or notification, please: %v", err)
	case err != nil:
		return nil, invalid(CodeParse, "the body is not JSON")
	}
	q, fault := readMessage(tree)
	if fault == nil {
		fault = q.readParams(tree)
	}
	if fault == nil {
		fault = q.readVersion(h)
	}
	if fault == nil && q.Modern {
		fault = q.readHeaders(h)
	}
	if fault != nil && q != nil {
		fault.id = q.ID
	}
	return q, fault
}

func readMessage(tree strictjson.Object) (*Request, *Error) {
	if tree["jsonrpc"] != rpcVersion {
		return nil, invalid(CodeInvalidRequest, `jsonrpc must be "2.0"`)
	}
	q := &Request{Params: strictjson.Object{}, meta: strictjson.Object{}}
	if id, there := tree["id"]; there {
		switch id.(type) {
		case string, json.Number:
			q.ID = encode(id)
		default:
			return nil, invalid(CodeInvalidRequest, "id must be a string or a number")
		}
	}
	var ok bool
	if q.Method, ok = tree["method"].(string); !ok || q.Method == "" {
		return q, invalid(CodeInvalidRequest, "method must be a string: a server without requests of its own takes no responses")
	}
	return q, nil
}

func (q *Request) readParams(tree strictjson.Object) *Error {
	params, there := tree["params"]
	if !there {
		return nil
	}
	p, ok := params.(strictjson.Object)
	if !ok {
		return invalid(CodeInvalidParams, "params must be an object")
	}
	q.Params = p
	meta, there := p["_meta"]
	if !there {
		return nil
	}
	if q.meta, ok = meta.(strictjson.Object); !ok {
		q.meta = strictjson.Object{}
		return invalid(CodeInvalidParams, "params._meta must be an object")
	}
	return nil
}

// readVersion decides by which revision the request is judged. What it says in
// _meta counts; only where that is silent does the header alone.
func (q *Request) readVersion(h http.Header) *Error {
	named, more := single(h, HeaderVersion)
	if more {
		return invalid(CodeHeaderMismatch, "the header MCP-Protocol-Version was sent more than once")
	}
	said, there := q.meta[metaVersion]
	version, ok := said.(string)
	switch {
	case there && !ok:
		return invalid(CodeInvalidParams, "_meta[%q] must be a string", metaVersion)
	case there && named != version:
		return invalid(CodeHeaderMismatch, "the header MCP-Protocol-Version must be what _meta[%q] says", metaVersion)
	case !there && named == "":
		version = assumed
	case !there:
		version = named
	}
	if !slices.Contains(Versions(), version) {
		e := invalid(CodeVersion, "this server does not speak protocol version %s", printable.Quote(version, 40))
		e.Data = unspoken{Supported: Versions(), Requested: version}
		return e
	}
	q.Modern = version == Modern
	if q.Modern && !there {
		return invalid(CodeInvalidParams, "_meta[%q] is missing", metaVersion)
	}
	return nil
}

// unspoken is the data of an error about a version.
type unspoken struct {
	Supported []string `json:"supported"`
	Requested string   `json:"requested"`
}

// readHeaders holds a request of revision 2026-07-28 to the headers that repeat
// it for whatever routes it (basic/transports/streamable-http).
func (q *Request) readHeaders(h http.Header) *Error {
	if _, ok := q.meta[metaCapabilities].(strictjson.Object); !ok {
		return invalid(CodeInvalidParams, "_meta[%q] must be an object", metaCapabilities)
	}
	method, more := single(h, HeaderMethod)
	if more || method != q.Method {
		return invalid(CodeHeaderMismatch, "the header Mcp-Method must be the request's method")
	}
	member := ""
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
		return invalid(CodeInvalidParams, "params.%s must be a string", member)
	}
	named, more := single(h, HeaderName)
	plain, ok := decodeName(named)
	if named == "" || more || !ok || plain != name {
		return invalid(CodeHeaderMismatch, "the header Mcp-Name must be params.%s", member)
	}
	return nil
}

// decodeName undoes the encoding of a name that is no header value by itself.
func decodeName(s string) (name string, ok bool) {
	const begin, end = "=?base64?", "?="
	inner, ok := strings.CutPrefix(s, begin)
	if !ok {
		return s, true
	}
	if inner, ok = strings.CutSuffix(inner, end); !ok {
		return "", false
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(raw), err == nil
}

// single is the value of a header that may be sent once, without the white
// space around it.
func single(h http.Header, name string) (value string, more bool) {
	values := h.Values(name)
	if len(values) == 0 {
		return "", false
	}
	return strings.Trim(values[0], " \t"), len(values) > 1
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
	Arguments strictjson.Object // never nil
	// Payment is the x402 payment that came with it; nil is none.
	Payment strictjson.Object
	// BadPayment says what is wrong with a payment that is no JSON object, in
	// words that may be shown to the client.
	BadPayment error
	// Keys is the purchase key, once at most. One that is no text is empty, which
	// no key may be.
	Keys []string
}

// Paid says that the call comes with a payment, in order or not.
func (c *Call) Paid() bool { return c.Payment != nil || c.BadPayment != nil }

// Call reads a tools/call of one of the tools that has knows. The call comes
// also with an error, as far as it could be read, so that it can be counted as
// what it is.
func (q *Request) Call(has func(tool string) bool) (*Call, *Error) {
	c := &Call{Arguments: strictjson.Object{}}
	c.readPayment(q.meta[KeyPayment])
	if key, there := q.meta[KeyPurchase]; there {
		text, _ := key.(string)
		c.Keys = []string{text}
	}
	name, ok := q.Params["name"].(string)
	if !ok {
		return c, q.refuse(http.StatusBadRequest, CodeInvalidParams, "params.name must be a string")
	}
	if !has(name) {
		return c, q.refuse(http.StatusBadRequest, CodeInvalidParams, "unknown tool %s", printable.Quote(name, 40))
	}
	c.Tool = name
	switch a := q.Params["arguments"].(type) {
	case nil: // missing, or null
	case strictjson.Object:
		c.Arguments = a
	default:
		return c, q.refuse(http.StatusBadRequest, CodeInvalidParams, "params.arguments must be an object")
	}
	return c, nil
}

// readPayment takes the payment as an object, or as the text of one, which some
// clients send.
func (c *Call) readPayment(v any) {
	switch p := v.(type) {
	case nil:
	case strictjson.Object:
		c.Payment = p
	case string:
		tree, err := strictjson.Parse([]byte(p), maxDepth)
		if err != nil {
			c.BadPayment = fmt.Errorf("%s is not acceptable JSON: %w", KeyPayment, err)
			return
		}
		c.Payment = tree
	default:
		c.BadPayment = errors.New(KeyPayment + " must be an object")
	}
}
