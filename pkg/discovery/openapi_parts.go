package discovery

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// References into the components of the OpenAPI description.
const (
	refError       = "#/components/schemas/ErrorBody"
	refErrorDetail = "#/components/schemas/ErrorDetail"
	refHealth      = "#/components/schemas/Health"
	refReadiness   = "#/components/schemas/Readiness"
	refCheck       = "#/components/schemas/Check"
	refCatalog     = "#/components/schemas/ToolCatalog"
	refTool        = "#/components/schemas/Tool"
	refPlaybook    = "#/components/schemas/Playbook"
	refManifest    = "#/components/schemas/PaymentManifest"
	refEndpoint    = "#/components/schemas/Endpoint"
	refRequired    = "#/components/schemas/PaymentRequired"
	refUnpaid      = "#/components/schemas/PaymentRequiredBody"
	refResource    = "#/components/schemas/Resource"
	refTerms       = "#/components/schemas/PaymentRequirements"
	refSettled     = "#/components/schemas/SettleResponse"
	refOffer       = "#/components/headers/PaymentRequired"
	refReceipt     = "#/components/headers/Receipt"
	refResponse    = "#/components/headers/PaymentResponse"
	refReplayed    = "#/components/headers/IdempotentReplayed"
	refAge         = "#/components/headers/Age"
	refOwed        = "#/components/headers/AnswerOwed"
	refWait        = "#/components/headers/RetryAfter"
	refMayWait     = "#/components/headers/MayRetryAfter"
	refSignature   = "#/components/parameters/PaymentSignature"
	refKey         = "#/components/parameters/IdempotencyKey"
)

// replayedHeaders are the headers of an answer that can come from the ledger.
func replayedHeaders() object {
	return object{{x402.HeaderReplayed, apiRef{refReplayed}}, {x402.HeaderAge, apiRef{refAge}}}
}

func paidResponse(op opView) apiResponse {
	headers := append(object{{x402.HeaderResponse, apiRef{refReceipt}}}, replayedHeaders()...)
	if op.Kind == catalog.Bundle {
		headers = append(headers, member{x402.HeaderOwed, apiRef{refOwed}})
	}
	media := apiMedia{Schema: resultRef(op.Operation)}
	if op.OwnExample {
		media.Example = json.RawMessage(op.Response)
	}
	return apiResponse{
		Description: "The result. Payment has settled.",
		Headers:     headers,
		Content:     object{{typeJSON, media}},
	}
}

func paymentRequiredResponse() apiResponse {
	return apiResponse{
		Description: "payment_required: PAYMENT-SIGNATURE is missing or invalid. After a settlement that failed, PAYMENT-RESPONSE says why.",
		Headers: object{
			{x402.HeaderRequired, apiRef{refOffer}},
			{x402.HeaderResponse, apiRef{refResponse}},
		},
		Content: object{
			{typeJSON, apiMedia{Schema: schema{Ref: refUnpaid}}},
			{"text/html", apiMedia{Schema: schema{Type: "string", Description: "The same for people, when text/html is preferred and no payment was sent."}}},
		},
	}
}

// freePaths are the paths of spec §4.1.
func freePaths() object {
	document := func(id, path, summary, mediaType string, s schema) member {
		return member{path, apiPath{apiOperation{
			Tags: []string{tagFree}, OperationID: id, Summary: summary,
			Description: "Free. Served with an ETag; the same on every call until the next deployment.", Security: []struct{}{},
			Responses: object{
				{"200", apiResponse{Description: summary, Content: object{{mediaType, apiMedia{Schema: s}}}}},
				{"429", apiRef{responseRef(http.StatusTooManyRequests)}},
			},
		}}}
	}
	text, tree := schema{Type: "string"}, schema{Type: "object"}
	return object{
		{catalog.PathHealth, apiPath{probe("get_health", "Liveness probe", healthResponses())}},
		{catalog.PathReady, apiPath{probe("get_readiness", "Readiness probe", readyResponses())}},
		document("get_catalog", catalog.PathCatalog, "Machine-readable tool catalog", typeJSON, schema{Ref: refCatalog}),
		document("get_openapi", catalog.PathOpenAPI, "OpenAPI 3.1 description of the service", typeJSON, tree),
		document("get_manifest", catalog.PathManifest, "Payment manifest", typeJSON, schema{Ref: refManifest}),
		document("get_llms", catalog.PathLLMs, "Short text onboarding file", "text/plain", text),
		document("get_llms_full", catalog.PathLLMsFull, "Text file with full parameters", "text/plain", text),
		document("get_docs", catalog.PathDocs, "Human documentation", "text/html", text),
	}
}

// responseNames are the shared responses by status.
func responseNames() map[int]string {
	return map[int]string{
		http.StatusBadRequest: "BadRequest", http.StatusPaymentRequired: "PaymentRequired", http.StatusNotFound: "NotFound",
		http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests", http.StatusBadGateway: "BadGateway",
		http.StatusServiceUnavailable: "ServiceUnavailable", http.StatusGatewayTimeout: "GatewayTimeout",
	}
}

func responseRef(status int) string { return "#/components/responses/" + responseNames()[status] }

// sharedResponses are the responses of the statuses that operations declare, each
// once: which codes an operation answers with a status is in its x-error-codes.
func sharedResponses(ops []catalog.Operation) object {
	statuses := []int{http.StatusPaymentRequired, http.StatusTooManyRequests}
	for _, op := range ops {
		statuses = append(statuses, declaredStatuses(op)...)
	}
	slices.Sort(statuses)
	var all object
	for _, status := range slices.Compact(statuses) {
		switch status {
		case http.StatusOK:
		case http.StatusPaymentRequired:
			all = append(all, member{responseNames()[status], paymentRequiredResponse()})
		default:
			all = append(all, member{responseNames()[status], errorResponse(status, ops)})
		}
	}
	return all
}

// errorResponse is an error of one status, with the headers that any of its codes
// can have.
func errorResponse(status int, ops []catalog.Operation) apiResponse {
	r := apiResponse{Content: object{{typeJSON, apiMedia{Schema: schema{Ref: refError}}}}}
	var codes []string
	after, stored := false, false
	for _, o := range everyOutcome(ops) {
		if o.Status != status {
			continue
		}
		codes = append(codes, string(o.Code))
		after = after || x402.ChargeOf(o.Info).Yes
		stored = stored || o.Class == fault.Answer
	}
	r.Description = listed(codes) + "."
	if after {
		r.Headers = append(r.Headers, member{x402.HeaderResponse, apiRef{refResponse}})
	}
	if stored {
		r.Headers = append(r.Headers, replayedHeaders()...)
	}
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		r.Headers = append(r.Headers, member{fault.HeaderRetryAfter, apiRef{refWait}})
	case status == http.StatusConflict || status >= http.StatusInternalServerError:
		r.Headers = append(r.Headers, member{fault.HeaderRetryAfter, apiRef{refMayWait}})
	}
	return r
}

func probe(id, summary string, responses object) apiOperation {
	return apiOperation{
		Tags: []string{tagProbes}, OperationID: id, Summary: summary,
		Description: "Free; needs no payment.", Security: []struct{}{}, Responses: responses,
	}
}

func healthResponses() object {
	return object{{"200", apiResponse{Description: "The service is up.", Content: object{{typeJSON, apiMedia{Schema: schema{Ref: refHealth}}}}}}}
}

func readyResponses() object {
	content := object{{typeJSON, apiMedia{Schema: schema{Ref: refReadiness}}}}
	return object{
		{"200", apiResponse{Description: "Ready for paid calls.", Content: content}},
		{"503", apiResponse{
			Description: "Not ready: paid calls would fail.", Content: content,
			Headers: object{{fault.HeaderRetryAfter, apiRef{refWait}}},
		}},
	}
}
