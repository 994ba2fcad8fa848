package discovery

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// openAPI is the OpenAPI 3.1 description (spec §4.1, §9). It lists every path:
// crawlers read only this file.
type openAPI struct {
	OpenAPI    string          `json:"openapi"`
	Info       apiInfo         `json:"info"`
	Servers    []apiServer     `json:"servers"`
	Tags       []apiTag        `json:"tags"`
	Security   []struct{}      `json:"security"`
	Paths      object          `json:"paths"`
	Components apiComponents   `json:"components"`
	ErrorCodes object          `json:"x-error-codes"`
	Docs       apiExternalDocs `json:"externalDocs"`
	Proofs     *apiProofs      `json:"x-discovery,omitempty"`
	Guidance   apiGuidance     `json:"x-agentcash-guidance"`
}

type apiInfo struct {
	Title       string     `json:"title"`
	Version     string     `json:"version"`
	Summary     string     `json:"summary"`
	Description string     `json:"description"`
	Contact     apiContact `json:"contact"`
	License     apiLicense `json:"license"`
	Guidance    string     `json:"x-guidance"`
}

type apiLicense struct {
	Name       string `json:"name"`
	Identifier string `json:"identifier"` // SPDX
}

type apiContact struct {
	Name  string `json:"name"`
	URL   string `json:"url,omitempty"`
	Email string `json:"email,omitempty"`
}

type apiServer struct {
	URL string `json:"url"`
}

type apiTag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type apiExternalDocs struct {
	Description string `json:"description,omitempty"`
	URL         string `json:"url"`
}

type apiProofs struct {
	OwnershipProofs []string `json:"ownershipProofs"`
}

type apiGuidance struct {
	LLMsTxtURL string `json:"llmsTxtUrl"`
}

type apiComponents struct {
	Schemas    object `json:"schemas"`
	Responses  object `json:"responses"`
	Headers    object `json:"headers"`
	Parameters object `json:"parameters"`
}

type apiPath struct {
	Get apiOperation `json:"get"`
}

type apiOperation struct {
	Tags        []string         `json:"tags"`
	OperationID string           `json:"operationId"`
	Summary     string           `json:"summary"`
	Description string           `json:"description"`
	Docs        *apiExternalDocs `json:"externalDocs,omitempty"`
	Security    []struct{}       `json:"security"`
	Parameters  []any            `json:"parameters,omitempty"`
	Responses   object           `json:"responses"`
	Payment     *apiPayment      `json:"x-payment-info,omitempty"`
	ErrorCodes  []fault.Code     `json:"x-error-codes,omitempty"` // in the document's table
}

type apiParameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Required    bool   `json:"required"`
	Description string `json:"description"`
	Schema      schema `json:"schema"`
}

type apiRef struct {
	Ref string `json:"$ref"`
}

type apiResponse struct {
	Description string `json:"description"`
	Headers     object `json:"headers,omitempty"`
	Content     object `json:"content,omitempty"`
}

type apiMedia struct {
	Schema  schema `json:"schema"`
	Example any    `json:"example,omitempty"`
}

type apiHeader struct {
	Description string `json:"description"`
	Required    bool   `json:"required,omitempty"`
	Schema      schema `json:"schema"`
}

// apiPayment is what crawlers read a price from: decimal dollars here, atomic
// units in the offer.
type apiPayment struct {
	Price     apiPrice `json:"price"`
	Protocols []object `json:"protocols"`
}

type apiPrice struct {
	Mode     string `json:"mode"`
	Currency string `json:"currency"`
	Amount   string `json:"amount"`
}

// apiErrorCode says of a code what the error body would say: Charged is null
// where only the body knows.
type apiErrorCode struct {
	Status    int    `json:"status"`
	Charged   *bool  `json:"charged"`
	Retryable bool   `json:"retryable"`
	Message   string `json:"message"`
}

// apiErrorCodes is the table of all codes that the operations list, and of those
// that none does.
func apiErrorCodes(ops []catalog.Operation) object {
	var table object
	for _, o := range everyOutcome(ops) {
		table = append(table, member{string(o.Code), apiErrorCode{o.Status, o.charged, o.Retry, o.Message}})
	}
	return table
}

func openAPIOf(v *view) openAPI {
	doc := openAPI{
		OpenAPI: "3.1.0",
		Info: apiInfo{
			Title: catalog.Service, Version: catalog.APIVersion, Summary: catalog.Tagline,
			Description: apiDescription(v),
			Contact:     apiContactOf(v.Site),
			License:     apiLicense{Name: "MIT", Identifier: "MIT"},
			Guidance:    v.Guidance,
		},
		Servers:    []apiServer{{URL: v.Site.Origin}},
		Tags:       apiTags(v),
		Security:   []struct{}{},
		Components: components(v.operations),
		ErrorCodes: apiErrorCodes(v.operations),
		Docs:       apiExternalDocs{Description: "Documentation", URL: v.Site.Origin + catalog.PathDocs},
		Guidance:   apiGuidance{LLMsTxtURL: v.Site.Origin + catalog.PathLLMs},
	}
	if len(v.Site.OwnershipProofs) > 0 {
		doc.Proofs = &apiProofs{OwnershipProofs: v.Site.OwnershipProofs}
	}
	doc.Paths = freePaths()
	for _, op := range v.Ops {
		doc.Paths = append(doc.Paths, member{op.Path, apiPath{pricedOperation(op)}})
	}
	return doc
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

func apiTags(v *view) []apiTag {
	tags := []apiTag{{tagTools, "One fact each, paid per request."}}
	if slices.ContainsFunc(v.operations, func(op catalog.Operation) bool { return op.Kind == catalog.Bundle }) {
		tags = append(tags, apiTag{tagBundles, "Several lookups for one payment."})
	}
	return append(tags,
		apiTag{tagSmoke, "Checks the payment gate; not a product."},
		apiTag{tagFree, "Free documents that describe the service."},
		apiTag{tagProbes, "Free probes of the service itself."},
	)
}

func tagOf(k catalog.Kind) string {
	switch k {
	case catalog.Bundle:
		return tagBundles
	case catalog.SmokeTest:
		return tagSmoke
	default:
		return tagTools
	}
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
	for _, o := range outcomes(op.AllErrors()) {
		if !slices.Contains(statuses, o.Status) {
			statuses = append(statuses, o.Status)
		}
	}
	slices.Sort(statuses)
	return statuses
}

// operationID is what a generated client calls an operation: the name that it has
// as a tool.
func operationID(op catalog.Operation) string {
	if op.Tool == "" {
		return strings.ReplaceAll(op.Slug, "-", "_")
	}
	return op.Tool
}

func pricedOperation(op opView) apiOperation {
	o := apiOperation{
		Tags: []string{tagOf(op.Kind)}, OperationID: operationID(op.Operation),
		Summary: op.Summary, Description: op.Description + " Costs " + op.Price() + " per call.",
		Docs: &apiExternalDocs{URL: op.DocsURL}, Security: []struct{}{},
		Payment: &apiPayment{
			Price:     apiPrice{Mode: "fixed", Currency: "USD", Amount: op.PriceUSD()},
			Protocols: []object{{{"x402", object{}}}},
		},
	}
	for _, p := range op.Params {
		s := paramSchema(p)
		o.Parameters = append(o.Parameters, apiParameter{Name: p.Name, In: "query", Required: p.Required, Description: p.Description, Schema: s})
	}
	o.Parameters = append(o.Parameters, apiRef{refSignature}, apiRef{refKey})
	for _, status := range declaredStatuses(op.Operation) {
		o.Responses = append(o.Responses, member{fmt.Sprint(status), pricedResponse(op, status)})
	}
	o.ErrorCodes = op.AllErrors()
	return o
}

// pricedResponse is the result, or the shared response of a status.
func pricedResponse(op opView, status int) any {
	if status == http.StatusOK {
		return paidResponse(op)
	}
	return apiRef{responseRef(status)}
}
