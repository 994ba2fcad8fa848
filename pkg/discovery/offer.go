package discovery

import (
	"encoding/json"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// maxBazaar bounds the bazaar extension in bytes of JSON. PAYMENT-REQUIRED
// stays below 5,632 bytes of base64, which is 4,223 of JSON; terms, resource
// and the longest description take about 1,150 of those, payment-identifier
// 300, the signed offer 1,050, and the rest is left to a longer reason.
const maxBazaar = 1400

// identifier lets a payer name the payment (x402 extension
// payment-identifier). It is never required: the nonce already makes a payment
// count once.
const identifier = `{"info":{"required":false},"schema":{"$schema":"https://json-schema.org/draft/2020-12/schema",` +
	`"type":"object","properties":{"required":{"type":"boolean"},` +
	`"id":{"type":"string","minLength":16,"maxLength":128,"pattern":"^[a-zA-Z0-9_-]+$"}},"required":["required"]}}`

// bazaarOf is the discovery extension of x402 for a path: an example call, and the
// schema that it validates against. Facilitators drop a listing whose info fails its own
// schema. It says as much as fits: example and whole schema, then example and the
// top-level fields, then schemas alone, in the end only that of the top-level fields.
func bazaarOf(op catalog.Operation) json.RawMessage {
	type try struct {
		example bool
		fields  detail
		notes   bool
	}
	return richest([]try{
		{true, deep, true}, {true, shallow, true}, {false, deep, false}, {false, shallow, false},
	}, func(t try) object {
		input := object{{"type", "http"}, {"method", catalog.Method}, {"queryParams", exampleQuery(op)}}
		return bazaar(op, t.example, input, schema{
			Type: "object",
			Properties: object{
				{"type", schema{Type: "string", Const: "http"}},
				{"method", schema{Type: "string", Enum: []any{catalog.Method}}},
				{"queryParams", querySchema(op, t.notes)},
			},
			Required: []string{"type", "method"}, Additional: new(bool),
		}, resultSchema(op.Fields, t.fields))
	})
}

// toolBazaar is the same for a tool. Facilitators list it by the resource's URL and the
// tool's name. Clients echo it, also in the header of a request that asks for a lost
// answer by HTTP.
func toolBazaar(op catalog.Operation) json.RawMessage {
	str, obj := schema{Type: "string"}, schema{Type: "object"}
	type try struct{ example, notes bool }
	return richest([]try{{true, true}, {false, true}, {false, false}}, func(t try) object {
		input := object{
			{"type", "mcp"}, {"toolName", op.Tool}, {"description", op.Summary}, {"transport", "streamable-http"},
			{"inputSchema", argumentsSchema(op, t.notes)}, {"example", exampleQuery(op)},
		}
		return bazaar(op, t.example, input, schema{
			Type: "object",
			Properties: object{
				{"type", schema{Type: "string", Const: "mcp"}}, {"toolName", str}, {"description", str},
				{"transport", schema{Type: "string", Enum: []any{"streamable-http"}}}, {"inputSchema", obj}, {"example", obj},
			},
			Required: []string{"type", "toolName", "inputSchema"}, Additional: new(bool),
		}, obj)
	})
}

// bazaar is the extension: what is sent and answered, and the schemas of both.
func bazaar(op catalog.Operation, example bool, input object, inputs, result schema) object {
	output := object{{"type", "json"}}
	if example {
		output = append(output, member{"example", json.RawMessage(op.Response)})
	}
	return object{
		{"info", object{{"input", input}, {"output", output}}},
		{"schema", schema{
			Dialect: dialect, Type: "object", Required: []string{"input"},
			Properties: object{{"input", inputs}, {"output", schema{
				Type: "object", Required: []string{"type"}, Properties: object{{"type", schema{Type: "string"}}, {"example", result}},
			}}},
		}},
	}
}

// richest is the first of the tries that fits, or the last.
func richest[T any](tries []T, with func(T) object) (raw json.RawMessage) {
	for _, t := range tries {
		if raw = encode(with(t)); len(raw) <= maxBazaar {
			break
		}
	}
	return raw
}

// Offer returns the answer to a request for an operation without a payment. It is
// fixed per operation and Site: the resource is the path without a query, and
// nothing in it belongs to one request. Clients echo its extensions, and the echo is
// compared.
func Offer(op catalog.Operation, s Site) x402.PaymentRequired {
	return x402.PaymentRequired{
		X402Version: x402.Version,
		Error:       "Payment required",
		Resource: x402.Resource{
			URL: s.Origin + op.Path, Description: op.Description, MimeType: typeJSON,
			ServiceName: catalog.Service, Tags: op.Tags, IconURL: s.iconURL(),
		},
		Accepts:    []x402.Requirements{s.Terms.Requirements(op.Amount)},
		Extensions: map[string]json.RawMessage{"bazaar": bazaarOf(op), x402.ExtensionIdentifier: json.RawMessage(identifier)},
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
	Header                 string `json:"header" const:"Idempotency-Key"`
	ReplaySeconds          int    `json:"replay_seconds" minimum:"0" doc:"With a key."`
	DuplicateWindowSeconds int    `json:"duplicate_window_seconds" minimum:"0" doc:"Without one, after an answer given over HTTP; twice as long after one given over MCP. 0: not at all."`
}

// ChallengeOf is the body of a 402 of an operation that says f.
func ChallengeOf(op catalog.Operation, s Site, required x402.PaymentRequired, f *fault.Error) Challenge {
	return Challenge{PaymentRequired: required, Code: f.Code, Message: f.Public(), Idempotency: idempotencyOf(windowOf(op, s))}
}

// windowOf is the duplicate window of an operation: the smoke test has none, because it
// charges each payment without a key.
func windowOf(op catalog.Operation, s Site) time.Duration {
	if op.Kind == catalog.SmokeTest {
		return 0
	}
	return s.DuplicateWindow
}

func idempotencyOf(window time.Duration) Idempotency {
	return Idempotency{Header: x402.HeaderKey, ReplaySeconds: seconds(ledger.KeptFor), DuplicateWindowSeconds: seconds(window)}
}

func seconds(d time.Duration) int { return int(d / time.Second) }
