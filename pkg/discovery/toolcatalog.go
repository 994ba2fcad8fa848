package discovery

import (
	"cmp"
	"encoding/json"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// toolCatalog is the tool catalog of spec §2.10, served at /v1/catalog.
type toolCatalog struct {
	Service     string      `json:"service"`
	BaseURL     string      `json:"base_url" format:"uri"`
	DocsURL     string      `json:"docs_url" format:"uri"`
	X402Version int         `json:"x402Version" const:"2"`
	Idempotency Idempotency `json:"idempotency" schema:"PurchaseTerms" doc:"How a purchase is named, and for how long its answer is replayed."`
	Tools       []tool      `json:"tools" schema:"Tool" item:"One operation."`
	Playbooks   []playbook  `json:"playbooks" schema:"Playbook" item:"Calls in turn, and the bundle in their stead."`
}

type tool struct {
	Path            string          `json:"path"`
	Method          string          `json:"method"`
	Description     string          `json:"description"`
	DisplayPrice    string          `json:"display_price"`
	Amount          string          `json:"amount" pattern:"^[0-9]+$" doc:"Atomic units of the asset."`
	Network         string          `json:"network"`
	Asset           string          `json:"asset"`
	Scheme          string          `json:"scheme"`
	X402Version     int             `json:"x402Version" const:"2"`
	Parameters      []parameter     `json:"parameters" schema:"ToolParameter" item:"One query parameter."`
	ExampleURL      string          `json:"example_url" format:"uri"`
	ExampleResponse json.RawMessage `json:"example_response"`
	ResponseFields  []row           `json:"response_fields" schema:"ToolField" item:"One field of a result."`
	Errors          []toolError     `json:"errors" schema:"ToolError" item:"One error code."`
	DocsURL         string          `json:"docs_url" format:"uri"`
}

type parameter struct {
	Name        string `json:"name"`
	In          string `json:"in" const:"query"`
	Type        string `json:"type"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
	Default     any    `json:"default,omitempty"`
	Enum        []any  `json:"enum,omitempty"`
	Example     any    `json:"example"`
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
	BundleURL   string         `json:"bundle_url" format:"uri"`
	DocsURL     string         `json:"docs_url" format:"uri"`
	Sequence    []playbookStep `json:"sequence" schema:"PlaybookStep" item:"One call."`
}

type playbookStep struct {
	Path       string `json:"path"`
	Method     string `json:"method"`
	ExampleURL string `json:"example_url" format:"uri"`
}

func toolCatalogOf(s Site) toolCatalog {
	c := toolCatalog{
		Service: catalog.Service, BaseURL: s.Origin, DocsURL: s.Origin + catalog.PathDocs,
		X402Version: x402.Version, Idempotency: idempotencyOf(s.DuplicateWindow), Playbooks: playbooksOf(s),
	}
	said := map[fault.Code]string{}
	for _, op := range catalog.All() {
		c.Tools = append(c.Tools, toolOf(s, op, said))
	}
	return c
}

// toolOf is an entry of the catalog. said are the codes that an entry before it
// has explained, by that entry's slug: each sentence is said once.
func toolOf(s Site, op catalog.Operation, said map[fault.Code]string) tool {
	t := tool{
		Path: op.Path, Method: catalog.Method, Description: op.Description, DisplayPrice: op.Price(), Amount: op.Amount,
		Network: s.Terms.Network, Asset: s.Terms.Asset, Scheme: x402.Scheme, X402Version: x402.Version,
		ExampleURL: op.ExampleURL(s.Origin), ExampleResponse: json.RawMessage(op.Response), DocsURL: op.DocsURL(s.Origin),
	}
	for _, p := range op.Params {
		t.Parameters = append(t.Parameters, parameter{
			Name: p.Name, In: "query", Type: p.Type, Description: p.Description, Required: p.Required,
			Default: typed(p.Type, p.Default), Enum: typedAll(p.Type, p.Enum), Example: typed(p.Type, p.Example),
		})
	}
	for _, f := range op.Fields {
		t.ResponseFields = append(t.ResponseFields, row{f.Name, f.TypeText(), describeWhole(f)})
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

// describeWhole is a field's description with what the items of an array look like, as
// in "A and AAAA {address}; MX {preference, exchange}". What is inside an object the
// example shows, or that of the tool whose result it is.
func describeWhole(f catalog.Field) string {
	text, joint := describe(f), ": "
	for _, item := range f.Items {
		if f.Type != "array" || len(item.Fields) == 0 {
			continue
		}
		text += joint
		if joint = "; "; len(f.Items) > 1 {
			text += item.Description + " "
		}
		for i, field := range item.Fields {
			text += []string{"{", ", "}[min(i, 1)] + field.Name
		}
		text += "}"
	}
	return text
}

func playbooksOf(s Site) []playbook {
	var all []playbook
	for _, b := range catalog.Playbooks() {
		bundle, _ := catalog.BySlug(b.Bundle)
		p := playbook{
			Slug: b.Slug, Name: b.Name, Description: b.Description,
			BundlePath: bundle.Path, BundleURL: s.Origin + bundle.Path, DocsURL: bundle.DocsURL(s.Origin),
		}
		for _, slug := range b.Sequence {
			op, _ := catalog.BySlug(slug)
			p.Sequence = append(p.Sequence, playbookStep{Path: op.Path, Method: catalog.Method, ExampleURL: op.StepURL(s.Origin, bundle)})
		}
		all = append(all, p)
	}
	return all
}

// manifest is the payment manifest of spec §2.10, served at /.well-known/x402.
type manifest struct {
	Version         int        `json:"version" const:"1"`
	Resources       []string   `json:"resources" format:"uri"`
	Endpoints       []endpoint `json:"endpoints" schema:"Endpoint" item:"One priced path."`
	Instructions    string     `json:"instructions"`
	OwnershipProofs []string   `json:"ownershipProofs"`
}

// endpoint is one priced path of the manifest.
type endpoint struct {
	URL         string `json:"url" format:"uri"`
	Method      string `json:"method"`
	Description string `json:"description"`
	Price       string `json:"price"`
	Amount      string `json:"amount" pattern:"^[0-9]+$" doc:"Atomic units of the asset."`
	Network     string `json:"network"`
	Asset       string `json:"asset"`
	PayTo       string `json:"payTo"`
	Scheme      string `json:"scheme"`
	QueryParams object `json:"queryParams" doc:"Default or example by parameter."`
	Example     string `json:"example" format:"uri"`
}

// manifestOf lists every operation as an endpoint, and all but the smoke test
// as a resource: resources are what crawlers put on sale.
func manifestOf(v *view) manifest {
	m := manifest{
		Version:      catalog.ManifestVersion,
		Instructions: v.said("instructions.txt.tmpl"), OwnershipProofs: append([]string{}, v.Site.OwnershipProofs...),
	}
	for _, op := range v.Ops {
		e := endpoint{
			URL: op.URL, Method: catalog.Method, Description: op.Description, Price: op.Price(), Amount: op.Amount,
			Network: v.Site.Terms.Network, Asset: v.Site.Terms.Asset, PayTo: v.Site.Terms.PayTo, Scheme: x402.Scheme,
			Example: op.ExampleURL,
		}
		for _, p := range op.Params {
			e.QueryParams = append(e.QueryParams, member{p.Name, typed(p.Type, cmp.Or(p.Default, p.Example))})
		}
		m.Endpoints = append(m.Endpoints, e)
		if op.Kind != catalog.SmokeTest {
			m.Resources = append(m.Resources, e.URL)
		}
	}
	return m
}
