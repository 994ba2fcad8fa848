package discovery

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

func TestOpenAPITop(t *testing.T) {
	s := testSite()
	o := tree(t, body(t, mustRender(t), catalog.PathOpenAPI))
	for want, got := range map[string]any{
		"3.1.0": o["openapi"], "0.1.0": at(t, o, "info", "version"), catalog.Service: at(t, o, "info", "title"),
		catalog.Homepage: at(t, o, "info", "contact", "url"), s.Origin + "/llms.txt": at(t, o, "x-agentcash-guidance", "llmsTxtUrl"),
	} {
		if got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	if diff := cmp.Diff([]any{map[string]any{"url": s.Origin}}, o["servers"]); diff != "" {
		t.Errorf("servers: %s", diff)
	}
	if guidance := at(t, o, "info", "x-guidance").(string); len(guidance) >= 4000 || !strings.Contains(guidance, "PAYMENT-SIGNATURE") {
		t.Errorf("x-guidance has %d bytes: %q", len(guidance), guidance)
	}
	if _, ok := at(t, o, "components").(map[string]any)["securitySchemes"]; ok {
		t.Error("a security scheme makes crawlers take the service for one with API keys")
	}
}

func TestOpenAPIPathsAndDeclaredResponses(t *testing.T) {
	o := tree(t, body(t, mustRenderWide(t), catalog.PathOpenAPI))
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
		if diff := cmp.Diff([]string{"get"}, keys(item)); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
		got[path] = keys(at(t, item, "get", "responses"))
		slices.Sort(got[path])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOpenAPIOperationsSayWhatCrawlersNeed(t *testing.T) {
	o := tree(t, body(t, mustRenderWide(t), catalog.PathOpenAPI))
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
	o := tree(t, body(t, mustRenderWide(t), catalog.PathOpenAPI))
	for _, op := range wideOps() {
		get := at(t, o, "paths", op.Path, "get").(map[string]any)
		payment := map[string]any{
			"price":     map[string]any{"mode": "fixed", "currency": "USD", "amount": op.PriceUSD()},
			"protocols": []any{map[string]any{"x402": map[string]any{}}},
		}
		if diff := cmp.Diff(payment, get["x-payment-info"]); diff != "" {
			t.Errorf("%s: %s", op.Slug, diff)
		}
		if got := at(t, get, "externalDocs", "url"); got != op.DocsURL(s.Origin) {
			t.Errorf("%s: externalDocs %v", op.Slug, got)
		}
		for i, p := range op.Params {
			param := at(t, get, "parameters", i).(map[string]any)
			if param["name"] != p.Name || param["in"] != "query" || param["required"] != p.Required {
				t.Errorf("%s: parameter %v", op.Slug, param)
			}
			if got := at(t, param, "schema", "examples", 0); got != decoded(p.Type, p.Example) {
				t.Errorf("%s.%s: example %v", op.Slug, p.Name, got)
			}
			if _, outside := param["example"]; outside {
				t.Errorf("%s.%s: an example outside the schema", op.Slug, p.Name)
			}
		}
		if got := at(t, get, "parameters", len(op.Params), "$ref"); got != refSignature {
			t.Errorf("%s: last parameter %v", op.Slug, got)
		}
		at(t, get, "responses", "200", "headers", "PAYMENT-RESPONSE", "$ref")
		if got := at(t, get, "responses", "402", "$ref"); got != "#/components/responses/PaymentRequired" {
			t.Errorf("%s: its 402 is %v", op.Slug, got)
		}
		if op.Result != "" {
			if got := at(t, get, "responses", "200", "content", "application/json", "schema", "$ref"); got != schemaRef(op.Result) {
				t.Errorf("%s: its result is %v", op.Slug, got)
			}
		}
		checkErrorCodes(t, op, get["x-error-codes"].([]any), at(t, o, "x-error-codes").(map[string]any))
	}
	at(t, o, "components", "responses", "PaymentRequired", "headers", "PAYMENT-REQUIRED", "$ref")
	if got := at(t, o, "components", "responses", "BadGateway", "headers").(map[string]any); got["PAYMENT-RESPONSE"] == nil || got["Retry-After"] == nil {
		t.Errorf("headers of a 502: %v", got)
	}
	if got := at(t, o, "components", "responses", "BadGateway", "description"); got != "connect_failed, handshake_failed, http_failed and rdap_upstream." {
		t.Errorf("description of a 502: %v", got)
	}
}

// TestSchemasHaveTheNamesOfTheSpec: a generator names its types after these.
func TestSchemasHaveTheNamesOfTheSpec(t *testing.T) {
	schemas := at(t, tree(t, body(t, mustRender(t), catalog.PathOpenAPI)), "components", "schemas").(map[string]any)
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

// TestReferencesResolve also finds components that nothing refers to.
func TestReferencesResolve(t *testing.T) {
	raw := body(t, mustRender(t), catalog.PathOpenAPI)
	o := tree(t, raw)
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				used[ref] = true
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(o)
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
		s := validator(t, resultSchema(op.Fields, full))
		if err := s.Validate(instance(t, []byte(op.Response))); err != nil {
			t.Errorf("%s: %v", op.Slug, err)
		}
		for _, f := range op.Fields {
			example := tree(t, []byte(op.Response))
			delete(example, f.Name)
			raw, _ := json.Marshal(example)
			if s.Validate(instance(t, raw)) == nil {
				t.Errorf("%s without %s passes", op.Slug, f.Name)
			}
			example[f.Name] = map[string]any{"unexpected": 1}
			raw, _ = json.Marshal(example)
			if s.Validate(instance(t, raw)) == nil {
				t.Errorf("%s with a foreign object as %s passes", op.Slug, f.Name)
			}
		}
	}
}

func TestSchemaOfEveryShape(t *testing.T) {
	fields := wideOps()[len(wideOps())-1].Fields
	s := validator(t, resultSchema(fields, full))
	tests := map[string]struct {
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
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := tree(t, []byte(wideOps()[len(wideOps())-1].Response))
			for k, x := range tree(t, []byte(tt.change)) {
				v[k] = x
			}
			raw, _ := json.Marshal(v)
			if err := s.Validate(instance(t, raw)); (err == nil) != tt.ok {
				t.Errorf("%s: %v", tt.change, err)
			}
		})
	}
}

// schemaAt compiles a schema of the description, by its place in there.
func schemaAt(t *testing.T, description []byte, pointer string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("test:///openapi.json", instance(t, description)); err != nil {
		t.Fatal(err)
	}
	s := must(c.Compile("test:///openapi.json#" + pointer))
	return s
}

func TestErrorAndOfferSchemasFitWhatIsSent(t *testing.T) {
	description := body(t, mustRenderWide(t), catalog.PathOpenAPI)
	errors := schemaAt(t, description, "/components/schemas/ErrorBody")
	for _, raw := range []string{
		`{"error":{"code":"dns_timeout","message":"m","charged":null,"retryable":true},"request_id":"r","docs_url":"https://h/docs#error-x"}`,
		`{"error":{"code":"unknown_path","message":"m","charged":false,"retryable":false},"request_id":"r","docs_url":"https://h/docs#error-x"}`,
	} {
		if err := errors.Validate(instance(t, []byte(raw))); err != nil {
			t.Error(err)
		}
	}
	for _, raw := range []string{
		`{"error":"Payment required"}`,
		`{"error":{"code":"dns_timeout","message":"m","charged":null,"retryable":true}}`,
		`{"error":{"code":"dns_timeout","message":"m","retryable":true},"request_id":"r","docs_url":"https://h/docs#error-x"}`,
		`{"error":{"code":"dns_timeout","message":"m","charged":null,"retryable":null},"request_id":"r","docs_url":"https://h/docs#error-x"}`,
		`{"error":{"code":"dns_timeout","message":"m","charged":null,"retryable":true,"cause":"x"},"request_id":"r","docs_url":"https://h/docs#error-x"}`,
		`{"error":{"code":"dns_timeout","message":"m","charged":null,"retryable":true},"request_id":"r","docs_url":"https://h/docs#error-x","more":1}`,
	} {
		if errors.Validate(instance(t, []byte(raw))) == nil {
			t.Errorf("%s passes", raw)
		}
	}
	header, unpaid := schemaAt(t, description, "/components/schemas/PaymentRequired"), schemaAt(t, description, "/components/schemas/PaymentRequiredBody")
	for _, op := range wideOps() {
		raw := must(json.Marshal(Offer(op, testSite())))
		if err := header.Validate(instance(t, raw)); err != nil {
			t.Errorf("%s: %v", op.Slug, err)
		}
		if unpaid.Validate(instance(t, raw)) == nil {
			t.Errorf("%s: an offer without a code passes as the body", op.Slug)
		}
	}
	for path, name := range map[string]string{catalog.PathCatalog: "ToolCatalog", catalog.PathManifest: "PaymentManifest"} {
		if err := schemaAt(t, description, "/components/schemas/"+name).Validate(instance(t, body(t, mustRenderWide(t), path))); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestEveryObjectIsExact: an object that names its properties allows no other.
// The spec gives shapes exactly, and only so is a field too many seen.
func TestEveryObjectIsExact(t *testing.T) {
	exact := 0
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			_, named := v["properties"].(map[string]any)
			if named && v["type"] == nil {
				t.Errorf("%s has properties and no type", where)
			}
			if named && v["additionalProperties"] != false {
				t.Errorf("%s allows other properties", where)
			}
			if named {
				exact++
			}
			for key, x := range v {
				walk(where+"/"+key, x)
			}
		case []any:
			for i, x := range v {
				walk(where+"/"+strconv.Itoa(i), x)
			}
		}
	}
	walk("", tree(t, body(t, mustRenderWide(t), catalog.PathOpenAPI)))
	if exact < 40 {
		t.Errorf("only %d objects were looked at", exact)
	}
}
