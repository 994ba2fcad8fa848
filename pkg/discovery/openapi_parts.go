package discovery

import (
	"encoding/json"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/header"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// References into the components of the OpenAPI description.
const (
	refError     = "#/components/schemas/Error"
	refRequired  = "#/components/schemas/PaymentRequired"
	refUnpaid    = "#/components/schemas/PaymentRequiredBody"
	refResource  = "#/components/schemas/Resource"
	refTerms     = "#/components/schemas/Requirements"
	refSettled   = "#/components/schemas/SettleResponse"
	refOffer     = "#/components/headers/PaymentRequired"
	refReceipt   = "#/components/headers/Receipt"
	refResponse  = "#/components/headers/PaymentResponse"
	refReplayed  = "#/components/headers/IdempotentReplayed"
	refAge       = "#/components/headers/Age"
	refOwed      = "#/components/headers/AnswerOwed"
	refWait      = "#/components/headers/RetryAfter"
	refMayWait   = "#/components/headers/MayRetryAfter"
	refSignature = "#/components/parameters/PaymentSignature"
	refKey       = "#/components/parameters/IdempotencyKey"
)

// replayedHeaders are the headers of an answer that can come from the ledger.
func replayedHeaders() object {
	return object{{x402.HeaderReplayed, apiRef{refReplayed}}, {header.Age, apiRef{refAge}}}
}

func paidResponse(op opView) apiResponse {
	headers := append(object{{x402.HeaderResponse, apiRef{refReceipt}}}, replayedHeaders()...)
	if op.Kind == catalog.Bundle {
		headers = append(headers, member{x402.HeaderOwed, apiRef{refOwed}})
	}
	return apiResponse{
		Description: "The result. Payment has settled.",
		Headers:     headers,
		Content:     object{{typeJSON, apiMedia{Schema: resultSchema(op.Fields, full), Example: json.RawMessage(op.Response)}}},
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
				{"429", limitedResponse()},
			},
		}}}
	}
	text, tree := schema{Type: "string"}, schema{Type: "object"}
	return object{
		{catalog.PathHealth, apiPath{probe("health", "Liveness probe", healthResponses())}},
		{catalog.PathReady, apiPath{probe("ready", "Readiness probe", readyResponses())}},
		document("catalog", catalog.PathCatalog, "Machine-readable tool catalog", typeJSON, toolCatalogSchema()),
		document("openapi", catalog.PathOpenAPI, "OpenAPI 3.1 description of the service", typeJSON, tree),
		document("manifest", catalog.PathManifest, "Payment manifest", typeJSON, manifestSchema()),
		document("llms", catalog.PathLLMs, "Short text onboarding file", "text/plain", text),
		document("llms_full", catalog.PathLLMsFull, "Text file with full parameters", "text/plain", text),
		document("docs", catalog.PathDocs, "Human documentation", "text/html", text),
	}
}

// limitedResponse is that of a document to a client that is over its limit.
func limitedResponse() apiResponse {
	limited, _ := fault.Of(fault.RateLimited)
	return apiResponse{
		Description: string(limited.Code) + ": " + limited.Message,
		Headers:     object{{header.RetryAfter, apiRef{refWait}}},
		Content:     object{{typeJSON, apiMedia{Schema: schema{Ref: refError}}}},
	}
}

func probe(id, summary string, responses object) apiOperation {
	return apiOperation{
		Tags: []string{tagProbes}, OperationID: id, Summary: summary,
		Description: "Free; needs no payment.", Security: []struct{}{}, Responses: responses,
	}
}

func healthResponses() object {
	state := record("", object{{"status", schema{Type: "string", Const: "ok"}}, {"service", schema{Type: "string"}}})
	return object{{"200", apiResponse{Description: "The service is up.", Content: object{{typeJSON, apiMedia{Schema: state}}}}}}
}

func readyResponses() object {
	str := schema{Type: "string"}
	check := record("", object{
		{"status", schema{Type: "string", Enum: []any{"ok", "failing", "warning"}}}, {"code", str}, {"message", str},
	}, "code", "message")
	content := func(status string) object {
		return object{{typeJSON, apiMedia{Schema: record("", object{
			{"status", schema{Type: "string", Const: status}},
			{"checks", schema{Type: "object", Description: "By name.", AdditionalProperties: check}},
		})}}}
	}
	return object{
		{"200", apiResponse{Description: "Ready for paid calls.", Content: content("ready")}},
		{"503", apiResponse{
			Description: "Not ready: paid calls would fail.", Content: content("not_ready"),
			Headers: object{{header.RetryAfter, apiRef{refWait}}},
		}},
	}
}
