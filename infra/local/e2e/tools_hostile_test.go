package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/mcp"
)

// TestToolsHostileBodies: whatever is sent to the tools, the answer is one JSON
// message or nothing, nobody is charged, and the service lives.
func TestToolsHostileBodies(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	bodies := []struct {
		name, body string
		status     int
	}{
		{"nothing", "", 400},
		{"zeros", strings.Repeat("\x00", 1000), 400},
		{"not UTF-8", call("{\"name\":\"\xc3\x28\"}"), 400},
		{"half a message", call(`{"name":"dns_lookup"`)[:40], 400},
		{"lists in lists", strings.Repeat("[", 60_000), 400},
		{"objects in objects", call(strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)), 400},
		{"the longest message, and more", call(`{"name":"` + strings.Repeat("a", mcp.MaxBody) + `"}`), 413},
		{"a megabyte", strings.Repeat(" ", 1<<20), 413},
		{"a number without end", call(`{"name":"dns_lookup","arguments":{"domain":` + strings.Repeat("9", 60_000) + `}}`), 200},
		{"a domain without end", call(`{"name":"dns_lookup","arguments":{"domain":"` + strings.Repeat("a.", 30_000) + `"}}`), 200},
		{"many arguments", call(`{"name":"dns_lookup","arguments":{` + strings.TrimSuffix(strings.Repeat(`"b":1,`, 9000), ",") + `}}`), 400},
		{"control characters", call(`{"name":"dns_lookup","arguments":{"domain":"\u0000\u001b[31m\u202eexample.com"}}`), 200},
		{"a payment without end", call(`{"name":"dns_lookup","arguments":{"domain":"example.com"},"_meta":{"x402/payment":"` + strings.Repeat("A", 60_000) + `"}}`), 200},
		{"a payment of nothing", call(`{"name":"dns_lookup","arguments":{"domain":"example.com"},"_meta":{"x402/payment":{"x402Version":2,"accepted":{},"payload":{}}}}`), 200},
		{"a key without end", call(`{"name":"dns_lookup","arguments":{"domain":"example.com"},"_meta":{"x402/idempotency-key":"` + strings.Repeat("k", 60_000) + `"}}`), 200},
		{"prototypes", call(`{"name":"__proto__","arguments":{"__proto__":{"domain":"example.com"}}}`), 200},
	}
	for _, w := range worlds() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			d := w.start(t, l)(t, l.setup())
			for _, b := range bodies {
				status, body := postTools(t, d, b.body)
				if status != b.status || !json.Valid(body) || !bytes.HasPrefix(body, []byte(`{"jsonrpc":"2.0"`)) {
					t.Errorf("%s: %d %.300s, want %d", b.name, status, body, b.status)
				}
				if len(body) > 16<<10 {
					t.Errorf("%s: an answer of %d bytes", b.name, len(body))
				}
			}
			if status, body := postTools(t, d, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); status != http.StatusOK {
				t.Errorf("afterwards: %d %.300s", status, body)
			}
			if n := len(l.facilitator.Transfers()); n != 0 {
				t.Errorf("%d transfers", n)
			}
		})
	}
}

func postTools(t *testing.T, d *deployment, body string) (status int, answer []byte) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+catalog.PathMCP, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if answer, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}
