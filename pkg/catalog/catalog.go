// Package catalog is the only definition of the service's operations: the name, path, price,
// parameters, answer and errors of each operation (spec §1, §2, §4, §7). In all packages,
// "spec" means the product's specification, which is not part of this repository.
//
// The discovery documents and the payment offers are rendered from this package. Tests compare
// the catalog with everything else that states these facts: the SAM template, the events, and
// the Go result types.
package catalog

import (
	"cmp"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hostfacts/hostfacts/pkg/lookup"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// The service's own names and versions (spec §2.9, §2.10, §9).
const (
	Service         = "Hostfacts"
	Tagline         = "Live facts about a public hostname, one x402 payment each."
	APIVersion      = "0.1.0"
	ManifestVersion = 1
	Method          = "GET"
	Homepage        = "https://github.com/hostfacts/hostfacts"
	// Runbook is the operator's guide. Alarms and the dashboard link to it.
	Runbook = Homepage + "/blob/main/infra/RUNBOOK.md"
)

// Free paths (spec §4.1).
const (
	PathHealth   = "/health"
	PathReady    = "/ready"
	PathCatalog  = "/v1/catalog"
	PathOpenAPI  = "/openapi.json"
	PathManifest = "/.well-known/x402"
	PathLLMs     = "/llms.txt"
	PathLLMsFull = "/llms-full.txt"
	PathDocs     = "/docs"
)

// Paths that are not in the spec.
const (
	// PathMCP serves the operations as tools of the Model Context Protocol.
	PathMCP = "/mcp"
	// PathServer serves the MCP server's entry for registries.
	PathServer = "/server.json"
)

// Kind distinguishes tools, bundles and the smoke test.
type Kind string

// The kinds of priced operation.
const (
	Tool      Kind = "tool"
	Bundle    Kind = "bundle"
	SmokeTest Kind = "smoke-test"
)

// Operation is one priced operation, with its path.
type Operation struct {
	Slug  string // the name of its function and its event, and its anchor in the documentation
	Path  string
	Title string // the operation's product name in the spec
	// Tool is the operation's name as a tool of the Model Context Protocol.
	Tool string
	// Result is the name of the result's schema.
	Result string
	// Use says when to call the operation. It completes the sentence "Call it ...".
	Use string
	// Question is the question that a call answers, in the form of a heading, such as "{type}
	// records of {domain}". A name in braces stands for the value of the parameter with that
	// name.
	Question string
	// Returns describes the answer for a person, in one line.
	Returns     string
	Summary     string // one sentence, at most 120 characters
	Description string // at most 400 characters, because catalogues refuse longer descriptions
	Tags        []string
	Kind        Kind
	// Amount is the price in atomic units of USDC (six decimals).
	Amount string
	Params []Param
	// Errors are the operation's own codes, in the spec's order. AllErrors adds
	// the payment errors of spec §7.1.
	Errors []fault.Code
	Fields []Field
	// Verdicts are the rules that choose the line that summarises an answer.
	Verdicts []lookup.Verdict
	// Response is the example answer, as JSON.
	Response string
	// Deadline is the time limit of the lookup.
	Deadline time.Duration
}

// Param is a query parameter.
type Param struct {
	Name        string
	Type        string // the JSON type
	Description string
	Required    bool
	Default     string // "" means that there is no default
	Enum        []string
	// Example is the parameter's value in the query to which the example answer belongs. If the
	// example is the default value, the query omits the parameter.
	Example string
	// Code is the code of the error for a wrong value. It is empty if every value is accepted.
	Code fault.Code
}

// Playbook is a suggested call sequence (spec §4.10).
type Playbook struct {
	Slug        string
	Name        string
	Description string
	Bundle      string   // the slug of the bundle that a client can call instead of the sequence
	Sequence    []string // the slugs of the operations, in order
}

// Playbooks returns the suggested call sequences of spec §4.10.
func Playbooks() []Playbook {
	return []Playbook{
		{
			Slug:        "host-intelligence",
			Name:        "Host intelligence",
			Bundle:      "host-intel",
			Description: "DNS records, certificate and registration: three calls, or the bundle.",
			Sequence:    []string{"dns", "ssl-check", "whois"},
		},
		{
			Slug:        "uptime-check",
			Name:        "Uptime check",
			Bundle:      "uptime-check",
			Description: "Three calls, or the bundle, show whether a host answers now. Nothing is monitored.",
			Sequence:    []string{"dns", "ssl-check", "headers"},
		},
	}
}

// BySlug returns the operation with a slug.
func BySlug(slug string) (op Operation, ok bool) {
	for _, op := range operations() {
		if op.Slug == slug {
			return op, true
		}
	}
	return Operation{}, false
}

// PaymentErrors returns the codes that every priced path can answer (spec §7.1).
// fault.Overloaded is not among them, because the smoke test has a priced path and never
// answers with it.
func PaymentErrors() []fault.Code {
	return []fault.Code{
		fault.PaymentRequired,
		fault.PaymentInProgress,
		fault.RateLimited,
		fault.SettlementUncertain,
		fault.FacilitatorUnavailable,
		fault.FacilitatorMisconfigured,
		fault.FacilitatorUnauthorized,
		fault.LedgerUnavailable,
		fault.PaymentUnavailable,
	}
}

// AllErrors returns the operation's own codes and the payment errors.
func (o Operation) AllErrors() []fault.Code { return slices.Concat(o.Errors, PaymentErrors()) }

// Can reports whether the operation can answer with a code.
func (o Operation) Can(c fault.Code) bool { return slices.Contains(o.AllErrors(), c) }

// Price returns the amount as dollars, such as "$0.005".
func (o Operation) Price() string { return "$" + o.PriceUSD() }

// Cheapest returns the lowest price of all operations, in atomic units.
func Cheapest() *big.Int {
	cheapest := operations()[0].atomicPrice()
	for _, op := range operations() {
		if price := op.atomicPrice(); price.Cmp(cheapest) < 0 {
			cheapest = price
		}
	}
	return cheapest
}

// atomicPrice returns the price in atomic units, as a number.
func (o Operation) atomicPrice() *big.Int {
	n, ok := new(big.Int).SetString(o.Amount, 10)
	if !ok {
		panic("catalog: the price of " + o.Slug + " is not an integer")
	}
	return n
}

// PriceUSD returns the amount as decimal dollars without a sign, such as "0.005".
func (o Operation) PriceUSD() string {
	const decimals = 6 // USDC
	digits := fmt.Sprintf("%0*d", decimals+1, o.atomicPrice())
	whole := digits[:len(digits)-decimals]
	fraction := strings.TrimRight(digits[len(digits)-decimals:], "0")
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

// Example returns the parameters of the example call. These are the parameters whose example
// value differs from the default, because the call omits default values.
func (o Operation) Example() []Param {
	return slices.DeleteFunc(slices.Clone(o.Params), func(p Param) bool { return p.Example == p.Default })
}

// ExampleURL returns the URL of the example call below an origin such as https://host.
func (o Operation) ExampleURL(origin string) string {
	var query []string
	for _, p := range o.Example() {
		query = append(query, p.Name+"="+url.QueryEscape(p.Example))
	}
	return origin + o.Path + "?" + strings.Join(query, "&")
}

// StepURL returns the URL of the operation's example call as a step of a playbook. The URL
// omits the parameters that the bundle does not have, because the step must look up the same as
// the bundle.
func (o Operation) StepURL(origin string, bundle Operation) string {
	var shared []Param
	for _, p := range o.Params {
		if bundle.hasParam(p.Name) {
			shared = append(shared, p)
		}
	}
	o.Params = shared
	return o.ExampleURL(origin)
}

func (o Operation) hasParam(name string) bool {
	return slices.ContainsFunc(o.Params, func(p Param) bool { return p.Name == name })
}

// ErrorURL returns the URL at which the documentation for people explains an error code. Every
// error body contains it.
func ErrorURL(origin string, c fault.Code) string { return origin + PathDocs + "#" + ErrorAnchor(c) }

// ErrorAnchor returns the anchor of an error code in the documentation for people.
func ErrorAnchor(c fault.Code) string { return "error-" + string(c) }

// Request returns the name that a request has in the ledger and in its receipt. The name
// consists of the method, the path and the normalised parameters, sorted by name. A missing
// parameter has its default value. Nothing else in the request is part of the name.
func (o Operation) Request(values url.Values) string {
	params := url.Values{}
	for _, p := range o.Params {
		value := cmp.Or(values.Get(p.Name), p.Default)
		if value != "" && o.Kind != SmokeTest {
			params.Set(p.Name, value)
		}
	}
	return Method + " " + o.Path + "?" + params.Encode()
}

// DocsURL returns the URL of the operation in the documentation for people.
func (o Operation) DocsURL(origin string) string { return origin + PathDocs + "#" + o.Slug }

// UnknownPath is the code of every path that is not in the catalog.
const UnknownPath fault.Code = "unknown_path"

// NoSuchPath returns the description of UnknownPath.
func NoSuchPath() fault.Info {
	return fault.Info{
		Code:    UnknownPath,
		Status:  http.StatusNotFound,
		Class:   fault.NoCharge,
		Message: "No such path. The catalog is at " + PathCatalog + " and the documentation at " + PathDocs + ".",
		Remedy:  "Use one of the paths listed there, spelled exactly.",
	}
}

// Codes returns every code that the service answers with: first the codes of payments and of
// lookups, in the order of spec §7, then the codes that the spec does not have.
func Codes() []fault.Info { return slices.Clone(codes()) }

// codes returns all codes. It makes the list only once.
var codes = sync.OnceValue(func() []fault.Info {
	var list []fault.Info
	for _, info := range fault.All() {
		if info.Code == fault.InternalError {
			list = append(list, lookup.Codes()...)
			list = append(list, info, NoSuchPath())
			continue
		}
		list = append(list, info)
	}
	return list
})

// CodeOf returns the description of a code. ok is false if the service never answers with it.
func CodeOf(c fault.Code) (info fault.Info, ok bool) {
	for _, info := range codes() {
		if info.Code == c {
			return info, true
		}
	}
	return fault.Info{}, false
}

// Slip returns the parameter that the sender of a misspelt name probably meant. It returns
// false if the operation has a parameter with exactly that name. A parameter matches if its
// name differs from the misspelt name by one edit. It also matches if another operation has a
// parameter with the misspelt name and the same code for wrong values.
func (o Operation) Slip(name string) (meant Param, ok bool) {
	if o.hasParam(name) {
		return Param{}, false
	}
	for _, p := range o.Params {
		if p.Code != "" && (OneEdit(strings.ToLower(name), p.Name) || isParam(name, p.Code)) {
			return p, true
		}
	}
	return Param{}, false
}

// isParam reports whether any operation has a parameter with this name and this code for wrong
// values.
func isParam(name string, code fault.Code) bool {
	for _, op := range operations() {
		for _, p := range op.Params {
			if p.Name == name && p.Code == code {
				return true
			}
		}
	}
	return false
}

// OneEdit reports whether two texts are equal, or differ in one insertion, removal or change
// of a character, or in the exchange of two neighbouring characters (Damerau-Levenshtein
// distance of 1 at most).
func OneEdit(a, b string) bool {
	// Remove the common beginning and the common end; the difference remains.
	x := []rune(a)
	y := []rune(b)
	for len(x) > 0 && len(y) > 0 && x[0] == y[0] {
		x = x[1:]
		y = y[1:]
	}
	for len(x) > 0 && len(y) > 0 && x[len(x)-1] == y[len(y)-1] {
		x = x[:len(x)-1]
		y = y[:len(y)-1]
	}
	if len(x) <= 1 && len(y) <= 1 {
		return true
	}
	return len(x) == 2 && len(y) == 2 && x[0] == y[1] && x[1] == y[0]
}
