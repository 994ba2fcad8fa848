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

// The maximum sizes of an offer with its retry token, in bytes of JSON. The head of a 402
// contains the offer in base64, which is a third longer than the JSON. A proxy with default
// settings accepts a head of at most 4,000 bytes.
//
// maxSigned leaves room for a signature of the terms. The signature has 760 bytes if the host
// name has usualHost characters. Each further character of the host name is in the signature
// twice, in base64: in the id of the key and in the URL. maxUnsigned leaves room only for the
// headers of a page and the headers that answer a request from another origin.
const (
	maxSigned   = 1925
	maxUnsigned = 2100
	usualHost   = 40 // the length of the host name for which maxSigned is meant
)

// identifier is the extension payment-identifier of x402, with which a payer names a payment.
// The payer need not use it, because the nonce already makes a payment count only once. The
// schema is short, because every challenge and every payment contain the extension.
const identifier = `{"info":{"required":false},"schema":{"type":"object","required":["required"]}}`

// variant says how detailed the discovery extension of a path is.
type variant struct {
	hasExample     bool   // whether the extension has the example answer
	fields         detail // the detail of the schema of the answer's fields
	describeParams bool   // whether the extension describes the parameters
}

// variants returns all variants, from the most to the least detailed. The first variants have
// the example answer and a schema. Then come variants with a schema alone, then variants with
// only the names of the fields, and last a variant without fields.
func variants() []variant {
	return []variant{
		{hasExample: true, fields: allTypes, describeParams: true},
		{hasExample: true, fields: topTypes, describeParams: true},
		{hasExample: true, fields: topTypes},
		{fields: allTypes},
		{fields: topTypes, describeParams: true},
		{fields: topTypes},
		{fields: topNames, describeParams: true},
		{fields: topNames},
		{fields: typeOnly},
	}
}

// bazaarOf returns x402's discovery extensions for a path, the longest first. Each extension
// has an example call, and a schema to which the example conforms. Facilitators drop a listing
// whose info does not validate against its schema.
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
				{"queryParams", querySchema(op, v.describeParams)},
			},
			Required:   []string{"type", "method"},
			Additional: false,
		}
		extension := bazaar(op, v.hasExample, input, inputSchema, resultSchema(op.Fields, v.fields))
		extensions = append(extensions, extension)
	}
	return extensions
}

// toolBazaar returns the discovery extension for a tool. The extension is as short as
// possible, because models read it after they have read the tool's schemas. It contains the
// tool's name, because facilitators list a tool under that name and the resource's URL.
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

// bazaar returns a discovery extension with the input, the output, and the schemas of both.
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

// addFitting adds one of the discovery extensions to the offer. It takes the first extension
// with which the offer and a signature of the terms fit into the header. If there is none, the
// header will have no signature, and addFitting takes the first extension with which the offer
// alone fits.
func addFitting(required x402.PaymentRequired, s Site, extensions []object) x402.PaymentRequired {
	_, host, _ := strings.Cut(s.Origin, "://")
	extraLength := len(host) - usualHost
	for _, maxSize := range []int{maxSigned - extraLength*8/3, maxUnsigned} {
		for _, extension := range extensions {
			required.Extensions["bazaar"] = encode(extension)
			if len(encode(required.WithToken(shownToken))) <= maxSize {
				return required
			}
		}
	}
	return required
}

// Offer returns the payment requirements that answer a request without a payment. They depend
// only on the operation and the Site, because clients echo the extensions and the service
// compares the echo with the offer. So the resource is the path without a query.
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
	return addFitting(required, s, bazaarOf(op))
}

// Challenge is the JSON body of a 402. The embedded PaymentRequired says what must be paid.
// The other members are the error's code and message, and how a client marks a request as a
// repetition. The header PAYMENT-REQUIRED has only the PaymentRequired, because clients echo
// it.
type Challenge struct {
	x402.PaymentRequired
	Code        fault.Code  `json:"code"`
	Message     string      `json:"message"`
	Idempotency Idempotency `json:"idempotency"`
}

// Idempotency says in which header a client names a purchase, and for how long the answer to
// the purchase is replayed. ReplaySeconds is for a purchase with a key. DuplicateWindowSeconds
// is for a purchase without a key that was answered over HTTP.
type Idempotency struct {
	Header                 string `json:"header" const:"Idempotency-Key"`
	ReplaySeconds          int    `json:"replay_seconds" minimum:"0" doc:"How long an answer is replayed if the payment has a key."`
	DuplicateWindowSeconds int    `json:"duplicate_window_seconds" minimum:"0" doc:"After an answer over HTTP, how long a new payment without a key counts as the same purchase; twice as long over MCP. 0: not at all."`
}

// ChallengeOf returns the body of a 402 for an operation, with the error f.
func ChallengeOf(op catalog.Operation, s Site, required x402.PaymentRequired, f *fault.Error) Challenge {
	return Challenge{
		PaymentRequired: required,
		Code:            f.Code,
		Message:         f.Public(),
		Idempotency:     idempotencyOf(duplicateWindow(op, s)),
	}
}

// duplicateWindow returns the duplicate window of an operation. The smoke test has no such
// window, because it charges every payment that has no key.
func duplicateWindow(op catalog.Operation, s Site) time.Duration {
	if op.Kind == catalog.SmokeTest {
		return 0
	}
	return s.DuplicateWindow
}

func idempotencyOf(window time.Duration) Idempotency {
	return Idempotency{
		Header:                 x402.HeaderKey,
		ReplaySeconds:          inSeconds(ledger.KeptFor),
		DuplicateWindowSeconds: inSeconds(window),
	}
}

func inSeconds(d time.Duration) int { return int(d / time.Second) }
