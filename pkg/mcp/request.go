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

// MaxBody is the length of the longest message that is accepted, in bytes.
const MaxBody = 64 << 10

// maxDepth limits the nesting of a message, and of a payment that is sent in the message as
// text.
const maxDepth = 32

// Modern is the first revision without a handshake. assumedVersion is the revision of a
// request that does not name one (revision 2025-11-25, transports).
const (
	Modern         = "2026-07-28"
	assumedVersion = "2025-03-26"
)

// Versions returns all revisions that the server supports, the newest first. Clients of all
// revisions except the newest begin with initialize.
func Versions() []string { return []string{Modern, "2025-11-25", "2025-06-18", assumedVersion} }

const rpcVersion = "2.0"

// The protocol's headers, in the canonical form of net/http.
const (
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
)

// Keys of _meta in the requests and results of revision 2026-07-28.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServer       = "io.modelcontextprotocol/serverInfo"
)

// The methods that the server answers.
const (
	MethodInitialize = "initialize"
	MethodDiscover   = "server/discover"
	MethodPing       = "ping"
	MethodList       = "tools/list"
	MethodCall       = "tools/call"
)

// Request is a request or a notification that follows the rules of its revision. It may name a
// method or a tool that does not exist.
type Request struct {
	// ID is a JSON string or number, as the client sent it. Nil means that the message is a
	// notification, which gets no answer.
	ID     json.RawMessage
	Method string
	Params untrusted.Object
	Modern bool
	meta   untrusted.Object
}

// Notification reports whether the message is a notification, which gets no answer.
func (q *Request) Notification() bool { return q.ID == nil }

// Parse parses the body of a POST and compares it with the headers. If the body or a header is
// wrong, errResponse is the response to send, and q has the members of the body that could be
// read.
func Parse(h http.Header, body []byte) (q *Request, errResponse *Response) {
	q = new(Request)
	if errResponse := q.parseMessage(h, body); errResponse != nil {
		return q, errResponse
	}
	if errResponse := q.parseVersion(h); errResponse != nil {
		return q, errResponse
	}
	if q.Modern {
		return q, q.checkHeaders(h)
	}
	return q, nil
}

// parseMessage parses the body, and sets all fields except Modern.
func (q *Request) parseMessage(h http.Header, body []byte) *Response {
	if t := h.Get("Content-Type"); t != "" {
		media, _, err := mime.ParseMediaType(t)
		if err != nil || media != "application/json" {
			return q.Fail(http.StatusUnsupportedMediaType, codeInvalidRequest, "the body must be application/json", nil)
		}
	}
	if len(body) > MaxBody {
		tooLong := fmt.Sprintf("the message is longer than %d bytes", MaxBody)
		return q.Fail(http.StatusRequestEntityTooLarge, codeInvalidRequest, tooLong, nil)
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
	if id, isSet := tree["id"]; isSet {
		switch id.(type) {
		case string, json.Number:
			q.ID = untrusted.Compact(id)
		default:
			return q.invalid(codeInvalidRequest, "id must be a string or a number")
		}
	}
	q.Method, _ = tree["method"].(string)
	if q.Method == "" {
		return q.invalid(codeInvalidRequest, "method must be a string: a server that asks for nothing takes no responses")
	}
	var ok bool
	q.Params, ok = objectMember(tree, "params")
	if !ok {
		return q.invalid(codeInvalidParams, "params must be an object")
	}
	q.meta, ok = objectMember(q.Params, "_meta")
	if !ok {
		return q.invalid(codeInvalidParams, "params._meta must be an object")
	}
	return nil
}

// objectMember returns the member of parent with the given name, which must itself be an
// object. If the member is missing, o is nil and ok is true. If the member is not an object,
// ok is false.
func objectMember(parent untrusted.Object, name string) (o untrusted.Object, ok bool) {
	v, isSet := parent[name]
	if !isSet {
		return nil, true
	}
	o, ok = v.(untrusted.Object)
	return o, ok
}

// parseVersion finds the revision of the request. If _meta names a revision, that revision
// counts, and the header must name the same revision. If _meta names none, the revision in the
// header counts. If the header names none either, the revision is assumedVersion.
func (q *Request) parseVersion(h http.Header) *Response {
	fromHeader, isSingle := singleHeader(h, HeaderVersion)
	if !isSingle {
		return q.invalid(codeHeaderMismatch, "the header MCP-Protocol-Version was sent more than once")
	}
	version := cmp.Or(fromHeader, assumedVersion)
	fromMeta, inMeta := q.meta[metaVersion]
	if inMeta {
		text, ok := fromMeta.(string)
		if !ok {
			return q.invalid(codeInvalidParams, "_meta[%q] must be a string", metaVersion)
		}
		if text != fromHeader {
			return q.invalid(codeHeaderMismatch, "the header MCP-Protocol-Version must be what _meta[%q] says", metaVersion)
		}
		version = text
	}
	if !slices.Contains(Versions(), version) {
		return q.unknownVersion(version)
	}
	q.Modern = version == Modern
	if q.Modern && !inMeta {
		return q.invalid(codeInvalidParams, "_meta[%q] is missing", metaVersion)
	}
	return nil
}

// unknownVersion returns the response to a request of a revision that the server does not
// support.
func (q *Request) unknownVersion(version string) *Response {
	type versions struct {
		Supported []string `json:"supported"`
		Requested string   `json:"requested"`
	}
	message := "this server does not speak protocol version " + untrusted.Quote(version, 40)
	return q.Fail(http.StatusBadRequest, codeVersion, message, versions{Supported: Versions(), Requested: version})
}

// checkHeaders checks a request of revision 2026-07-28 and its headers. These headers repeat
// parts of the body, for proxies that route by headers (basic/transports/streamable-http).
func (q *Request) checkHeaders(h http.Header) *Response {
	if _, ok := q.meta[metaCapabilities].(untrusted.Object); !ok {
		return q.invalid(codeInvalidParams, "_meta[%q] must be an object", metaCapabilities)
	}
	if method, isSingle := singleHeader(h, HeaderMethod); !isSingle || method != q.Method {
		return q.invalid(codeHeaderMismatch, "the header Mcp-Method must be the request's method")
	}
	var member string // the member of params that the header Mcp-Name repeats
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
	header, isSingle := singleHeader(h, HeaderName)
	decoded, ok := decodeName(header)
	isName := header != "" && ok && decoded == name
	if !isSingle || !isName {
		return q.invalid(codeHeaderMismatch, "the header Mcp-Name must be params.%s", member)
	}
	return nil
}

// decodeName decodes the value of the header Mcp-Name. A name that is not a valid header value
// is sent in base64.
func decodeName(s string) (name string, ok bool) {
	inner, encoded := strings.CutPrefix(s, "=?base64?")
	if !encoded {
		return s, true
	}
	inner, ok = strings.CutSuffix(inner, "?=")
	raw, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(raw), ok && err == nil
}

// singleHeader returns the value of a header without the white space around it. ok is false if
// the header was sent more than once.
func singleHeader(h http.Header, name string) (value string, ok bool) {
	return strings.Trim(h.Get(name), " \t"), len(h.Values(name)) <= 1
}

// Keys of _meta that carry payments (x402 transports v2, MCP). KeyPurchase is not in that
// specification: this server adds it.
const (
	KeyPayment  = "x402/payment"
	KeyResponse = "x402/payment-response"
	KeyPurchase = "x402/idempotency-key"
)

// Call is a call of a tool.
type Call struct {
	Tool      string
	Arguments untrusted.Object
	// Payment is the x402 payment of the call; nil means that there is none.
	Payment untrusted.Object
	// BadPayment is the error if the payment is not a JSON object. Its text may be shown to
	// the client.
	BadPayment error
	// Keys holds the purchase key of the call, if there is one. A key that is not a string
	// becomes an empty string, which is never a valid key.
	Keys []string
}

// Paid reports whether the call has a payment, valid or not.
func (c *Call) Paid() bool { return c.Payment != nil || c.BadPayment != nil }

// Call parses a request of the method tools/call. toolExists reports whether a tool with the
// given name exists.
func (q *Request) Call(toolExists func(tool string) bool) (*Call, *Response) {
	c := &Call{}
	c.Payment, c.BadPayment = q.payment()
	if key, isSet := q.meta[KeyPurchase]; isSet {
		text, _ := key.(string)
		c.Keys = []string{text}
	}
	name, ok := q.Params["name"].(string)
	if !ok {
		return nil, q.refuse(http.StatusBadRequest, codeInvalidParams, "params.name must be a string")
	}
	if !toolExists(name) {
		return nil, q.refuse(http.StatusBadRequest, codeInvalidParams, "unknown tool %s: tools/list has their names", untrusted.Quote(name, 40))
	}
	c.Tool = name
	if arguments := q.Params["arguments"]; arguments != nil {
		c.Arguments, ok = arguments.(untrusted.Object)
		if !ok {
			return nil, q.refuse(http.StatusBadRequest, codeInvalidParams, "params.arguments must be an object")
		}
	}
	return c, nil
}

// payment returns the payment of a call, or nil if there is none. The payment may be an object,
// or a string that contains one, because some clients send a string.
func (q *Request) payment() (untrusted.Object, error) {
	switch p := q.meta[KeyPayment].(type) {
	case nil:
		return nil, nil
	case untrusted.Object:
		return p, nil
	case string:
		parsed, err := untrusted.Parse([]byte(p), maxDepth)
		if err != nil {
			return nil, fmt.Errorf("%s is not acceptable JSON: %w", KeyPayment, err)
		}
		return parsed, nil
	default:
		return nil, errors.New(KeyPayment + " must be an object")
	}
}
