package discovery

import (
	"encoding/json"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// References into the components of the OpenAPI description.
const (
	refError     = "#/components/schemas/Error"
	refRequired  = "#/components/schemas/PaymentRequired"
	refSettled   = "#/components/schemas/SettleResponse"
	refOffer     = "#/components/headers/PaymentRequired"
	refResponse  = "#/components/headers/PaymentResponse"
	refReplayed  = "#/components/headers/IdempotentReplayed"
	refSignature = "#/components/parameters/PaymentSignature"
)

func paidResponse(op opView) apiResponse {
	return apiResponse{
		Description: "The result. Payment has settled.",
		Headers: object{
			{x402.HeaderResponse, apiRef{refResponse}},
			{x402.HeaderReplayed, apiRef{refReplayed}},
		},
		Content: object{{typeJSON, apiMedia{Schema: resultSchema(op.Fields, full), Example: json.RawMessage(op.Response)}}},
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
			{typeJSON, apiMedia{Schema: schema{Ref: refRequired}}},
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
			Responses: object{{"200", apiResponse{Description: summary, Content: object{{mediaType, apiMedia{Schema: s}}}}}},
		}}}
	}
	text, tree := schema{Type: "string"}, schema{Type: "object"}
	return object{
		{catalog.PathHealth, apiPath{probe("health", "Liveness probe", "200")}},
		{catalog.PathReady, apiPath{probe("ready", "Readiness probe", "200", "503")}},
		document("catalog", catalog.PathCatalog, "Machine-readable tool catalog", typeJSON, toolCatalogSchema()),
		document("openapi", catalog.PathOpenAPI, "OpenAPI 3.1 description of the service", typeJSON, tree),
		document("manifest", catalog.PathManifest, "Payment manifest", typeJSON, manifestSchema()),
		document("llms", catalog.PathLLMs, "Short text onboarding file", "text/plain", text),
		document("llms_full", catalog.PathLLMsFull, "Text file with full parameters", "text/plain", text),
		document("docs", catalog.PathDocs, "Human documentation", "text/html", text),
	}
}

func probe(id, summary string, statuses ...string) apiOperation {
	o := apiOperation{
		Tags: []string{tagProbes}, OperationID: id, Summary: summary,
		Description: "Free; needs no payment.", Security: []struct{}{},
	}
	state := schema{Type: "object", Required: []string{"status"}, Properties: object{{"status", schema{Type: "string"}}}}
	for _, status := range statuses {
		text := "The service is up."
		switch {
		case status == "503":
			text = "Not ready: paid calls would fail."
		case id == "ready":
			text = "Ready for paid calls."
		}
		o.Responses = append(o.Responses, member{status, apiResponse{
			Description: text,
			Content:     object{{typeJSON, apiMedia{Schema: state}}},
		}})
	}
	return o
}

func components() apiComponents {
	str := schema{Type: "string"}
	encoded := func(ref string) schema {
		return schema{Type: "string", ContentEncoding: "base64", ContentMediaType: typeJSON, ContentSchema: &schema{Ref: ref}}
	}
	return apiComponents{
		Schemas: object{
			{"Error", errorSchema()},
			{"PaymentRequired", requiredSchema()},
			{"SettleResponse", schema{
				Type: "object", Description: "What a settlement came to, decoded.", Required: []string{"success", "transaction", "network"},
				Properties: object{
					{"success", schema{Type: "boolean"}},
					{"transaction", schema{Type: "string", Description: "Transaction hash; empty when nothing was broadcast."}},
					{"network", schema{Type: "string", Description: "CAIP-2."}},
					{"payer", str},
					{"errorReason", schema{Type: "string", Description: "Why it did not settle."}},
				},
			}},
		},
		Headers: object{
			{"PaymentRequired", apiHeader{Description: "What must be paid, base64 of JSON.", Required: true, Schema: encoded(refRequired)}},
			{"PaymentResponse", apiHeader{Description: "What the settlement came to, base64 of JSON. On every answer after a settlement, errors included.", Schema: encoded(refSettled)}},
			{"IdempotentReplayed", apiHeader{Description: "true when this is the stored answer to a signature that was used before.", Schema: schema{Type: "string", Const: "true"}}},
		},
		Parameters: object{
			{"PaymentSignature", apiParameter{
				Name: x402.HeaderSignature, In: "header",
				Description: "The payment, base64 of a JSON object with accepted, payload, and extensions when the offer has them. Without it the answer is 402.",
				Schema:      schema{Type: "string", ContentEncoding: "base64", ContentMediaType: typeJSON},
			}},
		},
	}
}

// errorSchema is the body of every error but 402 (design: a priced request,
// step by step).
func errorSchema() schema {
	return schema{
		Type: "object", Description: "Body of every error except 402.", Required: []string{"error"},
		Properties: object{
			{"error", schema{
				Type: "object", Required: []string{"code", "message", "charged", "retryable"},
				Properties: object{
					{"code", schema{Type: "string"}},
					{"message", schema{Type: "string"}},
					{"charged", schema{Type: []any{"boolean", "null"}, Description: "Whether money has moved for this authorization; null when that is not known."}},
					{"retryable", schema{Type: "boolean", Description: "Whether the same signature may be sent again without a new charge."}},
				},
			}},
			{"request_id", schema{Type: "string"}},
			{"docs_url", schema{Type: "string", Format: "uri"}},
		},
	}
}

// requiredSchema is the body of a 402: the offer, with code and message beside
// it, because error has to stay a string there.
func requiredSchema() schema {
	str := schema{Type: "string"}
	return schema{
		Type: "object", Description: "What must be paid (x402 version 2).", Required: []string{"x402Version", "resource", "accepts"},
		Properties: object{
			{"x402Version", schema{Type: "integer", Const: x402.Version}},
			{"error", schema{Type: "string", Description: "Why payment is required."}},
			{"resource", schema{
				Type: "object", Required: []string{"url", "description", "mimeType"},
				Properties: object{
					{"url", schema{Type: "string", Format: "uri"}}, {"description", str}, {"mimeType", str},
					{"serviceName", str}, {"tags", schema{Type: "array", Items: &str}}, {"iconUrl", schema{Type: "string", Format: "uri"}},
				},
			}},
			{"accepts", schema{Type: "array", MinItems: 1, Items: &schema{
				Type: "object", Required: []string{"scheme", "network", "asset", "amount", "payTo", "maxTimeoutSeconds", "extra"},
				Properties: object{
					{"scheme", schema{Type: "string", Const: x402.Scheme}},
					{"network", schema{Type: "string", Description: "CAIP-2."}},
					{"asset", schema{Type: "string", Description: "Token contract."}},
					{"amount", schema{Type: "string", Pattern: "^[0-9]+$", Description: "Atomic units of the asset."}},
					{"payTo", str},
					{"maxTimeoutSeconds", schema{Type: "integer"}},
					{"extra", schema{Type: "object", Description: "EIP-712 domain of the token, and the payment flow.", Properties: object{
						{"name", str}, {"version", str}, {"paymentFlow", str},
					}}},
				},
			}}},
			{"extensions", schema{Type: "object"}},
			{"code", schema{Type: "string", Description: "payment_required; in the body only."}},
			{"message", schema{Type: "string", Description: "For people; in the body only."}},
		},
	}
}

func toolCatalogSchema() schema {
	str, list := schema{Type: "string"}, schema{Type: "array", Items: &schema{Type: "object"}}
	return schema{
		Type: "object", Required: []string{"service", "base_url", "docs_url", "x402Version", "tools", "playbooks"},
		Properties: object{
			{"service", str}, {"base_url", schema{Type: "string", Format: "uri"}}, {"docs_url", schema{Type: "string", Format: "uri"}},
			{"x402Version", schema{Type: "integer", Const: catalog.X402Version}}, {"tools", list}, {"playbooks", list},
		},
	}
}

func manifestSchema() schema {
	return schema{
		Type: "object", Required: []string{"version", "resources", "endpoints", "instructions", "ownershipProofs"},
		Properties: object{
			{"version", schema{Type: "integer", Const: catalog.ManifestVersion}},
			{"resources", schema{Type: "array", Items: &schema{Type: "string", Format: "uri"}}},
			{"endpoints", schema{Type: "array", Items: &schema{Type: "object"}}},
			{"instructions", schema{Type: "string"}},
			{"ownershipProofs", schema{Type: "array", Items: &schema{Type: "string"}}},
		},
	}
}
