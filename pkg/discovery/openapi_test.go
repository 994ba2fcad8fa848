package discovery

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// TestOpenAPITop holds what the golden file does not explain.
func TestOpenAPITop(t *testing.T) {
	o := described(t, rendered(), catalog.PathOpenAPI)
	if guidance := at(t, o, "info", "x-guidance").(string); len(guidance) >= 4000 || !strings.Contains(guidance, "PAYMENT-SIGNATURE") {
		t.Errorf("x-guidance has %d bytes: %q", len(guidance), guidance)
	}
	if _, ok := at(t, o, "components").(map[string]any)["securitySchemes"]; ok {
		t.Error("a security scheme makes crawlers take the service for one with API keys")
	}
}

func TestOpenAPIPathsAndDeclaredResponses(t *testing.T) {
	o := described(t, renderedWide(), catalog.PathOpenAPI)
	want := map[string][]string{
		"/health": {"200"}, "/ready": {"200", "503"}, "/v1/catalog": {"200", "429"}, "/openapi.json": {"200", "429"}, "/.well-known/x402": {"200", "429"},
		"/llms.txt": {"200", "429"}, "/llms-full.txt": {"200", "429"}, "/docs": {"200", "429"},
		"/v1/tools/dns": {"200", "400", "402"}, "/v1/tools/ping": {"200", "402"},
		"/v1/bundles/wide-check": {"200", "400", "402", "409", "429", "502", "503", "504"},
	}
	for _, op := range catalog.All() {
		if _, ok := want[op.Path]; ok {
			continue
		}
		statuses := []string{"200"}
		for _, c := range op.AllErrors() {
			info, _ := fault.Of(c)
			statuses = append(statuses, strconv.Itoa(info.Status))
		}
		slices.Sort(statuses)
		want[op.Path] = slices.Compact(statuses)
	}
	got := map[string][]string{}
	for path, item := range o["paths"].(map[string]any) {
		same(t, path, []string{"get"}, keys(item))
		got[path] = keys(at(t, item, "get", "responses"))
		slices.Sort(got[path])
	}
	same(t, "statuses", want, got)
}

func TestOpenAPIOperationsSayWhatCrawlersNeed(t *testing.T) {
	o := described(t, renderedWide(), catalog.PathOpenAPI)
	tags := map[string]bool{}
	for _, tag := range o["tags"].([]any) {
		tags[at(t, tag, "name").(string)] = true
	}
	ids := map[string]string{}
	for path, item := range o["paths"].(map[string]any) {
		get := at(t, item, "get").(map[string]any)
		if list, ok := get["security"].([]any); !ok || len(list) != 0 {
			t.Errorf("%s: security %v, want []", path, get["security"])
		}
		for _, key := range []string{"summary", "description", "operationId"} {
			if text, _ := get[key].(string); text == "" {
				t.Errorf("%s has no %s", path, key)
			}
		}
		id := get["operationId"].(string)
		if ids[id] != "" || strings.Contains(id, "-") {
			t.Errorf("operationId %s of %s", id, path)
		}
		ids[id] = path
		if tag := at(t, get, "tags", 0).(string); !tags[tag] {
			t.Errorf("%s: tag %q is not declared", path, tag)
		}
		_, paid := get["x-payment-info"]
		if free := slices.Contains(catalog.FreePaths(), path); paid == free {
			t.Errorf("%s: x-payment-info: %v", path, paid)
		}
	}
}

func TestOpenAPIPricedOperation(t *testing.T) {
	s := testSite()
	o := described(t, renderedWide(), catalog.PathOpenAPI)
	for _, op := range wideOps() {
		get := at(t, o, "paths", op.Path, "get").(map[string]any)
		payment := map[string]any{
			"price":     map[string]any{"mode": "fixed", "currency": "USD", "amount": op.PriceUSD()},
			"protocols": []any{map[string]any{"x402": map[string]any{}}},
		}
		same(t, op.Slug, payment, get["x-payment-info"])
		same(t, op.Slug, op.DocsURL(s.Origin), at(t, get, "externalDocs", "url"))
		for i, p := range op.Params {
			param := at(t, get, "parameters", i).(map[string]any)
			if param["name"] != p.Name || param["in"] != "query" || param["required"] != p.Required {
				t.Errorf("%s: parameter %v", op.Slug, param)
			}
			same(t, op.Slug+"."+p.Name, decoded(p.Type, p.Example), at(t, param, "schema", "examples", 0))
			if _, outside := param["example"]; outside {
				t.Errorf("%s.%s: an example outside the schema", op.Slug, p.Name)
			}
		}
		same(t, op.Slug, any(refSignature), at(t, get, "parameters", len(op.Params), "$ref"))
		at(t, get, "responses", "200", "headers", "PAYMENT-RESPONSE", "$ref")
		same(t, op.Slug, "#/components/responses/PaymentRequired", at(t, get, "responses", "402", "$ref"))
		if op.Result != "" {
			same(t, op.Slug, schemaRef(op.Result), at(t, get, "responses", "200", "content", "application/json", "schema", "$ref"))
		}
		checkErrorCodes(t, op, get["x-error-codes"].([]any), at(t, o, "x-error-codes").(map[string]any))
	}
	at(t, o, "components", "responses", "PaymentRequired", "headers", "PAYMENT-REQUIRED", "$ref")
	if got := at(t, o, "components", "responses", "BadGateway", "headers").(map[string]any); got["PAYMENT-RESPONSE"] == nil || got["Retry-After"] == nil {
		t.Errorf("headers of a 502: %v", got)
	}
	same(t, "description of a 502", "connect_failed, handshake_failed, http_failed and rdap_upstream.",
		at(t, o, "components", "responses", "BadGateway", "description"))
}

// TestSchemasHaveTheNamesOfTheSpec: a generator names its types after these.
func TestSchemasHaveTheNamesOfTheSpec(t *testing.T) {
	schemas := at(t, described(t, rendered(), catalog.PathOpenAPI), "components", "schemas").(map[string]any)
	for _, name := range []string{
		"DnsResult", "SslResult", "WhoisResult", "HeadersResult", "RedirectTraceResult", "HostIntelligenceResult", "UptimeCheckResult", "SmokeTestResult",
		"AddressRecord", "MxRecord", "TxtRecord", "TargetRecord", "SoaRecord", "Registrar", "ResponseHeaders", "Hop", "ChildFailure", "RecordType", "StopReason", "Verdict", "ProbeMethod",
		"ErrorBody", "ErrorDetail", "PaymentRequired", "PaymentRequirements", "SettleResponse", "ToolCatalog", "PaymentManifest",
	} {
		if schemas[name] == nil {
			t.Errorf("no schema is called %s", name)
		}
	}
	// A name stands for one shape, wherever it is used.
	shapes := map[string]string{}
	var walk func(fields []catalog.Field)
	walk = func(fields []catalog.Field) {
		for _, f := range fields {
			if f.Schema != "" {
				names := fieldNames(f.Fields) + strings.Join(f.Enum, " ")
				if had, ok := shapes[f.Schema]; ok && had != names {
					t.Errorf("%s is %s and %s", f.Schema, had, names)
				}
				shapes[f.Schema] = names
			}
			walk(f.Fields)
			walk(f.Items)
		}
	}
	for _, op := range catalog.All() {
		walk(op.Fields)
	}
}

func checkErrorCodes(t *testing.T, op catalog.Operation, list []any, table map[string]any) {
	t.Helper()
	charged := map[fault.Class]any{fault.Standing: nil, fault.Answer: true, fault.Owed: true}
	if len(list) != len(op.AllErrors()) {
		t.Fatalf("%s: %d codes, want %d", op.Slug, len(list), len(op.AllErrors()))
	}
	for i, c := range op.AllErrors() {
		info, _ := fault.Of(c)
		if list[i] != string(c) {
			t.Errorf("%s: code %v, want %s", op.Slug, list[i], c)
		}
		entry := table[string(c)].(map[string]any)
		want := charged[info.Class]
		if c == fault.PaymentRequired {
			want = false
		}
		if entry["status"] != float64(info.Status) || entry["retryable"] != info.Retry || entry["charged"] != want {
			t.Errorf("%s: %v, class %s", c, entry, info.Class)
		}
	}
}

// walk visits every object of a document, and where it is.
func walk(where string, v any, visit func(where string, v map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(where, v)
		for key, x := range v {
			walk(where+"/"+key, x, visit)
		}
	case []any:
		for i, x := range v {
			walk(where+"/"+strconv.Itoa(i), x, visit)
		}
	}
}

// TestReferencesResolve also finds components that nothing refers to.
func TestReferencesResolve(t *testing.T) {
	o := described(t, rendered(), catalog.PathOpenAPI)
	used := map[string]bool{}
	walk("", o, func(_ string, v map[string]any) {
		if ref, ok := v["$ref"].(string); ok {
			used[ref] = true
		}
	})
	// Whether an error body is referred to depends on the declared statuses.
	for kind, items := range o["components"].(map[string]any) {
		for name := range items.(map[string]any) {
			ref := "#/components/" + kind + "/" + name
			if !used[ref] {
				t.Errorf("%s is never used", ref)
			}
			delete(used, ref)
		}
	}
	for ref := range used {
		t.Errorf("%s does not exist", ref)
	}
}

// TestResultSchemas holds every example against its schema, and the schema
// against every way to leave a field out.
func TestResultSchemas(t *testing.T) {
	for _, op := range wideOps() {
		s := validator(resultSchema(op.Fields, full))
		if err := fits(s, []byte(op.Response)); err != nil {
			t.Errorf("%s: %v", op.Slug, err)
		}
		for _, f := range op.Fields {
			example := tree(t, []byte(op.Response))
			delete(example, f.Name)
			if fits(s, must(json.Marshal(example))) == nil {
				t.Errorf("%s without %s passes", op.Slug, f.Name)
			}
			example[f.Name] = map[string]any{"unexpected": 1}
			if fits(s, must(json.Marshal(example))) == nil {
				t.Errorf("%s with a foreign object as %s passes", op.Slug, f.Name)
			}
		}
	}
}

func TestSchemaOfEveryShape(t *testing.T) {
	fields := wideOps()[len(wideOps())-1].Fields
	s := validator(resultSchema(fields, full))
	for name, tt := range map[string]struct {
		change string
		ok     bool
	}{
		"null enum":               {`{"reason":null}`, true},
		"enum":                    {`{"reason":"loop"}`, true},
		"outside the enum":        {`{"reason":"other"}`, false},
		"null object":             {`{"owner":null}`, true},
		"object":                  {`{"owner":{"name":"R","iana_id":"1"}}`, true},
		"object lacks a field":    {`{"owner":{"name":"R"}}`, false},
		"list of text":            {`{"names":["a","b"]}`, true},
		"list of numbers":         {`{"names":[1]}`, false},
		"list of objects":         {`{"hops":[{"index":1,"location":"/x"}]}`, true},
		"item lacks a field":      {`{"hops":[{"index":1}]}`, false},
		"first alternative":       {`{"child":{"expired":true}}`, true},
		"second alternative":      {`{"child":{"error":{"code":"a","message":"b"}}}`, true},
		"neither alternative":     {`{"child":{}}`, false},
		"not nullable":            {`{"domain":null}`, false},
		"a field that is added":   {`{"later":1}`, false},
		"an item with two shapes": {`{"child":{"expired":true,"error":{"code":"a","message":"b"}}}`, false},
	} {
		v := tree(t, []byte(wideOps()[len(wideOps())-1].Response))
		maps.Copy(v, tree(t, []byte(tt.change)))
		if err := fits(s, must(json.Marshal(v))); (err == nil) != tt.ok {
			t.Errorf("%s: %s: %v", name, tt.change, err)
		}
	}
}

func TestErrorAndOfferSchemasFitWhatIsSent(t *testing.T) {
	d := renderedWide()
	description := body(t, d, catalog.PathOpenAPI)
	schema := func(name string) *jsonschema.Schema { return schemaAt(description, "/components/schemas/"+name) }
	errors := schema("ErrorBody")
	const body, rest = `{"error":{"code":"dns_timeout","message":"m",%s},"request_id":"r"%s}`, `,"docs_url":"https://h/docs#error-x"`
	for _, c := range []struct {
		members, rest string
		ok            bool
	}{
		{`"charged":null,"retryable":true`, rest, true},
		{`"charged":false,"retryable":false`, rest, true},
		{`"charged":null,"retryable":true`, "", false},
		{`"retryable":true`, rest, false},
		{`"charged":null,"retryable":null`, rest, false},
		{`"charged":null,"retryable":true,"cause":"x"`, rest, false},
		{`"charged":null,"retryable":true`, rest + `,"more":1`, false},
	} {
		raw := fmt.Sprintf(body, c.members, c.rest)
		if err := fits(errors, []byte(raw)); (err == nil) != c.ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if fits(errors, []byte(`{"error":"Payment required"}`)) == nil {
		t.Error("a text passes for an error")
	}
	header, unpaid := schema("PaymentRequired"), schema("PaymentRequiredBody")
	for _, op := range wideOps() {
		raw := must(json.Marshal(Offer(op, testSite())))
		if err := fits(header, raw); err != nil {
			t.Errorf("%s: %v", op.Slug, err)
		}
		if fits(unpaid, raw) == nil {
			t.Errorf("%s: an offer without a code passes as the body", op.Slug)
		}
	}
	for path, name := range map[string]string{catalog.PathCatalog: "ToolCatalog", catalog.PathManifest: "PaymentManifest"} {
		doc, _ := d.Find(path)
		if err := fits(schema(name), doc.Body); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestEveryObjectIsExact: an object that names its properties allows no other.
// The spec gives shapes exactly, and only so is a field too many seen.
func TestEveryObjectIsExact(t *testing.T) {
	exact := 0
	walk("", described(t, renderedWide(), catalog.PathOpenAPI), func(where string, v map[string]any) {
		if _, named := v["properties"].(map[string]any); !named {
			return
		}
		if exact++; v["type"] == nil || v["additionalProperties"] != false {
			t.Errorf("%s has no type, or allows other properties: %v", where, v)
		}
	})
	if exact < 40 {
		t.Errorf("only %d objects were looked at", exact)
	}
}
