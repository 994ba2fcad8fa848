package discovery

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// The most bytes of JSON that an offer has with its retry token. The head of a 402 passes a
// proxy as it is installed when it has at most 4,000 bytes, and an offer is a third longer in
// it, in base64.
//
// With maxSigned there is room for a signature of the terms, which has 760 bytes where the
// host has 40 characters: each character more is once in its key and once in its URL, in
// base64. With maxUnsigned there is none, but for the headers of a page and of a request from
// another origin.
const (
	maxSigned   = 1925
	maxUnsigned = 2100
	usualHost   = 40 // characters
)

// identifier lets a payer name the payment (x402 extension
// payment-identifier). It is never required: the nonce already makes a payment
// count once. The schema is short, as in every challenge and every payment.
const identifier = `{"info":{"required":false},"schema":{"type":"object","required":["required"]}}`

// variant is how much the discovery extension of a path says.
type variant struct {
	example bool   // with the example answer
	fields  detail // of the answer
	notes   bool   // with descriptions of the parameters
}

// variants returns all of them, from the one that says most to the shortest: example and
// whole schema, then example and the top-level fields, then schemas alone, in the end with no
// more than the names of the fields, or without them.
func variants() []variant {
	return []variant{
		{example: true, fields: deep, notes: true},
		{example: true, fields: shallow, notes: true},
		{example: true, fields: shallow},
		{fields: deep},
		{fields: shallow, notes: true},
		{fields: shallow},
		{fields: names, notes: true},
		{fields: names},
		{fields: untold},
	}
}

// bazaarOf returns the discovery extensions of x402 for a path, the longest first: an example
// call, and the schema that it validates against. Facilitators drop a listing whose info fails
// its own schema.
func bazaarOf(op catalog.Operation) []object {
	var extensions []object
	for _, v := range variants() {
		input := object{
			{"type", "http"},
			{"method", catalog.Method},
			{"queryParams", exampleQuery(op)},
		}
		inputSchema := schema{
			Type: "object",
			Properties: object{
				{"type", schema{Type: "string", Const: "http"}},
				{"method", schema{Type: "string", Enum: []any{catalog.Method}}},
				{"queryParams", querySchema(op, v.notes)},
			},
			Required:   []string{"type", "method"},
			Additional: false,
		}
		extension := bazaar(op, v.example, input, inputSchema, resultSchema(op.Fields, v.fields))
		extensions = append(extensions, extension)
	}
	return extensions
}

// toolBazaar is the same for a tool, as short as it can be: a model reads it twice, and has
// read the tool's schemas before. Facilitators list it by the resource's URL and the tool's
// name.
func toolBazaar(op catalog.Operation) object {
	anyString := schema{Type: "string"}
	anyObject := schema{Type: "object"}
	input := object{
		{"type", "mcp"},
		{"toolName", op.Tool},
		{"description", op.Summary},
		{"transport", "streamable-http"},
		{"inputSchema", argumentsSchema(op, false)},
		{"example", exampleQuery(op)},
	}
	inputSchema := schema{
		Type: "object",
		Properties: object{
			{"type", schema{Type: "string", Const: "mcp"}},
			{"toolName", anyString},
			{"description", anyString},
			{"transport", schema{Type: "string", Enum: []any{"streamable-http"}}},
			{"inputSchema", anyObject},
			{"example", anyObject},
		},
		Required:   []string{"type", "toolName", "inputSchema"},
		Additional: false,
	}
	return bazaar(op, false, input, inputSchema, anyObject)
}

// bazaar is the extension: what is sent and answered, and the schemas of both.
func bazaar(op catalog.Operation, example bool, input object, inputSchema, resultSchema schema) object {
	output := object{{"type", "json"}}
	if example {
		output = append(output, member{"example", json.RawMessage(op.Response)})
	}
	outputSchema := schema{
		Type:     "object",
		Required: []string{"type"},
		Properties: object{
			{"type", schema{Type: "string"}},
			{"example", resultSchema},
		},
	}
	return object{
		{"info", object{{"input", input}, {"output", output}}},
		{"schema", schema{
			Type:       "object",
			Required:   []string{"input"},
			Properties: object{{"input", inputSchema}, {"output", outputSchema}},
		}},
	}
}

// fitting returns the offer with the first of some bazaar extensions that it has room for
// beside a signature of its terms. Where there is room for none of them, there is no
// signature in the header, and the offer has the first that fits then.
func fitting(required x402.PaymentRequired, s Site, extensions []object) x402.PaymentRequired {
	_, host, _ := strings.Cut(s.Origin, "://")
	longer := len(host) - usualHost
	for _, most := range []int{maxSigned - longer*8/3, maxUnsigned} {
		for _, extension := range extensions {
			required.Extensions["bazaar"] = encode(extension)
			if len(encode(required.WithToken(shownToken))) <= most {
				return required
			}
		}
	}
	return required
}

// Offer returns the answer to a request for an operation without a payment. It is
// fixed per operation and Site: the resource is the path without a query, and
// nothing in it belongs to one request. Clients echo its extensions, and the echo is
// compared.
func Offer(op catalog.Operation, s Site) x402.PaymentRequired {
	required := x402.PaymentRequired{
		X402Version: x402.Version,
		Error:       "Payment required",
		Resource: x402.Resource{
			URL:         s.Origin + op.Path,
			Description: op.Description,
			MimeType:    typeJSON,
			ServiceName: catalog.Service,
			Tags:        op.Tags,
			IconURL:     s.iconURL(),
		},
		Accepts:    []x402.Requirements{s.Terms.Requirements(op.Amount)},
		Extensions: map[string]json.RawMessage{x402.ExtensionIdentifier: json.RawMessage(identifier)},
	}
	return fitting(required, s, bazaarOf(op))
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
	return Challenge{
		PaymentRequired: required,
		Code:            f.Code,
		Message:         f.Public(),
		Idempotency:     idempotencyOf(windowOf(op, s)),
	}
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
	return Idempotency{
		Header:                 x402.HeaderKey,
		ReplaySeconds:          seconds(ledger.KeptFor),
		DuplicateWindowSeconds: seconds(window),
	}
}

func seconds(d time.Duration) int { return int(d / time.Second) }
