package clients

import (
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
)

// TestTokens checks that the texts which models read do not have too many tokens. A
// third-party tokenizer counts them, with the encoding o200k_base. The service in the test has
// a receipt key, a contact, and a host name of 40 characters. Each tool is called without a
// payment, and its response is counted.
func TestTokens(t *testing.T) {
	t.Parallel()
	w, addr := newWorld(t, resolver(t)), testbed.FreeAddr(t)
	w.env["BASE_URL"], w.env["CONTACT"] = "https://facts-about-all-hosts.some-registry.test", "mailto:operator@some-registry.test"
	s := w.startAt(t, addr)
	s.url = "http://" + addr
	most := map[string]int{}
	hold := func(name string, document []byte, tokens int) string {
		f := file(t, name, document)
		most[f] = tokens
		return f
	}
	const sample, tokens = "PAYMENT-REQUIRED: 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913, na\u00efve", 38 // the number of tokens in the sample, according to another tokenizer
	counter := hold("sample", []byte(sample), tokens)
	hold("llms.txt", s.document(t, catalog.PathLLMs), 2500)
	hold("catalog", s.document(t, catalog.PathCatalog), 7000)
	hold("openapi.json", s.document(t, catalog.PathOpenAPI), 16_000)
	hold("tools", s.rpc(t, mcp.MethodList, map[string]any{}), 5000)
	for _, op := range catalog.All() {
		call := map[string]any{"name": op.Tool, "arguments": arguments(op)}
		hold(op.Tool, s.rpc(t, mcp.MethodCall, call), 1600)
	}
	counted := decodeJSON[map[string]int](t, node(t, append([]string{validators + "tokens.mjs"}, slices.Collect(maps.Keys(most))...)...))
	if counted[counter] != tokens {
		t.Errorf("the sample has %d tokens, want %d", counted[counter], tokens)
	}
	for f, most := range most {
		if t.Logf("%s: %d tokens of %d", filepath.Base(f), counted[f], most); counted[f] == 0 || counted[f] > most {
			t.Errorf("%s has %d tokens, and may have %d", filepath.Base(f), counted[f], most)
		}
	}
}

// arguments returns the arguments of an operation's example.
func arguments(op catalog.Operation) map[string]any {
	sent := map[string]any{}
	for _, p := range op.Example() {
		sent[p.Name] = p.Example
	}
	return sent
}

// rpc returns the whole response to a request of the Model Context Protocol.
func (s service) rpc(t *testing.T, method string, params any) []byte {
	message := testbed.Must(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
	client := testbed.NewClient(t, &http.Client{Timeout: testbed.Patience})
	r := testbed.Must(client.Post(t.Context(), s.tools(), "application/json", message, ""))
	if r.Status != http.StatusOK {
		t.Fatalf("%s: %d %s", method, r.Status, r.Body)
	}
	return r.Body
}
