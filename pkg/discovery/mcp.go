package discovery

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// mcpTool is an entry of tools/list.
type mcpTool struct {
	Name         string         `json:"name"`
	Title        string         `json:"title"`
	Description  string         `json:"description"`
	InputSchema  schema         `json:"inputSchema"`
	OutputSchema schema         `json:"outputSchema"`
	Annotations  mcpAnnotations `json:"annotations"`
	Meta         mcpToolMeta    `json:"_meta"`
}

// mcpAnnotations are hints to whoever decides whether a model may call a tool. A
// lookup changes nothing; what it costs is for the wallet to allow.
type mcpAnnotations struct {
	Title       string `json:"title"`
	ReadOnly    bool   `json:"readOnlyHint"`
	Destructive bool   `json:"destructiveHint"`
	Idempotent  bool   `json:"idempotentHint"`
	OpenWorld   bool   `json:"openWorldHint"`
}

// mcpToolMeta shows the price before the first call.
type mcpToolMeta struct {
	X402 mcpPrice `json:"x402"`
}

type mcpPrice struct {
	Scheme  string `json:"scheme"`
	Network string `json:"network"`
	Amount  string `json:"amount"` // atomic units
	Asset   string `json:"asset"`
	PayTo   string `json:"payTo"`
}

// Tools are the operations as the Model Context Protocol lists them: a JSON
// array in the catalog's order.
func Tools(s Site) (json.RawMessage, error) {
	var all []mcpTool
	for _, op := range catalog.All() {
		all = append(all, mcpToolOf(s, op))
	}
	raw, err := encode(all)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return raw, nil
}

func mcpToolOf(s Site, op catalog.Operation) mcpTool {
	return mcpTool{
		Name: op.Tool, Title: op.Title, Description: toolText(s, op),
		InputSchema: argumentsSchema(op, true), OutputSchema: answerSchema(op),
		Annotations: mcpAnnotations{Title: op.Title, ReadOnly: true, Idempotent: true, OpenWorld: op.Kind != catalog.SmokeTest},
		Meta: mcpToolMeta{mcpPrice{
			Scheme: x402.Scheme, Network: s.Terms.Network, Amount: op.Amount, Asset: s.Terms.Asset, PayTo: s.Terms.PayTo,
		}},
	}
}

// toolText is what a model reads of a tool: what it does, what it costs, and the
// one rule that saves money.
func toolText(s Site, op catalog.Operation) string {
	text := fmt.Sprintf("%s Price: %s USDC per call on %s, x402 %s. If a reply is lost, or an error says retryable, send the same %s again, with the same %s if it had one: it is never charged twice. Do not make a new payment for a retry.",
		op.Description, op.PriceUSD(), s.networkName(), x402.Scheme, mcp.KeyPayment, mcp.KeyPurchase)
	if w := s.window(" after an answer over HTTP, ", " after one over MCP"); w != "" && op.Kind != catalog.SmokeTest {
		text += " One with the same arguments is not charged until " + w + ", or for " + keptFor() + " under the same key."
	}
	return text
}

// argumentsSchema is the schema of a tool's arguments: the operation's parameters
// and no others.
func argumentsSchema(op catalog.Operation, notes bool) schema {
	s := schema{Type: "object", Properties: object{}, AdditionalProperties: false}
	for _, p := range op.Params {
		ps := paramSchema(p)
		ps.Examples = nil
		if notes {
			ps.Description = p.Description
		}
		s.Properties = append(s.Properties, member{p.Name, ps})
		if p.Required {
			s.Required = append(s.Required, p.Name)
		}
	}
	return s
}

// answerSchema is the schema of structuredContent: the result, or what must be
// paid. Clients hold the structured content of an error to it, too, so that a
// schema of the result alone would keep the price from them.
func answerSchema(op catalog.Operation) schema {
	return schema{Type: "object", AnyOf: []schema{resultSchema(op.Fields, full), {
		Type: "object", Description: "What must be paid first (x402 version 2).",
		Properties: object{
			{"x402Version", schema{Type: "integer", Const: x402.Version}},
			{"error", schema{Type: "string"}},
			{"resource", schema{Type: "object"}},
			{"accepts", schema{Type: "array", MinItems: 1, Items: &schema{Type: "object"}}},
			{"extensions", schema{Type: "object"}},
		},
		Required: []string{"x402Version", "accepts"},
	}}}
}

// ToolInstructions tell a model how to use and pay for the tools.
func ToolInstructions(s Site) string {
	return fmt.Sprintf("%s Each call of a tool costs money: USDC on %s through x402 version 2. "+
		"A call without a payment is answered with the price and costs nothing. Sign its accepts[0], put the PaymentPayload into params._meta[%q] and call again with the same arguments. "+
		"After a lost reply, and when an error says retryable, send the same payment again; a result without the member accepts never asks for a new one. "+
		"Send _meta[%q] with every attempt: it names the purchase, which is charged once in %s, and a new one asks anew. %s Documentation: %s#mcp",
		catalog.Tagline, s.networkName(), mcp.KeyPayment, mcp.KeyPurchase, keptFor(), untrusted, s.Origin+catalog.PathDocs)
}

// ToolOffer is what a call of a tool without a payment is answered with: the
// terms of Offer, for the tool.
func ToolOffer(op catalog.Operation, s Site) x402.PaymentRequired {
	required := Offer(op, s)
	required.Resource.URL = s.Origin + catalog.PathMCP
	required.Extensions["bazaar"] = toolBazaar(op)
	return required
}

// mcpBazaar is the discovery extension of x402 for a tool. Facilitators list it
// by the resource's URL and the tool's name.
type mcpBazaar struct {
	Info struct {
		Input  mcpInput     `json:"input"`
		Output bazaarOutput `json:"output"`
	} `json:"info"`
	Schema schema `json:"schema"`
}

type mcpInput struct {
	Type        string `json:"type"`
	Tool        string `json:"toolName"`
	Description string `json:"description,omitempty"`
	Transport   string `json:"transport"`
	InputSchema schema `json:"inputSchema"`
	Example     object `json:"example"`
}

// toolBazaar is the richest description that fits: clients echo it, also in the
// header of a request that asks for a lost answer by HTTP.
func toolBazaar(op catalog.Operation) json.RawMessage {
	example := json.RawMessage(op.Response)
	var raw []byte
	for _, try := range []struct {
		example json.RawMessage
		notes   bool
	}{{example, true}, {example, false}, {nil, true}, {nil, false}} {
		var err error
		if raw, err = encode(toolBazaarWith(op, try.example, try.notes)); err != nil {
			panic(fmt.Sprintf("discovery: the example of %s: %v", op.Slug, err))
		}
		if len(raw) <= maxBazaar {
			break
		}
	}
	return raw
}

func toolBazaarWith(op catalog.Operation, example json.RawMessage, notes bool) mcpBazaar {
	var b mcpBazaar
	b.Info.Input = mcpInput{
		Type: "mcp", Tool: op.Tool, Description: op.Summary, Transport: "streamable-http",
		InputSchema: argumentsSchema(op, notes), Example: exampleQuery(op),
	}
	b.Info.Output = bazaarOutput{Type: "json", Example: example}
	str, obj := schema{Type: "string"}, schema{Type: "object"}
	b.Schema = schema{
		Dialect: dialect, Type: "object",
		Properties: object{
			{"input", schema{Type: "object", Properties: object{
				{"type", schema{Type: "string", Const: "mcp"}}, {"toolName", str}, {"description", str},
				{"transport", schema{Type: "string", Enum: []any{"streamable-http"}}},
				{"inputSchema", obj}, {"example", obj},
			}, Required: []string{"type", "toolName", "inputSchema"}, AdditionalProperties: false}},
			{"output", schema{Type: "object", Properties: object{{"type", str}, {"example", obj}}, Required: []string{"type"}}},
		},
		Required: []string{"input"},
	}
	return b
}

// serverEntry is the entry of the MCP server for registries: server.json of the
// official one, revision 2025-12-11.
type serverEntry struct {
	Schema      string         `json:"$schema"`
	Name        string         `json:"name"`
	Title       string         `json:"title"`
	Description string         `json:"description"`
	Version     string         `json:"version"`
	Website     string         `json:"websiteUrl"`
	Remotes     []serverRemote `json:"remotes"`
}

type serverRemote struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

const serverSchema = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"

func serverEntryOf(s Site) serverEntry {
	return serverEntry{
		Schema: serverSchema, Name: s.serverName(), Title: catalog.Service, Description: catalog.Tagline,
		Version: catalog.APIVersion, Website: s.Origin + catalog.PathDocs + "#mcp",
		Remotes: []serverRemote{{Type: "streamable-http", URL: s.Origin + catalog.PathMCP}},
	}
}

// serverName is the server's name in the registry: the host in reverse, which
// its owner proves, and the service.
func (s Site) serverName() string {
	host := "localhost"
	if u, err := url.Parse(s.Origin); err == nil {
		host = strings.ReplaceAll(strings.Trim(u.Hostname(), "[]"), ":", "-")
	}
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "/" + strings.ToLower(catalog.Service)
}

// mcpView is what the documents say about the operations as tools.
type mcpView struct {
	URL string
	// Payment, Purchase and Response are members of _meta.
	Payment, Purchase, Response string
	Server                      string // the URL of the entry for registries
	Config                      string // of an agent's host, JSON
	Steps                       []string
	Notes                       []string
	Keys                        []row // of _meta in a result
}

func mcpViewOf(s Site) (mcpView, error) {
	v := mcpView{Payment: mcp.KeyPayment, Purchase: mcp.KeyPurchase, Response: mcp.KeyResponse, URL: s.Origin + catalog.PathMCP, Server: s.Origin + catalog.PathServer, Steps: toolSteps(), Notes: toolNotes(), Keys: resultKeys()}
	raw, err := encode(object{{"mcpServers", object{{mcp.ServerName, object{{"type", "http"}, {"url", v.URL}}}}}})
	if err != nil {
		return v, err
	}
	v.Config, err = pretty(raw)
	return v, err
}

// toolSteps is how a call of a tool is paid for.
func toolSteps() []string {
	return []string{
		"Call a tool, such as `" + catalog.DNS().Tool + "` with `{\"domain\": \"example.com\"}`. The result is an error whose `structuredContent`, and whose text, is what must be paid: the same object that HTTP has in `PAYMENT-REQUIRED`. It costs nothing. Arguments that are wrong are an error before that, and not charged.",
		"Sign its `accepts[0]`, and call again with the same arguments and the payment as an object in `params._meta[\"" + mcp.KeyPayment + "\"]`: what HTTP has in base64 in `PAYMENT-SIGNATURE`. Beside it, `_meta[\"" + mcp.KeyPurchase + "\"]` names the purchase, as the header `Idempotency-Key` does: send the same one with every attempt.",
		"The result has the answer as `structuredContent` and, byte for byte what HTTP answers, as text, and the settlement in `_meta[\"" + mcp.KeyResponse + "\"]`.",
	}
}

// toolNotes are what is the same as by HTTP, and what is not.
func toolNotes() []string {
	return []string{
		"A tool is its path: the same price, limits, purchases and ledger. A payment whose answer was lost is answered by either: send it as the header `PAYMENT-SIGNATURE` to the operation's path, or as `" + mcp.KeyPayment + "` to the tool.",
		"Only a result with the member `accepts` asks for a payment. Whatever is in doubt, in progress, limited or owed is an error of text alone, the error body of HTTP with `retry_after` in seconds: send the same payment again when it is `retryable`, and never a new one.",
		fmt.Sprintf("Spoken are the revisions %s, without sessions and without streams: `POST` only, answered with JSON. A message has at most %d KiB. Any origin may call.", listed(mcp.Versions()), mcp.MaxBody>>10),
	}
}

func listed(words []string) string {
	text := ""
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			text += " and "
		default:
			text += ", "
		}
		text += w
	}
	return text
}

// resultKeys are the members of a result's _meta that are not of the protocol.
func resultKeys() []row {
	return []row{
		{mcp.KeyResponse, "object", "What the settlement came to, decoded PAYMENT-RESPONSE"},
		{"hostfacts/replayed", "boolean", "true: a stored answer of the same purchase"},
		{"hostfacts/age", "integer", "Seconds since a stored answer was given"},
		{"hostfacts/owed", "array of string", "Fields of a bundle that failed for a reason of ours: send the same payment again, and they are looked up without a charge"},
		{"hostfacts/retry-after", "integer", "Seconds to wait"},
		{"hostfacts/rate-limit", "string", "RateLimit of HTTP"},
		{"hostfacts/rate-limit-policy", "string", "RateLimit-Policy of HTTP"},
		{"hostfacts/request-id", "string", "X-Request-Id of HTTP"},
	}
}
