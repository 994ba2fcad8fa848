package discovery

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// toolCatalog is the tool catalog of spec §2.10, served at /v1/catalog.
type toolCatalog struct {
	Service     string      `json:"service"`
	BaseURL     string      `json:"base_url" format:"uri"`
	DocsURL     string      `json:"docs_url" format:"uri"`
	X402Version int         `json:"x402Version" const:"2"`
	Idempotency Idempotency `json:"idempotency" schema:"PurchaseTerms" doc:"How a purchase is named, and for how long its answer is replayed."`
	Tools       []tool      `json:"tools" schema:"Tool" item:"One operation."`
	Playbooks   []playbook  `json:"playbooks" schema:"Playbook" item:"A sequence of calls, and the bundle that replaces it."`
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
	// DuplicateWindow is the tool's duplicate window in seconds. It is nil if the window is
	// the one in the catalog's idempotency.
	DuplicateWindow *int `json:"duplicate_window_seconds,omitempty" minimum:"0" doc:"Overrides the value in idempotency."`
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

// toolError describes a code with which a tool can fail. The spec prescribes the three members.
// If every error with the code is charged, Message says so. Otherwise only the body of an error
// says whether that error is charged.
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

// toolCatalogOf returns the tool catalog of a Site. It replaces the placeholders in the
// embedded catalog by the values of the deployment. These values need no escaping in JSON. The
// embedded catalog was rendered before, because rendering it here would take a tenth of the
// time between the function's start and its first answer.
func toolCatalogOf(s Site) []byte {
	blank := blankSite()
	values := strings.NewReplacer(
		blank.Origin, s.Origin,
		blank.Terms.Network, s.Terms.Network,
		blank.Terms.Asset, s.Terms.Asset,
		string(encode(idempotencyOf(blank.DuplicateWindow))), string(encode(idempotencyOf(s.DuplicateWindow))),
	)
	return []byte(values.Replace(readGenerated(assets, "catalog.json")))
}

// blankSite returns a Site whose values are placeholders. The embedded tool catalog was made
// for this Site, so it contains these placeholders.
func blankSite() Site {
	return Site{Origin: "{origin}", Terms: x402.Terms{Network: "{network}", Asset: "{asset}"}}
}

func playbooksOf(s Site) []playbook {
	var all []playbook
	for _, b := range catalog.Playbooks() {
		bundle, _ := catalog.BySlug(b.Bundle)
		p := playbook{
			Slug:        b.Slug,
			Name:        b.Name,
			Description: b.Description,
			BundlePath:  bundle.Path,
			BundleURL:   s.Origin + bundle.Path,
			DocsURL:     bundle.DocsURL(s.Origin),
		}
		for _, slug := range b.Sequence {
			op, _ := catalog.BySlug(slug)
			p.Sequence = append(p.Sequence, playbookStep{
				Path:       op.Path,
				Method:     catalog.Method,
				ExampleURL: op.StepURL(s.Origin, bundle),
			})
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
	QueryParams object `json:"queryParams" doc:"The default or an example of each parameter."`
	Example     string `json:"example" format:"uri"`
}

// manifestOf returns the payment manifest. Every operation is an endpoint in it. Every
// operation except the smoke test is also a resource in it, because crawlers offer resources
// for sale.
func manifestOf(v *view) manifest {
	m := manifest{
		Version:         catalog.ManifestVersion,
		Instructions:    v.section("instructions.txt.tmpl"),
		OwnershipProofs: append([]string{}, v.Site.OwnershipProofs...),
	}
	for _, op := range v.Ops {
		e := endpoint{
			URL:         op.URL,
			Method:      catalog.Method,
			Description: op.Description,
			Price:       op.Price(),
			Amount:      op.Amount,
			Network:     v.Site.Terms.Network,
			Asset:       v.Site.Terms.Asset,
			PayTo:       v.Site.Terms.PayTo,
			Scheme:      x402.Scheme,
			Example:     op.ExampleURL,
		}
		for _, p := range op.Params {
			value := jsonValue(p.Type, cmp.Or(p.Default, p.Example))
			e.QueryParams = append(e.QueryParams, member{p.Name, value})
		}
		m.Endpoints = append(m.Endpoints, e)
		if op.Kind != catalog.SmokeTest {
			m.Resources = append(m.Resources, e.URL)
		}
	}
	return m
}

// Tools returns the operations as the Model Context Protocol lists them: a JSON array in the
// catalog's order.
func Tools(s Site) json.RawMessage {
	var all []object
	for _, op := range catalog.All() {
		all = append(all, mcpToolOf(s, op))
	}
	return encode(all)
}

// mcpToolOf returns an operation's entry in tools/list. The annotations of the entry help a
// host to decide whether a model may call the tool. A lookup is marked as read-only, because
// it changes nothing. Whether to pay for it is the wallet's decision. The smoke test is not
// marked as read-only, because its purpose is the payment, and each payment is charged. The
// member _meta of the entry shows the price before the first call.
func mcpToolOf(s Site, op catalog.Operation) object {
	isLookup := op.Kind != catalog.SmokeTest
	annotations := object{
		{"title", op.Title},
		{"readOnlyHint", isLookup},
		{"destructiveHint", false},
		{"idempotentHint", isLookup},
		{"openWorldHint", isLookup},
	}
	price := object{
		{"scheme", x402.Scheme},
		{"network", s.Terms.Network},
		{"amount", op.Amount},
		{"asset", s.Terms.Asset},
		{"payTo", s.Terms.PayTo},
	}
	return object{
		{"name", op.Tool},
		{"title", op.Title},
		{"description", toolText(s, op)},
		{"inputSchema", argumentsSchema(op, true)},
		{"outputSchema", answerSchema(op)},
		{"annotations", annotations},
		{"_meta", object{{"x402", price}}},
	}
}

// toolText returns the description of a tool for a model: what the tool does, what it costs,
// and how to retry without paying again. ToolInstructions explains retries as well, but many
// hosts do not show that text to the model.
func toolText(s Site, op catalog.Operation) string {
	return fmt.Sprintf("%s Price: %s USDC per call on %s, x402 %s. To retry, send the same %s and key again, never new ones: a payment is never charged twice.",
		op.Description, op.PriceUSD(), s.networkName(), x402.Scheme, mcp.KeyPayment)
}

// argumentsSchema returns the schema of a tool's arguments. The schema allows the operation's
// parameters and nothing else. If notes is true, it includes their descriptions.
func argumentsSchema(op catalog.Operation, notes bool) schema {
	s := querySchema(op, notes)
	s.Additional = false
	return s
}

// answerSchema returns the schema of the structuredContent in a tool's answer. This content is
// either the result or, if the call had no payment, what must be paid. Clients also validate
// the answer with the price against this schema. If the schema were that of the result alone,
// they would reject that answer, and the price would stay hidden. Models read the schemas of
// all tools before the first call, so the schemas are short. They omit what the documentation
// explains. Where a bundle contains the result of another tool, they only name that tool.
func answerSchema(op catalog.Operation) schema {
	result := resultSchema(op.Fields, exactTypes)
	for i, f := range op.Fields {
		other := childOperation(f)
		if other.Tool == "" {
			continue
		}
		result.Properties[i].Value = schema{
			Type:        "object",
			Description: "The result of " + other.Tool + ", or {error: {code, message}}",
		}
	}
	challenge := schema{
		Description: "What must be paid first (x402 version 2)",
		Properties: object{
			{"x402Version", schema{Const: x402.Version}},
			{"accepts", schema{Type: "array", MinItems: 1}},
		},
		Required: []string{"x402Version", "accepts"},
	}
	return schema{Type: "object", AnyOf: []schema{result, challenge}}
}

// ToolInstructions returns a text that tells a model how to use and pay for the tools.
func ToolInstructions(s Site) string {
	window := ""
	if w := inSeconds(s.DuplicateWindow); w > 0 {
		window = fmt.Sprintf(" Without a key, a call with the same arguments is charged again from %d seconds after an answer over HTTP, %d after one over MCP; without a key, each call of the smoke test is charged.", w, 2*w)
	}
	play := ""
	if note := s.playNote(); note != "" {
		play = note + " "
	}
	return fmt.Sprintf("%s Each call of a tool costs money: USDC on %s through x402 version 2. %s"+
		"A call without a payment is answered with the price and costs nothing. Sign the answer's accepts[0], put the PaymentPayload into params._meta[%q] and call again with the same arguments. "+
		"After a lost reply, and when an error says retryable, send the same payment again, with the same key if it had one; any other error says what to do. "+
		"Send _meta[%q] with every attempt: give each purchase its own key. Each key is charged once in %s, and a new key buys again.%s %s Documentation: %s#mcp",
		catalog.Tagline, s.networkName(), play, mcp.KeyPayment, mcp.KeyPurchase, inHours(ledger.KeptFor), window, caveat, s.Origin+catalog.PathDocs)
}

// ToolOffer returns the payment requirements that answer a tool call without a payment. They
// have the terms of Offer, but their resource is the MCP server, and their discovery extension
// names the tool.
func ToolOffer(op catalog.Operation, s Site) x402.PaymentRequired {
	required := Offer(op, s)
	required.Resource.URL = s.Origin + catalog.PathMCP
	required.Extensions["bazaar"] = encode(toolBazaar(op))
	return required
}

// release identifies what the MCP server offers. Of is the SHA-256 of the server's tools,
// instructions and registry entry. Number increases by one with each change of Of. It is the
// last number of the server's version.
type release struct {
	Number int    `json:"number"`
	Of     string `json:"of"`
}

// ServerVersion returns the version of the MCP server. A registry accepts each version only
// once, and shows the version that is the greatest by semantic versioning. So the last number
// of the version is a counter, and not a hash. If the tools, the instructions or the registry
// entry have changed, "make update" increases the counter.
func ServerVersion() string {
	var r release
	if err := json.Unmarshal([]byte(readGenerated(assets, "release.json")), &r); err != nil {
		panic(err)
	}
	end := strings.LastIndexByte(catalog.APIVersion, '.') + 1
	return catalog.APIVersion[:end] + strconv.Itoa(r.Number)
}

// serverEntryOf returns the entry of the MCP server for registries: server.json of the
// official registry, revision 2025-12-11.
func serverEntryOf(s Site) object {
	return object{
		{"$schema", "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
		{"name", s.serverName()},
		{"title", catalog.Service},
		{"description", catalog.Tagline},
		{"version", ServerVersion()},
		{"websiteUrl", s.Origin + catalog.PathDocs + "#mcp"},
		{"remotes", []object{{{"type", "streamable-http"}, {"url", s.Origin + catalog.PathMCP}}}},
	}
}

// serverName returns the MCP server's name in the registry, such as com.example.api/hostfacts.
// It consists of the host's labels in reverse order, a slash and the name of the service. A
// registry demands a proof that the publisher owns this host.
func (s Site) serverName() string {
	_, host, _ := strings.Cut(s.Origin, "://")
	host, _, _ = strings.Cut(host, ":")
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "/" + strings.ToLower(catalog.Service)
}

// joinWords joins words in the form "a, b and c".
func joinWords(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
