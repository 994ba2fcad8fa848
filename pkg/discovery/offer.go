package discovery

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// maxBazaar bounds the bazaar extension in bytes of JSON. PAYMENT-REQUIRED
// stays below 5,632 bytes of base64, which is 4,223 of JSON; terms, resource
// and the longest description take about 1,150 of those, payment-identifier
// 300, the signed offer 1,050, and the rest is left to a longer reason.
const maxBazaar = 1400

// reasonUnpaid is the error of an offer that answers an unsigned request.
const reasonUnpaid = "Payment required"

// bazaar is the discovery extension of x402: an example call, and the schema
// that it validates against. Facilitators drop a listing whose info fails its
// own schema.
type bazaar struct {
	Info   bazaarInfo `json:"info"`
	Schema schema     `json:"schema"`
}

type bazaarInfo struct {
	Input  bazaarInput  `json:"input"`
	Output bazaarOutput `json:"output"`
}

type bazaarInput struct {
	Type        string `json:"type"`
	Method      string `json:"method"`
	QueryParams object `json:"queryParams"`
}

type bazaarOutput struct {
	Type    string          `json:"type"`
	Example json.RawMessage `json:"example,omitempty"`
}

// Extensions are the x402 extensions of an operation's offer. They are fixed
// per operation: clients echo them, and the echo is compared. A result that is
// too large for a header is described in less detail, see bazaarOf.
//
// It panics when the operation's example is not JSON: the catalog is code, and
// a test of this package renders all of it.
func Extensions(op catalog.Operation) map[string]json.RawMessage {
	return map[string]json.RawMessage{
		"bazaar":                 bazaarOf(op),
		x402.ExtensionIdentifier: json.RawMessage(identifier),
	}
}

// identifier offers that a payer names the payment (x402 extension
// payment-identifier). It is never required: the nonce already makes a payment
// count once.
const identifier = `{"info":{"required":false},"schema":{"$schema":"https://json-schema.org/draft/2020-12/schema",` +
	`"type":"object","properties":{"required":{"type":"boolean"},` +
	`"id":{"type":"string","minLength":16,"maxLength":128,"pattern":"^[a-zA-Z0-9_-]+$"}},"required":["required"]}}`

// bazaarOf is the richest description that fits: example and whole schema,
// then example and the top-level fields, then schemas alone, in the end only
// that the result is an object.
func bazaarOf(op catalog.Operation) json.RawMessage {
	example := json.RawMessage(op.Response)
	var raw []byte
	for _, try := range []struct {
		example json.RawMessage
		fields  detail
		notes   bool
	}{
		{example, deep, true},
		{example, shallow, true},
		{example, shallow, false},
		{nil, deep, false},
		{nil, shallow, false},
		{nil, bare, false},
	} {
		var err error
		if raw, err = encode(bazaarWith(op, try.example, try.fields, try.notes)); err != nil {
			panic(fmt.Sprintf("discovery: the example of %s: %v", op.Slug, err))
		}
		if len(raw) <= maxBazaar {
			break
		}
	}
	return raw
}

func bazaarWith(op catalog.Operation, example json.RawMessage, d detail, notes bool) bazaar {
	query := schema{Type: "object", Properties: object{}}
	for _, p := range op.Params {
		ps := paramSchema(p)
		ps.Examples = nil // info.input carries one
		if notes {
			ps.Description = p.Description
		}
		query.Properties = append(query.Properties, member{p.Name, ps})
		if p.Required {
			query.Required = append(query.Required, p.Name)
		}
	}
	input := schema{
		Type: "object",
		Properties: object{
			{"type", schema{Type: "string", Const: "http"}},
			{"method", schema{Type: "string", Enum: []any{catalog.Method}}},
			{"queryParams", query},
		},
		Required:             []string{"type", "method"},
		AdditionalProperties: false,
	}
	output := schema{
		Type: "object",
		Properties: object{
			{"type", schema{Type: "string"}},
			{"example", resultSchema(op.Fields, d)},
		},
		Required: []string{"type"},
	}
	return bazaar{
		Info: bazaarInfo{
			Input:  bazaarInput{Type: "http", Method: catalog.Method, QueryParams: exampleQuery(op)},
			Output: bazaarOutput{Type: "json", Example: example},
		},
		Schema: schema{
			Dialect: dialect, Type: "object",
			Properties: object{{"input", input}, {"output", output}},
			Required:   []string{"input"},
		},
	}
}

// Offer is what an unsigned request to an operation is answered with. It is
// fixed per operation and Site: the resource is the path without a query, and
// nothing in it belongs to one request.
func Offer(op catalog.Operation, s Site) x402.PaymentRequired {
	return x402.PaymentRequired{
		X402Version: x402.Version,
		Error:       reasonUnpaid,
		Resource: x402.Resource{
			URL: s.Origin + op.Path, Description: op.Description, MimeType: typeJSON,
			ServiceName: catalog.Service, Tags: op.Tags, IconURL: s.iconURL(),
		},
		Accepts:    []x402.Requirements{s.Terms.Requirements(op.Amount)},
		Extensions: Extensions(op),
	}
}

// Challenge is the JSON body of a 402: what must be paid, whose error is a
// string, with the code and the message beside it, and with how a client says
// that a request repeats another. PAYMENT-REQUIRED carries the first part only,
// because clients echo it.
type Challenge struct {
	x402.PaymentRequired
	Code        fault.Code  `json:"code"`
	Message     string      `json:"message"`
	Idempotency Idempotency `json:"idempotency"`
}

// Idempotency says how a purchase is named and how long its answer is replayed: with
// a key, and without one after an answer that was given over HTTP.
type Idempotency struct {
	Header                 string `json:"header"`
	ReplaySeconds          int    `json:"replay_seconds"`
	DuplicateWindowSeconds int    `json:"duplicate_window_seconds"` // 0: off
}

// ChallengeOf is the body of a 402 that says f, where a duplicate window is set.
func ChallengeOf(window time.Duration, required x402.PaymentRequired, f *fault.Error) Challenge {
	return Challenge{PaymentRequired: required, Code: f.Code, Message: f.Public(), Idempotency: idempotencyOf(window)}
}

func idempotencyOf(window time.Duration) Idempotency {
	return Idempotency{Header: x402.HeaderKey, ReplaySeconds: seconds(x402.ReplayTime), DuplicateWindowSeconds: seconds(window)}
}

func seconds(d time.Duration) int { return int(d / time.Second) }
