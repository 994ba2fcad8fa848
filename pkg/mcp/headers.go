package mcp

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/header"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

// readHeaders holds a request of revision 2026-07-28 to the headers that repeat
// it for whatever routes it (basic/transports/streamable-http).
func (q *Request) readHeaders(h http.Header) *Error {
	if _, ok := q.meta[metaCapabilities].(strictjson.Object); !ok {
		return invalid(CodeInvalidParams, "_meta[%q] must be an object", metaCapabilities)
	}
	method, more := single(h, header.MCPMethod)
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
	named, more := single(h, header.MCPName)
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
