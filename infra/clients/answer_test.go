package clients

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// servedDocuments returns the OpenAPI description and the documentation page of a service.
func servedDocuments(t *testing.T) (description, page string) {
	d := discovery.New(discovery.Site{Origin: "https://api.example.com", Terms: testbed.LocalTerms(t)})
	api, _ := d.Find(catalog.PathOpenAPI)
	docs, _ := d.Find(catalog.PathDocs)
	return string(api.Body()), string(docs.Body())
}

// exchange is a request and its response.
type exchange struct {
	method, target string
	x402test.Reply
}

// successExchange returns a GET of the operation dns and its response, which has a receipt.
func successExchange(status int, body string) exchange {
	receipt := base64.StdEncoding.EncodeToString([]byte(`{"success":true,"transaction":"0xab","network":"eip155:8453","payer":"0x1"}`))
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Payment-Response": {receipt}}
	return exchange{http.MethodGet, catalog.DNS().Path + "?domain=example.com", x402test.Reply{Status: status, Header: header, Body: []byte(body)}}
}

// errorExchange is like successExchange, but the response is an error. The last two arguments
// are JSON.
func errorExchange(status int, code, charged, retryable string) exchange {
	return successExchange(status, `{"error":{"code":"`+code+`","message":"m","charged":`+charged+`,"retryable":`+retryable+`},`+
		`"request_id":"r","docs_url":"https://api.example.com/docs#error-`+code+`"}`)
}

func (a exchange) withHeader(name string, values ...string) exchange {
	a.Header = a.Header.Clone()
	a.Header[http.CanonicalHeaderKey(name)] = values
	return a
}

func (a exchange) withRequest(method, target string) exchange {
	a.method, a.target = method, target
	return a
}

// TestAnswers checks that Check finds the fault in each response that does not match the
// description. Every suite that uses Check tests responses that match, so this test has only a
// few.
func TestAnswers(t *testing.T) {
	t.Parallel()
	description, page := servedDocuments(t)
	d := testbed.Must(ParseOpenAPI([]byte(description), []byte(page)))
	dns, bundle := catalog.DNS(), catalog.HostIntel()
	paid, limited := successExchange(200, dns.Response), errorExchange(429, "rate_limited", "false", "true").withRequest("GET", catalog.Whois().Path)
	var parts map[string]json.RawMessage
	testbed.Check(json.Unmarshal([]byte(bundle.Response), &parts))
	parts["whois"] = json.RawMessage(`{"error":{"code":"connect_failed","message":"m"}}`)
	child, _ := json.Marshal(parts) // cannot fail: the parts come from JSON
	html := successExchange(404, "<html>").withHeader("Content-Type", "text/html")
	for name, c := range map[string]struct {
		answer  exchange
		wantErr string // a part of the error; "" means that Check finds no fault
	}{
		"paid":                        {paid, ""},
		"field missing":               {successExchange(200, strings.Replace(dns.Response, `"rcode":`, `"code":`, 1)), "missing property 'rcode'"},
		"not JSON":                    {successExchange(200, "<html>"), "invalid character"},
		"not UTF-8":                   {successExchange(200, "{\"\xff\":1}"), "not UTF-8"},
		"text for JSON":               {paid.withHeader("Content-Type", "text/plain"), `"text/plain" is not declared`},
		"a child with another's code": {successExchange(200, string(child)).withRequest("GET", bundle.Path), "which is not in the list of whois"},
		"no receipt":                  {paid.withHeader("PAYMENT-RESPONSE"), "PAYMENT-RESPONSE is there 0 times"},
		"a receipt not in base64":     {paid.withHeader("PAYMENT-RESPONSE", "{}"), "base64"},
		"no wait":                     {limited, "Retry-After is there 0 times"},
		"no wait of a probe":          {limited.withRequest("GET", catalog.PathReady), "Retry-After is there 0 times"},
		"a wait in words":             {limited.withHeader("Retry-After", "soon"), "not a number"},
		"HEAD with a body":            {paid.withRequest("HEAD", dns.Path), "it has a body"},
		"preflight with a body":       {successExchange(204, "x").withRequest("OPTIONS", dns.Path), "it has a body"},
		"success not declared":        {successExchange(202, dns.Response), "is not declared"},
		"POST that is answered":       {paid.withRequest("POST", dns.Path), "is not declared"},
		"undeclared error":            {errorExchange(404, "nxdomain", "true", "false"), ""},
		"owed, and no lookup is left": {errorExchange(504, "dns_timeout", "true", "false"), ""},
		"error as a page":             {html, `"text/html" is not declared`},
		"a page for an unknown path":  {html.withRequest("GET", "/nope"), ""},
		"a page for a crawler's path": {html.withRequest("GET", "/.well-known/x"), "is not declared"},
		"not of this operation":       {errorExchange(400, "invalid_port", "false", "false"), "does not list invalid_port"},
		"another status":              {errorExchange(404, "internal_error", "true", "true"), "internal_error is listed with 500"},
		"charged, and it is not":      {errorExchange(404, "nxdomain", "false", "false"), "listed with charged true"},
		"charged is not known":        {errorExchange(504, "dns_timeout", "null", "true"), "listed with charged true"},
		"retryable, and it is not":    {errorExchange(404, "nxdomain", "true", "true"), "listed with retryable false"},
		"docs_url of another anchor":  {successExchange(404, strings.Replace(string(errorExchange(404, "nxdomain", "true", "false").Body), "#error-nx", "#error-", 1)), "not a place about nxdomain"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := d.Check(c.answer.method, c.answer.target, c.answer.Reply); (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%v, want %q", err, c.wantErr)
			}
		})
	}
	// ParseOpenAPI must return an error for a description that it does not understand.
	for old, other := range map[string]string{
		`"3.1.0"`: `"3.0.3"`, `"/health":{"get"`: `"/health":{"post"`, `components/headers/Receipt"`: `components/headers/Receipts"`,
		`components/schemas/PaymentRequiredBody"`: `components/schemas/Body"`, `"x-error-codes":["invalid_domain"`: `"x-error-codes":["invalid"`,
	} {
		broken := strings.Replace(description, old, other, 1)
		if _, err := ParseOpenAPI([]byte(broken), nil); broken == description || err == nil {
			t.Errorf("%s is taken: %v", other, err)
		}
	}
}
