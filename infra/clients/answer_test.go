package clients

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

// served are the service's own documents.
func served(t *testing.T) (site discovery.Site, description, page string) {
	t.Helper()
	site = discovery.Site{Origin: "https://api.example.com", Terms: x402.Terms{
		Network: "eip155:8453", Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
		PayTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", Name: "USD Coin", Version: "2",
	}}
	d, err := discovery.New(site)
	if err != nil {
		t.Fatal(err)
	}
	api, _ := d.Find(catalog.PathOpenAPI)
	docs, _ := d.Find(catalog.PathDocs)
	return site, string(api.Body()), string(docs.Body())
}

const settlement = `{"success":true,"transaction":"0xab","network":"eip155:8453","payer":"0x1"}`

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// got is the answer of an operation with another status and body.
func got(op catalog.Operation, status int, body string) Answer {
	return Answer{
		Method: http.MethodGet, Path: op.Path + "?domain=example.com", Status: status, Body: []byte(body),
		Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Payment-Response": {encoded(settlement)}},
	}
}

// paid is the answer to a paid request for the operation's example.
func paid(op catalog.Operation) Answer { return got(op, http.StatusOK, op.Response) }

// failed is {code, charged, retryable} with everything else around it.
func failed(op catalog.Operation, status int, code, charged, retryable string) Answer {
	return got(op, status, `{"error":{"code":"`+code+`","message":"m","charged":`+charged+`,"retryable":`+retryable+`},`+
		`"request_id":"r","docs_url":"https://api.example.com/docs#error-`+code+`"}`)
}

func unpaid(t *testing.T, site discovery.Site, op catalog.Operation) Answer {
	t.Helper()
	offer := discovery.Offer(op, site).WithToken("AAECAwQFBgcICQoLDA0ODw")
	header, err := x402.EncodeHeader(offer)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(discovery.ChallengeOf(site.DuplicateWindow, offer, fault.New(fault.PaymentRequired, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return got(op, http.StatusPaymentRequired, string(body)).with("PAYMENT-RESPONSE").with("PAYMENT-REQUIRED", header)
}

func (a Answer) with(name string, values ...string) Answer {
	a.Header = a.Header.Clone()
	a.Header[http.CanonicalHeaderKey(name)] = values
	return a
}

func (a Answer) by(method, path string) Answer {
	a.Method, a.Path = method, path
	return a
}

// but changes the body; it panics when there is nothing to change, which would be a
// test of nothing.
func (a Answer) but(old, other string) Answer {
	if !strings.Contains(string(a.Body), old) {
		panic("no " + old + " in " + string(a.Body))
	}
	a.Body = []byte(strings.Replace(string(a.Body), old, other, 1))
	return a
}

// withChild is a bundle's answer with another child.
func withChild(name, child string) Answer {
	var o map[string]json.RawMessage
	if err := json.Unmarshal([]byte(catalog.HostIntel().Response), &o); err != nil {
		panic(err)
	}
	o[name] = json.RawMessage(child)
	body, _ := json.Marshal(o) // it was JSON before
	return got(catalog.HostIntel(), http.StatusOK, string(body))
}

// judged is an answer, and a part of what Check says of it; empty: it is as described.
type judged struct {
	answer Answer
	says   string
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	site, description, page := served(t)
	d, err := ParseOpenAPI([]byte(description), []byte(page))
	if err != nil {
		t.Fatal(err)
	}
	offer := unpaid(t, site, catalog.DNS())
	offer.Path = catalog.DNS().Path
	tables := []map[string]judged{results(), headers(offer), failures(offer)}
	for _, op := range catalog.All() {
		tables = append(tables, map[string]judged{"paid " + op.Slug: {paid(op), ""}, "unpaid " + op.Slug: {unpaid(t, site, op), ""}})
	}
	for _, table := range tables {
		for name, c := range table {
			t.Run(name, func(t *testing.T) {
				err := d.Check(c.answer)
				if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %q", err, c.says)
				}
			})
		}
	}
}

func results() map[string]judged {
	dns, ssl := catalog.DNS(), catalog.SSLCheck()
	return map[string]judged{
		"a child that failed":       {withChild("ssl", `{"error":{"code":"connect_failed","message":"m"}}`), ""},
		"a child with another code": {withChild("whois", `{"error":{"code":"connect_failed","message":"m"}}`), "which is not in the list of whois"},
		"field missing":             {paid(ssl).but(`"port":443,`, ``), "missing property 'port'"},
		"not JSON":                  {got(dns, 200, "<html>"), "invalid character"},
		"not UTF-8":                 {got(dns, 200, "{\"\xff\":1}"), "not UTF-8"},
		"text for JSON":             {paid(dns).with("Content-Type", "text/plain"), `"text/plain" is not declared`},
	}
}

func headers(offer Answer) map[string]judged {
	dns, whois := catalog.DNS(), catalog.Whois()
	head, page, limited := offer.by("HEAD", dns.Path), offer.with("Content-Type", "text/html; charset=utf-8"), failed(whois, 429, "rate_limited", "false", "true")
	head.Body, page.Body = nil, []byte("<!DOCTYPE html>")
	return map[string]judged{
		"no receipt":              {paid(dns).with("PAYMENT-RESPONSE"), "PAYMENT-RESPONSE is there 0 times"},
		"two receipts":            {paid(dns).with("PAYMENT-RESPONSE", encoded(settlement), encoded(settlement)), "2 times"},
		"a receipt not in base64": {paid(dns).with("PAYMENT-RESPONSE", settlement), "base64"},
		"an offer as a page":      {page, ""},
		"HEAD of an offer":        {head, ""},
		"HEAD with a body":        {offer.by("HEAD", dns.Path), "it has a body"},
		"no wait":                 {limited, "Retry-After is there 0 times"},
		"a wait in words":         {limited.with("Retry-After", "soon"), "not a number"},
	}
}

func failures(offer Answer) map[string]judged {
	dns, whois := catalog.DNS(), catalog.Whois()
	nxdomain, html := failed(dns, 404, "nxdomain", "true", "false"), got(dns, 502, "<html>").with("Content-Type", "text/html")
	limited := failed(whois, 503, "overloaded", "true", "true").with("Retry-After", "1")
	return map[string]judged{
		"undeclared error":            {nxdomain, ""},
		"owed, and no lookup is left": {failed(dns, 504, "dns_timeout", "true", "false"), ""},
		"a code outside the lists":    {failed(dns, 500, "internal_error", "true", "true"), ""},
		"another method":              {failed(dns, 405, "method_not_allowed", "false", "false").by("POST", dns.Path), ""},
		"an unknown path":             {failed(dns, 404, "unknown_path", "false", "false").by("GET", "/nope"), ""},
		"a page for an unknown path":  {got(dns, 404, "<html>").with("Content-Type", "text/html").by("GET", "/nope"), ""},
		"a page for a crawler's path": {got(dns, 404, "<html>").with("Content-Type", "text/html").by("GET", "/.well-known/x"), "is not declared"},
		"preflight with a body":       {got(dns, 204, "x").by("OPTIONS", dns.Path), "it has a body"},
		"402 with another code":       {offer.but(`"code":"payment_required"`, `"code":"payment"`), "/code"},
		"error as a page":             {html, `"text/html" is not declared`},
		"not of this operation":       {failed(dns, 400, "invalid_port", "false", "false"), "does not list invalid_port"},
		"outside, another status":     {failed(dns, 404, "internal_error", "true", "true"), "internal_error is listed with 500"},
		"charged, and it is not":      {failed(dns, 404, "nxdomain", "false", "false"), "listed with charged true"},
		"charged is not known":        {failed(dns, 504, "dns_timeout", "null", "true"), "listed with charged true"},
		"retryable, and it is not":    {failed(dns, 404, "nxdomain", "true", "true"), "listed with retryable false"},
		"not retryable, and it is":    {limited.but(`true,"retryable":true`, `false,"retryable":false`), "listed with retryable true"},
		"success not declared":        {got(dns, 202, dns.Response), "is not declared"},
		"POST that is answered":       {paid(dns).by("POST", dns.Path), "is not declared"},
		"docs_url of no code":         {nxdomain.but("#error-nxdomain", "#errors"), "not a place about nxdomain"},
	}
}

// A description that is not understood is refused, not passed over; and an error must
// lead to a place that the page has.
func TestParseOpenAPIRefuses(t *testing.T) {
	t.Parallel()
	_, whole, _ := served(t)
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
		broken := strings.Replace(whole, c.old, c.other, 1)
		if _, err := ParseOpenAPI([]byte(broken), nil); broken == whole || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	d, err := ParseOpenAPI([]byte(whole), []byte(`<h1 id="errors">`))
	if err != nil || d.Check(failed(catalog.DNS(), 404, "nxdomain", "true", "false")) == nil {
		t.Errorf("a place that the page has not is one: %v", err)
	}
}
