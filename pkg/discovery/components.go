package discovery

import (
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// components are what the paths of the OpenAPI description refer to.
func components(ops []catalog.Operation) object {
	return object{
		{"schemas", append(documentSchemas(ops), wireSchemas(ops)...)},
		{"responses", sharedResponses(ops)},
		{"headers", headerComponents()},
		{"parameters", object{
			{"PaymentSignature", headerParameter(x402.HeaderSignature,
				"The payment, base64 of a JSON object with accepted, payload, and extensions when the offer has them. Without it the answer is 402.",
				schema{Type: "string", ContentEncoding: "base64", ContentMediaType: typeJSON})},
			{"IdempotencyKey", headerParameter(x402.HeaderKey,
				"Names the purchase: send the same one with every attempt, and a new one to ask anew. Visible ASCII characters; one pair of quotes around them is not counted. Without a payment it is ignored.",
				schema{Type: "string", Pattern: "^[!-~]{1,255}$"})},
		}},
	}
}

func headerParameter(name, description string, s schema) object {
	return object{{"name", name}, {"in", "header"}, {"required", false}, {"description", description}, {"schema", s}}
}

func headerComponents() object {
	encoded := func(name string) schema {
		content := component(name)
		return schema{Type: "string", ContentEncoding: "base64", ContentMediaType: typeJSON, ContentSchema: &content}
	}
	header := func(description string, required bool, s schema) object {
		h := object{{"description", description}}
		if required {
			h = append(h, member{"required", true})
		}
		return append(h, member{"schema", s})
	}
	wait := schema{Type: "integer", Minimum: 1}
	return object{
		{"PaymentRequired", header("What must be paid, base64 of JSON.", true, encoded("PaymentRequired"))},
		{"Receipt", header("The settlement, base64 of JSON.", true, encoded("SettleResponse"))},
		{"PaymentResponse", header("What the settlement came to, base64 of JSON. On every answer after a settlement, errors included.", false, encoded("SettleResponse"))},
		{"IdempotentReplayed", header("true when this is the stored answer of a purchase that was made before.", false, schema{Type: "string", Const: "true"})},
		{x402.HeaderAge, header("Seconds since a stored answer was given.", false, schema{Type: "integer", Minimum: 0})},
		{"AnswerOwed", header("The fields of the bundle that failed for a reason of ours, separated by commas. Repeat the request: they are looked up again without a charge.",
			false, schema{Type: "string", Pattern: "^[a-z]+(, [a-z]+)*$"})},
		{"RetryAfter", header("Seconds to wait.", true, wait)},
		{"MayRetryAfter", header("Seconds to wait, when the request may be repeated.", false, wait)},
	}
}

// documentSchemas are the schemas of all results and of the documents, and of what
// inside them has a name.
func documentSchemas(ops []catalog.Operation) object {
	var tops []catalog.Field
	for _, op := range ops {
		tops = append(tops, catalog.Field{Type: "object", Schema: op.Result, Description: "Result of " + op.Title + ".", Fields: op.Fields})
	}
	return namedSchemas(append(tops,
		catalog.Field{Type: "object", Schema: "ToolCatalog", Description: "Every operation.", Fields: catalog.FieldsOf[toolCatalog]()},
		catalog.Field{Type: "object", Schema: "PaymentManifest", Description: "What each path costs.", Fields: catalog.FieldsOf[manifest]()},
	))
}

// wireSchemas are those of what is not a result: errors, offers and settlements, whose
// types belong to the payment layer, and the probes.
func wireSchemas(ops []catalog.Operation) object {
	str, uri, anything := schema{Type: "string"}, schema{Type: "string", Format: "uri"}, schema{Type: "object"}
	said := func(description string) schema { return schema{Type: "string", Description: description} }
	list := func(of schema, least int) schema { return schema{Type: "array", Items: &of, MinItems: least} }
	offer := object{
		{"x402Version", schema{Type: "integer", Const: x402.Version}},
		{"error", said("Why payment is required.")},
		{"resource", component("Resource")},
		{"accepts", list(component("PaymentRequirements"), 1)},
		{"extensions", schema{Type: "object", Description: "To be echoed with the payment.", AdditionalProperties: component("Extension")}},
	}
	var codes []any
	for _, o := range everyOutcome(ops) {
		if o.Code != fault.PaymentRequired { // its body is the offer
			codes = append(codes, o.Code)
		}
	}
	return object{
		{"ErrorBody", record("Body of every error except 402.", object{
			{"error", component("ErrorDetail")}, {"request_id", str},
			{"docs_url", schema{Type: "string", Format: "uri", Description: "Where the documentation explains the code."}},
		})},
		{"ErrorDetail", record("What went wrong, and what it means for the payment.", object{
			{"code", component("ErrorCode")}, {"message", str},
			{"charged", schema{Type: []any{"boolean", "null"}, Description: "Whether money has moved for this purchase; null when that is not known."}},
			{"retryable", schema{Type: "boolean", Description: "Whether to send this again, with the same signature or a new one, for at most one charge in all."}},
		})},
		{"ErrorCode", schema{Type: "string", Description: "One of the x-error-codes of the operation.", Enum: codes}},
		{"PaymentRequired", record("What must be paid (x402 version 2).", offer)},
		{"PaymentRequiredBody", record("What must be paid, with the code and the message of the error.", append(offer[:len(offer):len(offer)],
			member{"code", schema{Type: "string", Const: string(fault.PaymentRequired)}},
			member{"message", said("For people.")}, member{"idempotency", component("PurchaseTerms")},
		))},
		{"Resource", record("What is sold.", object{
			{"url", uri}, {"description", str}, {"mimeType", str}, {"serviceName", str}, {"tags", list(str, 0)}, {"iconUrl", uri},
		}, "iconUrl")},
		{"PaymentRequirements", record("One way to pay.", object{
			{"scheme", schema{Type: "string", Const: x402.Scheme}}, {"network", said("CAIP-2.")}, {"asset", said("Token contract.")},
			{"amount", schema{Type: "string", Pattern: "^[0-9]+$", Description: "Atomic units of the asset."}}, {"payTo", str},
			{"maxTimeoutSeconds", schema{Type: "integer", Minimum: 1}}, {"extra", component("TokenDomain")},
		})},
		{"TokenDomain", record("EIP-712 domain of the token, and the payment flow.", object{{"name", str}, {"version", str}, {"paymentFlow", str}})},
		{"Extension", record("An extension of x402.", object{{"info", anything}, {"schema", anything}})},
		{"SettleResponse", record("What a settlement came to, decoded.", object{
			{"success", schema{Type: "boolean"}}, {"transaction", said("Transaction hash; empty when nothing was broadcast.")}, {"network", said("CAIP-2.")},
			{"payer", str}, {"errorReason", said("Why it did not settle.")},
			{"extensions", record("", object{{"offer-receipt", record("", object{{"info", record("", object{{"receipt", component("SignedReceipt")}})}})}})},
		}, "payer", "errorReason", "extensions")},
		{"SignedReceipt", record("The signed receipt of the answer: a compact JWS over its request, resource, payer, transaction and the SHA-256 of its body.",
			object{{"format", schema{Type: "string", Const: x402.FormatJWS}}, {"signature", str}})},
		{"Health", record("Liveness.", object{{"status", schema{Type: "string", Const: "ok"}}, {"service", str}})},
		{"Readiness", record("Readiness.", object{
			{"status", schema{Type: "string", Enum: []any{"ready", "not_ready"}}},
			{"checks", schema{Type: "object", Description: "By name.", AdditionalProperties: component("Check")}},
		})},
		{"Check", record("What one check found.", object{
			{"status", schema{Type: "string", Enum: []any{"ok", "failing", "warning"}}}, {"code", str}, {"message", str},
		}, "code", "message")},
	}
}
