package discovery

import (
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// components are what several operations refer to.
func components(ops []catalog.Operation) apiComponents {
	return apiComponents{
		Schemas: append(namedSchemas(ops), object{
			{"ErrorBody", errorSchema()},
			{"ErrorDetail", errorDetailSchema()},
			{"PaymentRequired", requiredSchema()},
			{"PaymentRequiredBody", unpaidSchema()},
			{"Resource", resourceSchema()},
			{"PaymentRequirements", termsSchema()},
			{"TokenDomain", tokenSchema()},
			{"Extension", extensionSchema()},
			{"PurchaseTerms", purchaseSchema()},
			{"SettleResponse", settledSchema()},
			{"SignedReceipt", receiptSchema()},
			{"Health", healthSchema()},
			{"Readiness", readinessSchema()},
			{"Check", checkSchema()},
			{"ToolCatalog", toolCatalogSchema()},
			{"Tool", toolSchema()},
			{"ToolParameter", toolParameterSchema()},
			{"ToolField", record("One field of a result.", object{{"name", schema{Type: "string"}}, {"type", schema{Type: "string"}}, {"description", schema{Type: "string"}}})},
			{"ToolError", record("One error code.", object{{"code", schema{Type: "string"}}, {"message", schema{Type: "string"}}, {"status", schema{Type: "integer"}}})},
			{"Playbook", playbookSchema()},
			{"PlaybookStep", record("One call.", object{{"path", schema{Type: "string"}}, {"method", schema{Type: "string"}}, {"example_url", schema{Type: "string", Format: "uri"}}})},
			{"PaymentManifest", manifestSchema()},
			{"Endpoint", endpointSchema()},
		}...),
		Responses: sharedResponses(ops),
		Headers:   headerComponents(),
		Parameters: object{
			{"PaymentSignature", apiParameter{
				Name: x402.HeaderSignature, In: "header",
				Description: "The payment, base64 of a JSON object with accepted, payload, and extensions when the offer has them. Without it the answer is 402.",
				Schema:      schema{Type: "string", ContentEncoding: "base64", ContentMediaType: typeJSON},
			}},
			{"IdempotencyKey", apiParameter{
				Name: x402.HeaderKey, In: "header",
				Description: "Names the purchase: send the same one with every attempt, and a new one to ask anew. Visible ASCII characters; one pair of quotes around them is not counted. Without a payment it is ignored.",
				Schema:      schema{Type: "string", Pattern: "^[!-~]{1,255}$"},
			}},
		},
	}
}

func headerComponents() object {
	encoded := func(ref string) schema {
		return schema{Type: "string", ContentEncoding: "base64", ContentMediaType: typeJSON, ContentSchema: &schema{Ref: ref}}
	}
	settled, wait := encoded(refSettled), schema{Type: "integer", Minimum: 1}
	return object{
		{"PaymentRequired", apiHeader{Description: "What must be paid, base64 of JSON.", Required: true, Schema: encoded(refRequired)}},
		{"Receipt", apiHeader{Description: "The settlement, base64 of JSON.", Required: true, Schema: settled}},
		{"PaymentResponse", apiHeader{Description: "What the settlement came to, base64 of JSON. On every answer after a settlement, errors included.", Schema: settled}},
		{"IdempotentReplayed", apiHeader{Description: "true when this is the stored answer of a purchase that was made before.", Schema: schema{Type: "string", Const: "true"}}},
		{x402.HeaderAge, apiHeader{Description: "Seconds since a stored answer was given.", Schema: schema{Type: "integer", Minimum: 0}}},
		{"AnswerOwed", apiHeader{
			Description: "The fields of the bundle that failed for a reason of ours, separated by commas. Repeat the request: they are looked up again without a charge.",
			Schema:      schema{Type: "string", Pattern: "^[a-z]+(, [a-z]+)*$"},
		}},
		{"RetryAfter", apiHeader{Description: "Seconds to wait.", Required: true, Schema: wait}},
		{"MayRetryAfter", apiHeader{Description: "Seconds to wait, when the request may be repeated.", Schema: wait}},
	}
}

// errorSchema is the body of every error but 402 (design: a priced request,
// step by step).
func errorSchema() schema {
	return record("Body of every error except 402.", object{
		{"error", schema{Ref: refErrorDetail}},
		{"request_id", schema{Type: "string"}},
		{"docs_url", schema{Type: "string", Format: "uri", Description: "Where the documentation explains the code."}},
	})
}

func errorDetailSchema() schema {
	return record("What went wrong, and what it means for the payment.", object{
		{"code", schema{Type: "string", Description: "One of x-error-codes."}},
		{"message", schema{Type: "string"}},
		{"charged", schema{Type: []any{"boolean", "null"}, Description: "Whether money has moved for this purchase; null when that is not known."}},
		{"retryable", schema{Type: "boolean", Description: "Whether to send this again, with the same signature or a new one, for at most one charge in all."}},
	})
}

// requiredSchema is the offer, as the header of a 402 carries it.
func requiredSchema() schema {
	return record("What must be paid (x402 version 2).", offerProperties())
}

// unpaidSchema is the body of a 402: the offer, with code and message beside
// it, because error has to stay a string there, and with how a purchase is named.
func unpaidSchema() schema {
	return record("What must be paid, with the code and the message of the error.", append(offerProperties(),
		member{"code", schema{Type: "string", Const: string(fault.PaymentRequired)}},
		member{"message", schema{Type: "string", Description: "For people."}},
		member{"idempotency", component("PurchaseTerms")},
	))
}

func purchaseSchema() schema {
	return record("How a purchase is named, and for how long its answer is replayed.", object{
		{"header", schema{Type: "string", Const: x402.HeaderKey}},
		{"replay_seconds", schema{Type: "integer", Minimum: 0, Description: "With a key."}},
		{"duplicate_window_seconds", schema{Type: "integer", Minimum: 0, Description: "Without one, after an answer given over HTTP; twice as long after one given over MCP. 0: not at all."}},
	})
}

func offerProperties() object {
	return object{
		{"x402Version", schema{Type: "integer", Const: x402.Version}},
		{"error", schema{Type: "string", Description: "Why payment is required."}},
		{"resource", schema{Ref: refResource}},
		{"accepts", schema{Type: "array", MinItems: 1, Items: &schema{Ref: refTerms}}},
		{"extensions", schema{Type: "object", Description: "To be echoed with the payment.", AdditionalProperties: component("Extension")}},
	}
}

func extensionSchema() schema {
	return record("An extension of x402.", object{{"info", schema{Type: "object"}}, {"schema", schema{Type: "object"}}})
}

func resourceSchema() schema {
	str, uri := schema{Type: "string"}, schema{Type: "string", Format: "uri"}
	return record("What is sold.", object{
		{"url", uri}, {"description", str}, {"mimeType", str},
		{"serviceName", str}, {"tags", schema{Type: "array", Items: &str}}, {"iconUrl", uri},
	}, "iconUrl")
}

func termsSchema() schema {
	str := schema{Type: "string"}
	return record("One way to pay.", object{
		{"scheme", schema{Type: "string", Const: x402.Scheme}},
		{"network", schema{Type: "string", Description: "CAIP-2."}},
		{"asset", schema{Type: "string", Description: "Token contract."}},
		{"amount", atomicUnits()},
		{"payTo", str},
		{"maxTimeoutSeconds", schema{Type: "integer", Minimum: 1}},
		{"extra", component("TokenDomain")},
	})
}

func tokenSchema() schema {
	str := schema{Type: "string"}
	return record("EIP-712 domain of the token, and the payment flow.", object{{"name", str}, {"version", str}, {"paymentFlow", str}})
}

func atomicUnits() schema {
	return schema{Type: "string", Pattern: "^[0-9]+$", Description: "Atomic units of the asset."}
}

func settledSchema() schema {
	return record("What a settlement came to, decoded.", object{
		{"success", schema{Type: "boolean"}},
		{"transaction", schema{Type: "string", Description: "Transaction hash; empty when nothing was broadcast."}},
		{"network", schema{Type: "string", Description: "CAIP-2."}},
		{"payer", schema{Type: "string"}},
		{"errorReason", schema{Type: "string", Description: "Why it did not settle."}},
		{"extensions", record("", object{{"offer-receipt", record("", object{{"info", record("", object{
			{"receipt", component("SignedReceipt")},
		})}})}})},
	}, "payer", "errorReason", "extensions")
}

func receiptSchema() schema {
	return record("The signed receipt of the answer: a compact JWS over its request, resource, payer, transaction and the SHA-256 of its body.", object{
		{"format", schema{Type: "string", Const: x402.FormatJWS}}, {"signature", schema{Type: "string"}},
	})
}

// toolCatalogSchema is the tool catalog of spec §2.10.
func toolCatalogSchema() schema {
	str, uri := schema{Type: "string"}, schema{Type: "string", Format: "uri"}
	return record("Every operation.", object{
		{"service", str}, {"base_url", uri}, {"docs_url", uri},
		{"x402Version", schema{Type: "integer", Const: catalog.X402Version}},
		{"idempotency", component("PurchaseTerms")}, {"tools", listOfSchema(schema{Ref: refTool})}, {"playbooks", listOfSchema(schema{Ref: refPlaybook})},
	})
}

func listOfSchema(of schema) schema { return schema{Type: "array", Items: &of} }

func toolParameterSchema() schema {
	str, anything := schema{Type: "string"}, schema{}
	return record("One query parameter.", object{
		{"name", str}, {"in", schema{Type: "string", Const: "query"}}, {"type", str}, {"description", str}, {"required", schema{Type: "boolean"}},
		{"default", anything}, {"enum", listOfSchema(anything)}, {"example", anything},
	}, "default", "enum")
}

func toolSchema() schema {
	str, uri := schema{Type: "string"}, schema{Type: "string", Format: "uri"}
	return record("One operation.", object{
		{"path", str}, {"method", str}, {"description", str}, {"display_price", str}, {"amount", atomicUnits()}, {"network", str}, {"asset", str},
		{"scheme", str}, {"x402Version", schema{Type: "integer", Const: catalog.X402Version}}, {"parameters", listOfSchema(component("ToolParameter"))},
		{"example_url", uri}, {"example_response", schema{Type: "object"}},
		{"response_fields", listOfSchema(component("ToolField"))},
		{"errors", listOfSchema(component("ToolError"))},
		{"docs_url", uri},
	})
}

func playbookSchema() schema {
	str, uri := schema{Type: "string"}, schema{Type: "string", Format: "uri"}
	return record("Calls in turn, and the bundle in their stead.", object{
		{"slug", str}, {"name", str}, {"description", str}, {"bundle_path", str}, {"bundle_url", uri}, {"docs_url", uri},
		{"sequence", listOfSchema(component("PlaybookStep"))},
	})
}

// manifestSchema is the payment manifest of spec §2.10.
func manifestSchema() schema {
	str, uri := schema{Type: "string"}, schema{Type: "string", Format: "uri"}
	return record("What each path costs.", object{
		{"version", schema{Type: "integer", Const: catalog.ManifestVersion}},
		{"resources", schema{Type: "array", Items: &uri}},
		{"endpoints", listOfSchema(schema{Ref: refEndpoint})},
		{"instructions", str},
		{"ownershipProofs", schema{Type: "array", Items: &str}},
	})
}

func endpointSchema() schema {
	str, uri := schema{Type: "string"}, schema{Type: "string", Format: "uri"}
	return record("One priced path.", object{
		{"url", uri}, {"method", str}, {"description", str}, {"price", str}, {"amount", atomicUnits()}, {"network", str}, {"asset", str},
		{"payTo", str}, {"scheme", str}, {"queryParams", schema{Type: "object", Description: "Default or example by parameter."}}, {"example", uri},
	})
}

func healthSchema() schema {
	return record("Liveness.", object{{"status", schema{Type: "string", Const: "ok"}}, {"service", schema{Type: "string"}}})
}

func readinessSchema() schema {
	return record("Readiness.", object{
		{"status", schema{Type: "string", Enum: []any{"ready", "not_ready"}}},
		{"checks", schema{Type: "object", Description: "By name.", AdditionalProperties: schema{Ref: refCheck}}},
	})
}

func checkSchema() schema {
	str := schema{Type: "string"}
	return record("What one check found.", object{
		{"status", schema{Type: "string", Enum: []any{"ok", "failing", "warning"}}}, {"code", str}, {"message", str},
	}, "code", "message")
}
