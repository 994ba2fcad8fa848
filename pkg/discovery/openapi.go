package discovery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// openAPIOf is the OpenAPI 3.1 description (spec §4.1, §9). It lists every path:
// crawlers read only this file.
func openAPIOf(v *view) object {
	s := v.Site
	doc := object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", catalog.Service}, {"version", catalog.APIVersion}, {"summary", catalog.Tagline}, {"description", apiDescription(v)},
			{"contact", apiContactOf(s)}, {"license", object{{"name", "MIT"}, {"identifier", "MIT"}}}, {"x-guidance", v.Guidance},
		}},
		{"servers", []object{{{"url", s.Origin}}}},
		{"tags", apiTags(v)},
		{"security", []struct{}{}},
		{"paths", apiPaths(v)},
		{"components", components(v.operations)},
		{"x-error-codes", apiErrorCodes(v.operations)},
		{"externalDocs", object{{"description", "Documentation"}, {"url", s.Origin + catalog.PathDocs}}},
	}
	if len(s.OwnershipProofs) > 0 {
		doc = append(doc, member{"x-discovery", object{{"ownershipProofs", s.OwnershipProofs}}})
	}
	return append(doc, member{"x-agentcash-guidance", object{{"llmsTxtUrl", s.Origin + catalog.PathLLMs}}})
}

// apiErrorCodes is the table of all codes that the operations list, and of those
// that none does. It says of a code what the error body would say: charged is null
// where only the body knows.
func apiErrorCodes(ops []catalog.Operation) object {
	var table object
	for _, o := range everyOutcome(ops) {
		table = append(table, member{string(o.Code), object{
			{"status", o.Status}, {"charged", o.charged}, {"retryable", o.Retry}, {"message", o.Message},
		}})
	}
	return table
}

func apiDescription(v *view) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s Paid per request in USDC on %s; no account, no API key.\n\nHow to pay:\n\n", catalog.Tagline, v.Network)
	for i, step := range v.Handshake {
		fmt.Fprintf(&b, "%d. %s\n", i+1, step)
	}
	b.WriteString("\nMoney:\n\n")
	for _, rule := range v.Essentials {
		fmt.Fprintf(&b, "- %s\n", rule)
	}
	fmt.Fprintf(&b, "\nx-error-codes of an operation are all codes that it answers, also with a status that its responses do not declare; those of the document say what they mean, charged null where only the error body knows.\n\n%s", v.Untrusted)
	return b.String()
}

// Tags of the description.
const (
	tagTools   = "Tools"
	tagBundles = "Bundles"
	tagSmoke   = "Smoke test"
	tagFree    = "Discovery"
	tagProbes  = "Probes"
)

func apiTags(v *view) []object {
	var tags []object
	for _, t := range []struct{ name, description string }{
		{tagTools, "One fact each, paid per request."},
		{tagBundles, "Several lookups for one payment."},
		{tagSmoke, "Checks the payment gate; not a product."},
		{tagFree, "Free documents that describe the service."},
		{tagProbes, "Free probes of the service itself."},
	} {
		if t.name != tagBundles || hasKind(v.operations, catalog.Bundle) {
			tags = append(tags, object{{"name", t.name}, {"description", t.description}})
		}
	}
	return tags
}

func hasKind(ops []catalog.Operation, k catalog.Kind) bool {
	return slices.ContainsFunc(ops, func(op catalog.Operation) bool { return op.Kind == k })
}

// apiPaths are the free paths of spec §4.1 and every operation.
func apiPaths(v *view) object {
	var paths object
	free := func(tag, id, path, summary, description string, responses object) {
		paths = append(paths, member{path, object{{"get", object{
			{"tags", []string{tag}}, {"operationId", id}, {"summary", summary}, {"description", description},
			{"security", []struct{}{}}, {"responses", responses},
		}}}})
	}
	probe := func(id, path, summary string, responses object) {
		free(tagProbes, id, path, summary, "Free; needs no payment.", responses)
	}
	document := func(id, path, summary, mediaType string, s schema) {
		free(tagFree, id, path, summary, "Free. Served with an ETag; the same on every call until the next deployment.", object{
			{"200", response(summary, nil, mediaType, s)},
			{"429", ref("responses/TooManyRequests")},
		})
	}
	text := schema{Type: "string"}
	probe("get_health", catalog.PathHealth, "Liveness probe", object{{"200", response("The service is up.", nil, typeJSON, component("Health"))}})
	probe("get_readiness", catalog.PathReady, "Readiness probe", object{
		{"200", response("Ready for paid calls.", nil, typeJSON, component("Readiness"))},
		{"503", response("Not ready: paid calls would fail.", object{{fault.HeaderRetryAfter, ref("headers/RetryAfter")}}, typeJSON, component("Readiness"))},
	})
	document("get_catalog", catalog.PathCatalog, "Machine-readable tool catalog", typeJSON, component("ToolCatalog"))
	document("get_openapi", catalog.PathOpenAPI, "OpenAPI 3.1 description of the service", typeJSON, schema{Type: "object"})
	document("get_manifest", catalog.PathManifest, "Payment manifest", typeJSON, component("PaymentManifest"))
	document("get_llms", catalog.PathLLMs, "Short text onboarding file", "text/plain", text)
	document("get_llms_full", catalog.PathLLMsFull, "Text file with full parameters", "text/plain", text)
	document("get_docs", catalog.PathDocs, "Human documentation", "text/html", text)
	sets := errorSets(v.operations)
	for _, op := range v.Ops {
		paths = append(paths, member{op.Path, object{{"get", pricedOperation(op, sets)}}})
	}
	return paths
}

// answerableCodes are all codes that an operation answers over HTTP: those that it lists,
// and those of every priced path that the spec has no row for.
func answerableCodes(op catalog.Operation) []fault.Code {
	return append(op.AllErrors(), fault.InternalError, fault.IdempotencyConflict, fault.InvalidIdempotencyKey)
}

// codesAt are those of them that have one status.
func codesAt(op catalog.Operation, status int) []fault.Code {
	return slices.DeleteFunc(answerableCodes(op), func(c fault.Code) bool { return outcomeOf(c).Status != status })
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
	tags := map[catalog.Kind]string{catalog.Tool: tagTools, catalog.Bundle: tagBundles, catalog.SmokeTest: tagSmoke}
	var parameters []any
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
func errorSets(ops []catalog.Operation) []errorSet {
	names := map[int]string{
		http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests", http.StatusBadRequest: "BadRequest",
		http.StatusNotFound: "NotFound", http.StatusInternalServerError: "InternalError", http.StatusBadGateway: "BadGateway",
		http.StatusServiceUnavailable: "ServiceUnavailable", http.StatusGatewayTimeout: "GatewayTimeout",
	}
	sets, seen := []errorSet{{names[http.StatusTooManyRequests], http.StatusTooManyRequests, []fault.Code{fault.RateLimited}}}, map[int]int{}
	for _, op := range ops {
		for _, status := range declaredStatuses(op) {
			codes := codesAt(op, status)
			known := slices.ContainsFunc(sets, func(e errorSet) bool { return slices.Equal(e.codes, codes) })
			if name := names[status]; name != "" && !known {
				if seen[status]++; seen[status] > 1 {
					name += strconv.Itoa(seen[status])
				}
				sets = append(sets, errorSet{name, status, codes})
			}
		}
	}
	return sets
}

func ref(place string) object { return object{{"$ref", "#/components/" + place}} }

// response is a response of one media type.
func response(description string, headers object, mediaType string, s schema) object {
	r := object{{"description", description}}
	if headers != nil {
		r = append(r, member{"headers", headers})
	}
	return append(r, member{"content", object{{mediaType, object{{"schema", s}}}}})
}

// replayedHeaders are the headers of an answer that can come from the ledger.
func replayedHeaders() object {
	return object{{x402.HeaderReplayed, ref("headers/IdempotentReplayed")}, {x402.HeaderAge, ref("headers/Age")}}
}

func paidResponse(op opView) object {
	headers := append(object{{x402.HeaderResponse, ref("headers/Receipt")}}, replayedHeaders()...)
	if op.Kind == catalog.Bundle {
		headers = append(headers, member{x402.HeaderOwed, ref("headers/AnswerOwed")})
	}
	media := object{{"schema", resultRef(op.Operation)}}
	if op.OwnExample {
		media = append(media, member{"example", json.RawMessage(op.Response)})
	}
	return object{{"description", "The result. Payment has settled."}, {"headers", headers}, {"content", object{{typeJSON, media}}}}
}

// resultRef is a reference to the schema of an operation's result, or the schema itself
// where it has no name.
func resultRef(op catalog.Operation) schema {
	if op.Result == "" {
		return resultSchema(op.Fields, named)
	}
	return component(op.Result)
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
	return response(listed(names)+".", headers, typeJSON, component("ErrorBody"))
}

// sharedResponses are the challenge and the errors, to which operations refer.
func sharedResponses(ops []catalog.Operation) object {
	all := object{{"PaymentRequired", object{
		{"description", "payment_required: PAYMENT-SIGNATURE is missing or invalid. After a settlement that failed, PAYMENT-RESPONSE says why."},
		{"headers", object{{x402.HeaderRequired, ref("headers/PaymentRequired")}, {x402.HeaderResponse, ref("headers/PaymentResponse")}}},
		{"content", object{
			{typeJSON, object{{"schema", component("PaymentRequiredBody")}}},
			{"text/html", object{{"schema", schema{Type: "string", Description: "The same for people, when text/html is preferred and no payment was sent."}}}},
		}},
	}}}
	for _, e := range errorSets(ops) {
		all = append(all, member{e.name, errorResponse(e)})
	}
	return all
}
