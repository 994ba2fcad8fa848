package discovery

import (
	_ "embed" // what is the same for every deployment
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	layout "github.com/tidwall/pretty"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// openAPISource is the OpenAPI 3.1 description as it is for every deployment, with the
// values of one as {{name}}.
//
//go:embed assets/openapi.json
var openAPISource []byte

// openAPIOf is the OpenAPI description (spec §4.1, §9). It lists every path: crawlers
// read only this file.
func openAPIOf(v *view) []byte {
	s, sets := v.Site, errorSets()
	value := func(v any) string { return string(encode(v)) }
	inside := func(o object) string { text := value(o); return text[1 : len(text)-1] }
	var paths, responses, codes object
	for _, op := range v.Ops {
		paths = append(paths, member{op.Path, object{{"get", pricedOperation(op, sets)}}})
	}
	for _, e := range sets {
		responses = append(responses, member{e.name, errorResponse(e)})
	}
	var withBody []fault.Code
	for _, o := range v.Every {
		// It says of a code what the error body would say: charged is null where only
		// the body knows.
		codes = append(codes, member{string(o.Code), object{
			{"status", o.Status}, {"charged", o.charged}, {"retryable", o.Retry}, {"message", o.Message},
		}})
		if o.Code != fault.PaymentRequired { // its body is the offer
			withBody = append(withBody, o.Code)
		}
	}
	proofs := ""
	if len(s.OwnershipProofs) > 0 {
		proofs = `"x-discovery":` + value(object{{"ownershipProofs", s.OwnershipProofs}}) + ","
	}
	return []byte(strings.NewReplacer(
		"{{origin}}", s.Origin, "{{service}}", catalog.Service, "{{version}}", catalog.APIVersion, "{{tagline}}", catalog.Tagline,
		`"{{description}}"`, value(v.Description), `"{{guidance}}"`, value(v.Guidance), `"{{contact}}"`, value(apiContactOf(s)),
		`"{{operations}}":{}`, inside(paths), `"{{results}}":{}`, inside(documentSchemas()), `"{{errors}}":{}`, inside(responses),
		`{"{{outcomes}}":{}}`, value(codes), `"{{codes}}"`, value(withBody), `"x-discovery":"{{proofs}}",`, proofs,
	).Replace(string(layout.Ugly(openAPISource))))
}

// documentSchemas are the schemas of all results and of the documents, and of what
// inside them has a name.
func documentSchemas() object {
	var tops []catalog.Field
	for _, op := range catalog.All() {
		tops = append(tops, catalog.Field{Type: "object", Schema: op.Result, Description: "Result of " + op.Title + ".", Fields: op.Fields})
	}
	return namedSchemas(append(tops,
		catalog.Field{Type: "object", Schema: "ToolCatalog", Description: "Every operation.", Fields: catalog.FieldsOf[toolCatalog]()},
		catalog.Field{Type: "object", Schema: "PaymentManifest", Description: "What each path costs.", Fields: catalog.FieldsOf[manifest]()},
	))
}

// answerableCodes are all codes that an operation answers over HTTP: those that it lists,
// and those of every priced path that the spec has no row for.
func answerableCodes(op catalog.Operation) []fault.Code {
	return append(op.AllErrors(), fault.InternalError, fault.IdempotencyConflict, fault.InvalidIdempotencyKey)
}

// codesAt are those of them that have one status.
func codesAt(op catalog.Operation, status int) []fault.Code {
	return slices.DeleteFunc(answerableCodes(op), func(c fault.Code) bool { info, _ := catalog.CodeOf(c); return info.Status != status })
}

// declaredStatuses are the statuses that an operation's responses declare. For
// the two operations that spec §4.1 names it gives the exact set, and readers
// compare it; the codes behind the undeclared statuses stand in x-error-codes.
// All others declare every status that they can answer.
func declaredStatuses(op catalog.Operation) []int {
	switch op.Slug {
	case catalog.DNS().Slug:
		return []int{200, 400, 402}
	case catalog.Ping().Slug:
		return []int{200, 402}
	}
	statuses := []int{200}
	for _, o := range outcomes(answerableCodes(op)) {
		statuses = append(statuses, o.Status)
	}
	slices.Sort(statuses)
	return slices.Compact(statuses)
}

func pricedOperation(op opView, sets []errorSet) object {
	tags := map[catalog.Kind]string{catalog.Tool: "Tools", catalog.Bundle: "Bundles", catalog.SmokeTest: "Smoke test"}
	var parameters []object
	for _, p := range op.Params {
		parameters = append(parameters, object{
			{"name", p.Name}, {"in", "query"}, {"required", p.Required}, {"description", p.Description}, {"schema", paramSchema(p)},
		})
	}
	var responses object
	for _, status := range declaredStatuses(op.Operation) {
		responses = append(responses, member{fmt.Sprint(status), pricedResponse(op, status, sets)})
	}
	return object{
		{"tags", []string{tags[op.Kind]}},
		// What a generated client calls the operation: the name that it has as a tool.
		{"operationId", op.Tool},
		{"summary", op.Summary},
		{"description", op.Description + " Costs " + op.Price() + " per call."},
		{"externalDocs", object{{"url", op.DocsURL}}},
		{"security", []struct{}{}},
		{"parameters", append(parameters, ref("parameters/PaymentSignature"), ref("parameters/IdempotencyKey"))},
		{"responses", responses},
		// Crawlers read a price from here: decimal dollars, and atomic units in the offer.
		{"x-payment-info", object{
			{"price", object{{"mode", "fixed"}, {"currency", "USD"}, {"amount", op.PriceUSD()}}}, {"protocols", []object{{{"x402", object{}}}}},
		}},
		{"x-error-codes", answerableCodes(op.Operation)},
	}
}

// pricedResponse is the result, or a reference to the challenge or to an error.
func pricedResponse(op opView, status int, sets []errorSet) object {
	switch status {
	case http.StatusOK:
		return paidResponse(op)
	case http.StatusPaymentRequired:
		return ref("responses/PaymentRequired")
	}
	codes := codesAt(op.Operation, status)
	i := slices.IndexFunc(sets, func(e errorSet) bool { return slices.Equal(e.codes, codes) })
	return ref("responses/" + sets[i].name)
}

// errorSet is the codes that one or more operations answer with a status: a response.
type errorSet struct {
	name   string
	status int
	codes  []fault.Code
}

// errorSets are those of all statuses that operations declare, each once, and that of the
// documents first. The first of a status has its name; the next ones have a number, too.
func errorSets() []errorSet {
	name := strings.NewReplacer(" ", "", "Server ", "")
	sets, seen := []errorSet{{"TooManyRequests", http.StatusTooManyRequests, []fault.Code{fault.RateLimited}}}, map[int]int{}
	for _, op := range catalog.All() {
		for _, status := range declaredStatuses(op) {
			codes := codesAt(op, status)
			known := slices.ContainsFunc(sets, func(e errorSet) bool { return slices.Equal(e.codes, codes) })
			if status == http.StatusOK || status == http.StatusPaymentRequired || known {
				continue
			}
			e := errorSet{name.Replace(http.StatusText(status)), status, codes}
			if seen[status]++; seen[status] > 1 {
				e.name += strconv.Itoa(seen[status])
			}
			sets = append(sets, e)
		}
	}
	return sets
}

func ref(place string) object { return object{{"$ref", "#/components/" + place}} }

// replayedHeaders are the headers of an answer that can come from the ledger.
func replayedHeaders() object {
	return object{{x402.HeaderReplayed, ref("headers/IdempotentReplayed")}, {x402.HeaderAge, ref("headers/Age")}}
}

func paidResponse(op opView) object {
	headers := append(object{{x402.HeaderResponse, ref("headers/Receipt")}}, replayedHeaders()...)
	if op.Kind == catalog.Bundle {
		headers = append(headers, member{x402.HeaderOwed, ref("headers/AnswerOwed")})
	}
	media := object{{"schema", schema{Ref: schemaRef(op.Result)}}}
	if op.OwnExample {
		media = append(media, member{"example", json.RawMessage(op.Response)})
	}
	return object{{"description", "The result. Payment has settled."}, {"headers", headers}, {"content", object{{typeJSON, media}}}}
}

// errorResponse is an error of one status, with the headers that any of its codes can
// have.
func errorResponse(e errorSet) object {
	var names []string
	var headers object
	codes := outcomes(e.codes)
	for _, o := range codes {
		names = append(names, string(o.Code))
	}
	if slices.ContainsFunc(codes, func(o outcome) bool { return x402.ChargeOf(o.Info).Yes }) {
		headers = append(headers, member{x402.HeaderResponse, ref("headers/PaymentResponse")})
	}
	if slices.ContainsFunc(codes, func(o outcome) bool { return o.Class == fault.Answer }) {
		headers = append(headers, replayedHeaders()...)
	}
	switch {
	case e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable:
		headers = append(headers, member{fault.HeaderRetryAfter, ref("headers/RetryAfter")})
	case e.status == http.StatusConflict || e.status >= http.StatusInternalServerError:
		headers = append(headers, member{fault.HeaderRetryAfter, ref("headers/MayRetryAfter")})
	}
	body := object{{typeJSON, object{{"schema", schema{Ref: schemaRef("ErrorBody")}}}}}
	if headers == nil {
		return object{{"description", listed(names) + "."}, {"content", body}}
	}
	return object{{"description", listed(names) + "."}, {"headers", headers}, {"content", body}}
}
