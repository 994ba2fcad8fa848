package clients

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

func site() discovery.Site {
	return discovery.Site{
		Origin: "https://api.example.com",
		Terms: x402.Terms{
			Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
			PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Name: "USD Coin", Version: "2",
		},
	}
}

// description is the service's own, as it is served.
func description(t *testing.T) []byte { return served(t, catalog.PathOpenAPI) }

func served(t *testing.T, path string) []byte {
	t.Helper()
	d, err := discovery.Render(site())
	if err != nil {
		t.Fatal(err)
	}
	doc, ok := d.Find(path)
	if !ok {
		t.Fatalf("no %s", path)
	}
	return doc.Body
}

func parsed(t *testing.T) *OpenAPI {
	t.Helper()
	d, err := ParseOpenAPI(description(t), served(t, catalog.PathDocs))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const settlement = `{"success":true,"transaction":"0xab","network":"eip155:8453","payer":"0x1"}`

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// paid is the answer to a paid request for the operation's example.
func paid(op catalog.Operation) Answer {
	return Answer{
		Method: http.MethodGet, Path: op.Path + "?domain=example.com", Status: http.StatusOK, Body: []byte(op.Response),
		Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Payment-Response": {encoded(settlement)}},
	}
}

func failed(op catalog.Operation, status int, body string) Answer {
	a := paid(op)
	a.Status, a.Body = status, []byte(body)
	return a
}

// errorBody is {code, charged, retryable} with everything else around it.
func errorBody(code, charged, retryable string) string {
	return `{"error":{"code":"` + code + `","message":"m","charged":` + charged + `,"retryable":` + retryable + `},` +
		`"request_id":"r","docs_url":"https://api.example.com/docs#error-` + code + `"}`
}

func unpaid(t *testing.T, op catalog.Operation) Answer {
	t.Helper()
	offer := discovery.Offer(op, site()).WithToken("AAECAwQFBgcICQoLDA0ODw")
	header, err := json.Marshal(offer)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(discovery.ChallengeOf(site(), offer, fault.New(fault.PaymentRequired, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return Answer{
		Method: http.MethodGet, Path: op.Path, Status: http.StatusPaymentRequired, Body: body,
		Header: http.Header{"Content-Type": {"application/json"}, "Payment-Required": {encoded(string(header))}},
	}
}

func (a Answer) with(name, value string) Answer {
	a.Header = a.Header.Clone()
	a.Header.Del(name)
	if value != "" {
		a.Header.Set(name, value)
	}
	return a
}

func (a Answer) by(method string) Answer {
	a.Method, a.Body = method, nil
	return a
}

// replacing changes the body; it panics when there is nothing to change, which
// would be a test of nothing.
func (a Answer) replacing(old, other string) Answer {
	if !strings.Contains(string(a.Body), old) {
		panic("no " + old + " in " + string(a.Body))
	}
	a.Body = []byte(strings.Replace(string(a.Body), old, other, 1))
	return a
}

func TestAnswersAsDescribed(t *testing.T) {
	t.Parallel()
	d, dns, whois := parsed(t), catalog.DNS(), catalog.Whois()
	good := map[string]Answer{
		"replay":                       paid(dns).with("Idempotent-Replayed", "true"),
		"HEAD of an offer":             unpaid(t, dns).by(http.MethodHead),
		"offer as a page":              {Method: "GET", Path: dns.Path, Status: 402, Header: unpaid(t, dns).with("Content-Type", "text/html; charset=utf-8").Header, Body: []byte("<!DOCTYPE html>")},
		"refused settlement":           unpaid(t, dns).with("PAYMENT-RESPONSE", encoded(`{"success":false,"errorReason":"insufficient_funds","transaction":"","network":"eip155:8453"}`)),
		"declared error":               failed(dns, 400, errorBody("invalid_type", "false", "false")),
		"declared error, paid before":  failed(dns, 400, errorBody("invalid_type", "true", "false")),
		"undeclared error":             failed(dns, 404, errorBody("nxdomain", "true", "false")),
		"owed":                         failed(dns, 504, errorBody("dns_timeout", "true", "true")),
		"owed, and no lookup is left":  failed(dns, 504, errorBody("dns_timeout", "true", "false")),
		"the record says":              failed(whois, 503, errorBody("overloaded", "true", "true")).with("Retry-After", "1"),
		"not known":                    failed(whois, 409, errorBody("payment_in_progress", "null", "true")).with("Retry-After", "2"),
		"too many":                     failed(whois, 429, errorBody("rate_limited", "false", "true")).with("Retry-After", "60"),
		"a code outside the lists":     failed(dns, 500, errorBody("internal_error", "true", "true")),
		"a conflict outside the lists": failed(whois, 409, errorBody("idempotency_conflict", "false", "false")),
		"a malformed key":              failed(dns, 400, errorBody("invalid_idempotency_key", "false", "false")),
		"another method":               {Method: "POST", Path: dns.Path, Status: 405, Header: paid(dns).Header, Body: []byte(errorBody("method_not_allowed", "false", "false"))},
		"an unknown path":              {Method: "GET", Path: "/nope", Status: 404, Header: paid(dns).Header, Body: []byte(errorBody("unknown_path", "false", "false"))},
		"preflight":                    {Method: "OPTIONS", Path: dns.Path, Status: 204},
		"not modified":                 {Method: "GET", Path: "/docs", Status: 304},
		"text":                         {Method: "GET", Path: "/llms.txt", Status: 200, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte("# x")},
		"a child that failed":          withChild("ssl", `{"error":{"code":"connect_failed","message":"m"}}`),
		"description":                  {Method: "GET", Path: "/openapi.json", Status: 200, Header: unpaid(t, dns).Header, Body: description(t)},
	}
	for _, op := range catalog.All() {
		good["paid "+op.Slug], good["unpaid "+op.Slug] = paid(op), unpaid(t, op)
	}
	for name, a := range good {
		if err := d.Check(a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// withChild is a bundle's answer with another child.
func withChild(name, child string) Answer {
	a := paid(catalog.HostIntel())
	var o map[string]json.RawMessage
	if err := json.Unmarshal(a.Body, &o); err != nil {
		panic(err)
	}
	o[name] = json.RawMessage(child)
	a.Body, _ = json.Marshal(o) // it was JSON before
	return a
}

// violation is an answer that is not as described, and a part of what Check says.
type violation struct {
	answer Answer
	says   string
}

func TestSpoiltAnswersAreSeen(t *testing.T) {
	t.Parallel()
	d := parsed(t)
	for _, cases := range []map[string]violation{spoiltResults(), spoiltHeaders(t), spoiltErrors(t)} {
		for name, c := range cases {
			err := d.Check(c.answer)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", name, err, c.says)
			}
		}
	}
}

func spoiltResults() map[string]violation {
	dns, ssl, whois, head := catalog.DNS(), catalog.SSLCheck(), catalog.Whois(), catalog.Headers()
	return map[string]violation{
		"field missing":              {paid(ssl).replacing(`"port":443,`, ``), "missing property 'port'"},
		"field too many":             {paid(ssl).replacing(`"port":443,`, `"port":443,"ports":[443],`), "'ports' not allowed"},
		"field too many inside":      {paid(whois).replacing(`"iana_id":"376"`, `"iana_id":"376","url":"x"`), "'url' not allowed"},
		"field too many in a record": {paid(dns).replacing(`"preference":10`, `"preference":10,"priority":10`), "records"},
		"wrong type":                 {paid(ssl).replacing(`"port":443`, `"port":"443"`), "want integer"},
		"a fraction":                 {paid(ssl).replacing(`"port":443`, `"port":443.5`), "want integer"},
		"null where it may not be":   {paid(ssl).replacing(`"expired":false`, `"expired":null`), "got null, want boolean"},
		"outside the values":         {paid(whois).replacing(`"source":"rdap"`, `"source":"whois"`), "/source"},
		"another shape":              {paid(dns).replacing(`"exchange"`, `"target"`), "records"},
		"a header's key missing":     {paid(head).replacing(`"x-powered-by":`, `"x-powered-off":`), "x-powered-by"},
		"a child of no shape":        {withChild("ssl", `{}`), "/ssl"},
		"a child with another code":  {withChild("whois", `{"error":{"code":"connect_failed","message":"m"}}`), "which is not in the list of whois"},
		"a child with a payment's":   {withChild("dns", `{"error":{"code":"overloaded","message":"m"}}`), "which is not in the list of dns"},
		"a child says more":          {withChild("ssl", `{"error":{"code":"connect_failed","message":"m","charged":true}}`), "/ssl"},
		"not JSON":                   {failed(dns, 200, "<html>"), "invalid character"},
		"something follows":          {failed(dns, 200, dns.Response+"{}"), "after top-level value"},
		"not UTF-8":                  {failed(dns, 200, "{\"\xff\":1}"), "not UTF-8"},
		"text for JSON":              {paid(dns).with("Content-Type", "text/plain"), "text/plain is not declared"},
		"no content type":            {paid(dns).with("Content-Type", ""), "Content-Type"},
	}
}

func spoiltHeaders(t *testing.T) map[string]violation {
	t.Helper()
	dns := catalog.DNS()
	return map[string]violation{
		"no receipt":                {paid(dns).with("PAYMENT-RESPONSE", ""), "PAYMENT-RESPONSE is missing"},
		"a receipt that is not one": {paid(dns).with("PAYMENT-RESPONSE", encoded(`{"success":true}`)), "PAYMENT-RESPONSE"},
		"a receipt not in base64":   {paid(dns).with("PAYMENT-RESPONSE", settlement), "base64"},
		"a receipt that says more":  {paid(dns).with("PAYMENT-RESPONSE", encoded(strings.Replace(settlement, `{`, `{"amount":"5000",`, 1))), "'amount' not allowed"},
		"two receipts":              {twice(paid(dns), "PAYMENT-RESPONSE"), "2 times"},
		"replayed, it says":         {paid(dns).with("Idempotent-Replayed", "yes"), "Idempotent-Replayed"},
		"no offer":                  {unpaid(t, dns).with("PAYMENT-REQUIRED", ""), "PAYMENT-REQUIRED is missing"},
		"another offer":             {unpaid(t, dns).with("PAYMENT-REQUIRED", encoded(`{"x402Version":1}`)), "PAYMENT-REQUIRED"},
		"HEAD without an offer":     {unpaid(t, dns).by(http.MethodHead).with("PAYMENT-REQUIRED", ""), "PAYMENT-REQUIRED is missing"},
		"HEAD with a body":          {headWithBody(unpaid(t, dns)), "it has a body"},
	}
}

func spoiltErrors(t *testing.T) map[string]violation {
	t.Helper()
	dns, whois := catalog.DNS(), catalog.Whois()
	return map[string]violation{
		"402 without its code":     {unpaid(t, dns).replacing(`,"code":"payment_required"`, ``), "missing property 'code'"},
		"402 without a key's name": {unpaid(t, dns).replacing(`,"idempotency":{`, `,"was":{`), "missing property 'idempotency'"},
		"402 with a window of -1":  {unpaid(t, dns).replacing(`"duplicate_window_seconds":0`, `"duplicate_window_seconds":-1`), "/idempotency/duplicate_window_seconds"},
		"an age below 0":           {paid(dns).with("Age", "-1"), "Age"},
		"an age in words":          {paid(dns).with("Age", "a day"), "Age"},
		"owed parts in a list":     {paid(catalog.HostIntel()).with("Answer-Owed", `["ssl"]`), "Answer-Owed"},
		"402 with another code":    {unpaid(t, dns).replacing(`"code":"payment_required"`, `"code":"payment"`), "/code"},
		"402 with an error object": {failed(dns, 402, errorBody("payment_required", "false", "false")).with("PAYMENT-REQUIRED", unpaid(t, dns).Header.Get("Payment-Required")), "/error"},
		"an amount with a point":   {unpaid(t, dns).replacing(`"amount":"5000"`, `"amount":"0.005"`), "/amount"},
		"error without its shape":  {failed(dns, 404, `{"message":"not found"}`), "missing properties"},
		"error as text":            {failed(dns, 503, `{"error":"no"}`), "want object"},
		"error as a page":          {failed(dns, 502, "<html>").with("Content-Type", "text/html"), "an error as text/html"},
		"error says more":          {failed(dns, 404, strings.Replace(errorBody("nxdomain", "true", "false"), `{`, `{"cause":"x",`, 1)), "'cause' not allowed"},
		"charged is text":          {failed(dns, 404, errorBody("nxdomain", `"true"`, "false")), "/charged"},
		"not of this operation":    {failed(dns, 400, errorBody("invalid_port", "false", "false")), "does not list invalid_port"},
		"not of any":               {failed(dns, 500, errorBody("oops", "false", "false")), "does not list oops"},
		"outside, another status":  {failed(dns, 404, errorBody("internal_error", "true", "true")), "does not list internal_error with 404"},
		"another status":           {failed(dns, 502, errorBody("nxdomain", "true", "false")), "listed with 404"},
		"charged, and it is not":   {failed(dns, 404, errorBody("nxdomain", "false", "false")), "listed with charged true"},
		"charged is not known":     {failed(dns, 504, errorBody("dns_timeout", "null", "true")), "listed with charged true"},
		"retryable, and it is not": {failed(dns, 404, errorBody("nxdomain", "true", "true")), "listed with retryable false"},
		"not retryable, and it is": {failed(whois, 503, errorBody("overloaded", "false", "false")).with("Retry-After", "1"), "listed with retryable true"},
		"503 without a wait":       {failed(whois, 503, errorBody("overloaded", "false", "true")), "Retry-After is missing"},
		"a wait in words":          {failed(whois, 429, errorBody("rate_limited", "false", "true")).with("Retry-After", "soon"), "not a number"},
		"a wait in fractions":      {failed(whois, 429, errorBody("rate_limited", "false", "true")).with("Retry-After", "1.5"), "Retry-After"},
		"no wait at all":           {failed(whois, 429, errorBody("rate_limited", "false", "true")).with("Retry-After", "0"), "Retry-After"},
		"success not declared":     {failed(dns, 202, dns.Response), "not declared, and it is not an error"},
		"a redirect":               {failed(dns, 302, ""), "not declared, and it is not an error"},
		"a page for any path":      {Answer{Method: "GET", Path: "/nope", Status: 200, Header: paid(dns).Header, Body: []byte("{}")}, "not described"},
		"POST that is answered":    {Answer{Method: "POST", Path: dns.Path, Status: 200, Header: paid(dns).Header, Body: []byte(dns.Response)}, "not declared"},
		"preflight with a body":    {Answer{Method: "OPTIONS", Path: dns.Path, Status: 204, Body: []byte("x")}, "it has a body"},
		"docs_url of no code":      {failed(dns, 404, strings.Replace(errorBody("nxdomain", "true", "false"), "#error-nxdomain", "#errors", 1)), "not about nxdomain"},
		"docs_url of another code": {failed(dns, 404, strings.Replace(errorBody("nxdomain", "true", "false"), "#error-nxdomain", "#error-not_found", 1)), "not about nxdomain"},
		"docs_url of another page": {failed(dns, 404, strings.Replace(errorBody("nxdomain", "true", "false"), "/docs#", "/doc#", 1)), "not about nxdomain"},
		"free path with a price":   {Answer{Method: "GET", Path: "/docs", Status: 503, Header: paid(dns).Header, Body: []byte(errorBody("overloaded", "false", "true"))}, "does not list overloaded"},
	}
}

func twice(a Answer, name string) Answer {
	a.Header = a.Header.Clone()
	a.Header.Add(name, a.Header.Get(name))
	return a
}

func headWithBody(a Answer) Answer {
	a.Method = http.MethodHead
	return a
}

func TestDescribes(t *testing.T) {
	t.Parallel()
	d := parsed(t)
	for path, want := range map[string]bool{"/health": true, "/v1/tools/dns?domain=a.com": true, "/": false, "/robots.txt": false, "/v1/tools/dns/": false} {
		if got := d.Describes(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// A description that is not understood is refused, not passed over.
func TestParseOpenAPIRefuses(t *testing.T) {
	t.Parallel()
	whole := string(description(t))
	for name, c := range map[string]struct{ old, other, says string }{
		"JSON":                  {`{`, `[`, "the description"},
		"version 3.0":           {`"3.1.0"`, `"3.0.3"`, "not 3.1"},
		"a range of statuses":   {`"400":{`, `"4XX":{`, "4XX"},
		"another method":        {`"/health":{"get"`, `"/health":{"post"`, "only GET"},
		"a header nowhere":      {`components/headers/Receipt"`, `components/headers/Receipts"`, "Receipts"},
		"a schema nowhere":      {`components/schemas/PaymentRequiredBody"`, `components/schemas/Body"`, "Body"},
		"no shared error":       {`"ErrorBody":{"type"`, `"Failure":{"type"`, "ErrorBody"},
		"a response nowhere":    {`components/responses/Conflict"`, `components/responses/Conflicts"`, "Conflicts"},
		"a code nowhere":        {`"x-error-codes":["invalid_domain"`, `"x-error-codes":["invalid"`, "invalid"},
		"a schema that is none": {`{"type":"boolean"`, `{"type":"bool"`, "bool"},
	} {
		if !strings.Contains(whole, c.old) {
			t.Errorf("%s: the description has no %s", name, c.old)
		}
		_, err := ParseOpenAPI([]byte(strings.Replace(whole, c.old, c.other, 1)), nil)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
