package mcp

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/hostfacts/hostfacts/pkg/printable"
	"github.com/hostfacts/hostfacts/pkg/strictjson"
)

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
