package buyer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/bill"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Request is a call of a tool as the server receives it.
type Request struct {
	Tool      string
	Arguments json.RawMessage
	Meta      map[string]any
}

// Reply is the result of a call, as the server wrote it.
type Reply struct {
	Content    json.RawMessage            `json:"content"` // a list of blocks
	Structured json.RawMessage            `json:"structuredContent,omitempty"`
	IsError    bool                       `json:"isError,omitempty"`
	Meta       map[string]json.RawMessage `json:"_meta,omitempty"`
}

// ServerError is a JSON-RPC error that the server returned.
type ServerError struct {
	Code    int64
	Message string
	Data    json.RawMessage
}

// Error implements error. The server's message is part of the text.
func (e *ServerError) Error() string {
	return fmt.Sprintf("error %d, %s", e.Code, untrusted.Quote(e.Message, mostWords))
}

// NotSent means that a call failed before its request was sent.
type NotSent struct{ Cause error }

// Error implements error.
func (e *NotSent) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *NotSent) Unwrap() error { return e.Cause }

// mostWords limits how many characters of a server's text are passed on.
const mostWords = 300

// Text returns the first block of text, or an empty string.
func (r Reply) Text() string {
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(r.Content, &blocks) != nil {
		return ""
	}
	for _, b := range blocks {
		if b.Type == "text" {
			return b.Text
		}
	}
	return ""
}

// offer returns the offer in a reply. The tool-result binding of x402 puts the offer into both
// the text and the structured content. The text is read first, because it is exactly what the
// server wrote.
func (r Reply) offer() (bill.Offer, bool) {
	if !r.IsError {
		return bill.Offer{}, false
	}
	for _, doc := range [][]byte{[]byte(r.Text()), r.Structured} {
		if o, asks := offerIn(doc); asks {
			return o, true
		}
	}
	return bill.Offer{}, false
}

// Some servers ask for a payment with a JSON-RPC error whose data is the offer. These are the
// codes of such errors: the HTTP status, and the code for an elicitation in MCP revision
// 2025-11-25.
const (
	codePayment     = 402
	codeElicitation = -32042
)

// offer returns the offer in an error.
func (e *ServerError) offer() (bill.Offer, bool) {
	if e.Code != codePayment && e.Code != codeElicitation {
		return bill.Offer{}, false
	}
	return offerIn(e.Data)
}

// offerIn returns the offer in a JSON document, and reports whether the document is an offer.
func offerIn(doc []byte) (bill.Offer, bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(doc), []byte("{")) {
		return bill.Offer{}, false
	}
	o, err := bill.ReadOffer(doc)
	return o, err == nil && len(o.Accepts) > 0
}

// failure is what an error says about the payment, in the form that this product's servers
// use.
type failure struct {
	Code       string      `json:"code"`
	Message    string      `json:"message"`
	Charged    *bool       `json:"charged"`
	Retryable  *bool       `json:"retryable"`
	RetryAfter json.Number `json:"retry_after"`
}

func (r Reply) failure() failure {
	var body struct {
		Error failure `json:"error"`
	}
	if json.Unmarshal([]byte(r.Text()), &body) != nil {
		return failure{}
	}
	return body.Error
}

// errorText returns the text of an error for a model. The text is quoted, because it comes
// from a third party.
func (r Reply) errorText() string {
	if o, asks := r.offer(); asks {
		return untrusted.Quote(o.Error, mostWords)
	}
	f := r.failure()
	return untrusted.Quote(cmp.Or(strings.TrimSpace(f.Code+" "+f.Message), r.Text()), mostWords)
}

// settlement returns the settlement that a reply reports, and reports whether there is one.
func (r Reply) settlement() (s x402.SettleResponse, named bool) {
	raw, there := r.Meta[mcp.KeyResponse]
	if !there || json.Unmarshal(raw, &s) != nil {
		return x402.SettleResponse{}, false
	}
	return s, true
}

// settleWasTried reports whether the server refused a payment after an attempt to settle. Such
// a refusal reports the settlement in _meta; the reference servers write it into the offer
// instead.
func (r Reply) settleWasTried() bool {
	if _, named := r.settlement(); named {
		return true
	}
	for _, doc := range [][]byte{[]byte(r.Text()), r.Structured} {
		var members map[string]json.RawMessage
		if json.Unmarshal(doc, &members) == nil && members[mcp.KeyResponse] != nil {
			return true
		}
	}
	return false
}

// readOwnMeta reads a member of _meta whose name is the server's name, a slash and the given
// name, such as weather/owed. It reports whether the reply has this member.
func (r Reply) readOwnMeta(name string, v any) bool {
	for key, raw := range r.Meta {
		if strings.HasSuffix(key, "/"+name) && json.Unmarshal(raw, v) == nil {
			return true
		}
	}
	return false
}

// owedParts returns the parts of the answer that are still owed.
func (r Reply) owedParts() []string {
	var parts []string
	r.readOwnMeta("owed", &parts)
	return parts
}

// statedCharge returns what the server says about the charge: true if money has moved, false if
// not, nil if the server does not say.
func (r Reply) statedCharge() *bool {
	var charged bool
	if r.readOwnMeta("charged", &charged) {
		return &charged
	}
	if s, named := r.settlement(); named && s.Success {
		return new(true)
	}
	return r.failure().Charged
}

// longestPause is the longest pause that a server can ask for.
const longestPause = 24 * time.Hour

// retryDelay returns how long the server asks to wait, or 0 if it does not say.
func (r Reply) retryDelay() time.Duration {
	var seconds float64
	if !r.readOwnMeta("retry-after", &seconds) {
		said, err := r.failure().RetryAfter.Float64()
		if err != nil {
			return 0
		}
		seconds = said
	}
	if seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, longestPause.Seconds()) * float64(time.Second))
}
