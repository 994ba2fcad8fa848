package discovery

import (
	"fmt"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
)

// mcpView is what the documents say about the operations as tools.
type mcpView struct {
	URL string
	// Payment and Response are members of _meta.
	Payment, Response string
	Server            string // the URL of the entry for registries
	Config            string // of an agent's host, JSON
	Steps             []string
	Notes             []string
	Keys              []row // of _meta in a result
}

func mcpViewOf(s Site) (mcpView, error) {
	v := mcpView{Payment: mcp.KeyPayment, Response: mcp.KeyResponse, URL: s.Origin + catalog.PathMCP, Server: s.Origin + catalog.PathServer, Steps: toolSteps(), Notes: toolNotes(), Keys: resultKeys()}
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
		"Sign its `accepts[0]`, and call again with the same arguments and the payment as an object in `params._meta[\"" + mcp.KeyPayment + "\"]`: what HTTP has in base64 in `PAYMENT-SIGNATURE`.",
		"The result has the answer as `structuredContent` and, byte for byte what HTTP answers, as text, and the settlement in `_meta[\"" + mcp.KeyResponse + "\"]`.",
	}
}

// toolNotes are what is the same as by HTTP, and what is not.
func toolNotes() []string {
	return []string{
		"A tool is its path: the same price, limits, purchases and ledger. A payment whose answer was lost is answered by either: send it as the header `PAYMENT-SIGNATURE` to the operation's path, or as `" + mcp.KeyPayment + "` to the tool.",
		"Only a result with the member `accepts` asks for a payment. Whatever is in doubt, in progress, limited or owed is an error of text alone, the error body of HTTP with `retry_after` in seconds: send the same payment again when it is `retryable`, and never a new one.",
		"`_meta[\"" + mcp.KeyPurchase + "\"]` names the purchase, as the header `Idempotency-Key` does.",
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
