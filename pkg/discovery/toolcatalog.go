package discovery

import (
	"encoding/json"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// toolCatalog is the tool catalog of spec §2.10, served at /v1/catalog.
type toolCatalog struct {
	Service     string      `json:"service"`
	BaseURL     string      `json:"base_url"`
	DocsURL     string      `json:"docs_url"`
	X402Version int         `json:"x402Version"`
	Idempotency Idempotency `json:"idempotency"`
	Tools       []tool      `json:"tools"`
	Playbooks   []playbook  `json:"playbooks"`
}

type tool struct {
	Path            string          `json:"path"`
	Method          string          `json:"method"`
	Description     string          `json:"description"`
	DisplayPrice    string          `json:"display_price"`
	Amount          string          `json:"amount"`
	Network         string          `json:"network"`
	Asset           string          `json:"asset"`
	Scheme          string          `json:"scheme"`
	X402Version     int             `json:"x402Version"`
	Parameters      []parameter     `json:"parameters"`
	ExampleURL      string          `json:"example_url"`
	ExampleResponse json.RawMessage `json:"example_response"`
	ResponseFields  []responseField `json:"response_fields"`
	Errors          []toolError     `json:"errors"`
	DocsURL         string          `json:"docs_url"`
}

type parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Type        string `json:"type"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
	Default     any    `json:"default,omitempty"`
	Enum        []any  `json:"enum,omitempty"`
	Example     any    `json:"example"`
}

// responseField is a top-level field of the result: exactly the keys of
// example_response. What is inside an object or array stands in Description.
type responseField struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Description string `json:"description"`
}

// toolError has the spec's three keys. Message says what the code means for the
// payment, where that follows from the code; else the error body says it. A code
// that a tool before it has explained is explained there.
type toolError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Status  int    `json:"status"`
}

type playbook struct {
	Slug        string         `json:"slug"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	BundlePath  string         `json:"bundle_path"`
	BundleURL   string         `json:"bundle_url"`
	DocsURL     string         `json:"docs_url"`
	Sequence    []playbookStep `json:"sequence"`
}

type playbookStep struct {
	Path       string `json:"path"`
	Method     string `json:"method"`
	ExampleURL string `json:"example_url"`
}

func toolCatalogOf(s Site, ops []catalog.Operation, books []catalog.Playbook) toolCatalog {
	c := toolCatalog{
		Service: catalog.Service, BaseURL: s.Origin, DocsURL: s.Origin + catalog.PathDocs,
		X402Version: catalog.X402Version, Idempotency: idempotencyOf(s.DuplicateWindow), Tools: []tool{}, Playbooks: []playbook{},
	}
	said := map[fault.Code]string{}
	for _, op := range ops {
		c.Tools = append(c.Tools, toolOf(s, op, said))
	}
	for _, b := range books {
		c.Playbooks = append(c.Playbooks, playbookOf(s, ops, b))
	}
	return c
}

// toolOf is an entry of the catalog. said are the codes that an entry before it
// has explained, by that entry's slug: each sentence is said once.
func toolOf(s Site, op catalog.Operation, said map[fault.Code]string) tool {
	terms := s.Terms.Requirements(op.Amount)
	t := tool{
		Path: op.Path, Method: catalog.Method, Description: op.Description,
		DisplayPrice: op.Price(), Amount: terms.Amount, Network: terms.Network, Asset: terms.Asset,
		Scheme: terms.Scheme, X402Version: catalog.X402Version,
		Parameters: []parameter{}, ExampleURL: op.ExampleURL(s.Origin),
		ExampleResponse: json.RawMessage(op.Response), ResponseFields: []responseField{},
		Errors: []toolError{}, DocsURL: op.DocsURL(s.Origin),
	}
	for _, p := range op.Params {
		entry := parameter{
			Name: p.Name, In: "query", Type: p.Type, Description: p.Description,
			Required: p.Required, Enum: typedAll(p, p.Enum), Example: typed(p, p.Example),
		}
		if p.Default != "" {
			entry.Default = typed(p, p.Default)
		}
		t.Parameters = append(t.Parameters, entry)
	}
	for _, f := range op.Fields {
		t.ResponseFields = append(t.ResponseFields, responseField{Name: f.Name, Type: f.TypeText(), Description: describeWhole(f)})
	}
	for _, o := range outcomes(op.AllErrors()) {
		message := o.Message + map[fault.Class]string{fault.Answer: " Charged.", fault.Owed: " Charged; answer owed."}[o.Class]
		if by, ok := said[o.Code]; ok {
			message = "See " + by + "."
		} else {
			said[o.Code] = op.Slug
		}
		t.Errors = append(t.Errors, toolError{Code: string(o.Code), Message: message, Status: o.Status})
	}
	return t
}

// describeWhole is a field's description with what its items look like. What is
// inside an object the example shows, or that of the tool whose result it is.
func describeWhole(f catalog.Field) string {
	text := describe(f)
	if s := shapes(f); s != "" && f.Type == "array" {
		text += ": " + s
	}
	return text
}

func playbookOf(s Site, ops []catalog.Operation, b catalog.Playbook) playbook {
	p := playbook{Slug: b.Slug, Name: b.Name, Description: b.Description, Sequence: []playbookStep{}}
	bundle, ok := bySlug(ops, b.Bundle)
	if ok {
		p.BundlePath, p.BundleURL, p.DocsURL = bundle.Path, s.Origin+bundle.Path, bundle.DocsURL(s.Origin)
	}
	for _, slug := range b.Sequence {
		if op, ok := bySlug(ops, slug); ok {
			p.Sequence = append(p.Sequence, playbookStep{Path: op.Path, Method: catalog.Method, ExampleURL: op.StepURL(s.Origin, bundle)})
		}
	}
	return p
}

func bySlug(ops []catalog.Operation, slug string) (catalog.Operation, bool) {
	for _, op := range ops {
		if op.Slug == slug {
			return op, true
		}
	}
	return catalog.Operation{}, false
}
