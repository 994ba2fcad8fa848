package samcheck

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
)

type m = map[string]any

// stage is what the transform calls the API's stage; the CDK app's domain waits
// for it by this name.
const stage = "ApiApiGatewayDefaultStage"

// bySlug are the paths that each function answers, $default included.
func bySlug() map[string][]string {
	paths := map[string][]string{"discovery": {"$default"}, "health": {catalog.PathHealth, catalog.PathReady}, "mcp": {catalog.PathMCP}, "reconcile": nil}
	for _, o := range catalog.All() {
		paths[o.Slug] = []string{o.Path}
	}
	return paths
}

func logicalID(slug string) string {
	var id strings.Builder
	for part := range strings.SplitSeq(slug, "-") {
		id.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return id.String() + "Function"
}

// TestTransform holds both templates, as CloudFormation sees them after the
// transform, to what the service needs.
func TestTransform(t *testing.T) {
	t.Parallel()
	for name, transform := range map[string]func(t *testing.T) map[string]resource{
		"template.yaml": func(t *testing.T) map[string]resource { return transformed(t, template, payTo) },
		"CDK":           func(t *testing.T) map[string]resource { return transformed(t, synthesized(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := transform(t)
			t.Run("routes", func(t *testing.T) { checkRoutes(t, all) })
			t.Run("permissions", func(t *testing.T) { checkPermissions(t, all) })
			t.Run("functions", func(t *testing.T) { checkFunctions(t, all, name == "CDK") })
			t.Run("stage", func(t *testing.T) { checkStage(t, all) })
			t.Run("releases", func(t *testing.T) { checkReleases(t, all) })
		})
	}
}

// checkRoutes: one route a path, ANY, by payload format 2.0, to its function.
func checkRoutes(t *testing.T, all map[string]resource) {
	t.Helper()
	apis := ofType(all, "AWS::ApiGatewayV2::Api")
	if len(apis) != 1 {
		t.Fatalf("%d APIs", len(apis))
	}
	want := map[string]string{}
	for slug, paths := range bySlug() {
		for _, path := range paths {
			want[path] = logicalID(slug)
		}
	}
	got := map[string]string{}
	body, _ := apis["Api"].Properties["Body"].(m)
	paths, _ := body["paths"].(m)
	target := regexp.MustCompile(`functions/\$\{(\w+)Aliaslive\}/invocations`)
	for path, methods := range paths {
		integration := route(t, path, methods.(m))
		if integration["payloadFormatVersion"] != "2.0" || integration["type"] != "aws_proxy" {
			t.Errorf("%s: integration %v", path, integration)
		}
		uri, err := json.Marshal(integration["uri"])
		if found := target.FindSubmatch(uri); err == nil && found != nil {
			got[path] = string(found[1])
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("routes (-catalog +transformed):\n%s", d)
	}
	if routes := ofType(all, "AWS::ApiGatewayV2::Route"); len(routes) != 0 {
		t.Errorf("%d routes beside the API's body", len(routes))
	}
}

// route is the one integration of a path.
func route(t *testing.T, path string, methods m) m {
	t.Helper()
	method, _ := methods["x-amazon-apigateway-any-method"].(m)
	integration, _ := method["x-amazon-apigateway-integration"].(m)
	if len(methods) != 1 || integration == nil {
		t.Errorf("%s has %v, want any method and nothing else", path, slices.Collect(maps.Keys(methods)))
	}
	return integration
}

// checkPermissions: the gateway may call each function for each of its paths,
// the schedule the one that is its own, and nobody anything else.
func checkPermissions(t *testing.T, all map[string]resource) {
	t.Helper()
	var want, got []string
	for slug, paths := range bySlug() {
		for _, path := range paths {
			if path == "$default" {
				path = "" // SAM: any path of the API
			}
			want = append(want, "apigateway.amazonaws.com calls "+logicalID(slug)+" for "+path)
		}
	}
	want = append(want, "events.amazonaws.com calls ReconcileFunction for ReconcileFunctionSchedule")
	for id, p := range ofType(all, "AWS::Lambda::Permission") {
		function, _ := p.Properties["FunctionName"].(m)
		source, err := json.Marshal(p.Properties["SourceArn"])
		if err != nil || p.Properties["Action"] != "lambda:InvokeFunction" {
			t.Errorf("%s: %v", id, p.Properties)
		}
		name, aliased := strings.CutSuffix(fmt.Sprint(function["Ref"]), "Alias"+alias)
		if !aliased {
			t.Errorf("%s: %v is called past its alias", id, function)
		}
		got = append(got, fmt.Sprintf("%v calls %s for %s", p.Properties["Principal"], name, sourceOf(string(source))))
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("permissions (-want +transformed):\n%s", d)
	}
}

// sourceOf is the path of an API's ARN, or the rule that is referred to.
func sourceOf(arn string) string {
	if found := regexp.MustCompile(`"Fn::GetAtt":\["(\w+)","Arn"\]`).FindStringSubmatch(arn); found != nil {
		return found[1]
	}
	if found := regexp.MustCompile(`\$\{__ApiId__\}/\$\{__Stage__\}/\*(/[^"]*)?"`).FindStringSubmatch(arn); found != nil {
		return found[1]
	}
	return arn
}

// checkFunctions: how each runs, for how long, and with which role. Only the CDK
// app reserves concurrency, and its functions have log groups of their own.
func checkFunctions(t *testing.T, all map[string]resource, production bool) {
	t.Helper()
	functions := ofType(all, "AWS::Lambda::Function")
	if len(functions) != len(bySlug()) {
		t.Errorf("%d functions, want %d", len(functions), len(bySlug()))
	}
	for slug := range bySlug() {
		id := logicalID(slug)
		p := functions[id].Properties
		timeout, memory, concurrency := 29.0, 512.0, any(nil)
		if slug == "reconcile" {
			timeout, memory = 240, 256
			if production {
				concurrency = 1.0
			}
		}
		logs := m{"LogFormat": "JSON", "ApplicationLogLevel": "DEBUG"}
		if production {
			logs["LogGroup"] = m{"Ref": strings.TrimSuffix(id, "Function") + "Log"}
		}
		want := m{
			"Runtime": "provided.al2023", "Handler": "bootstrap", "Architectures": []any{"arm64"},
			"Timeout": timeout, "MemorySize": memory, "ReservedConcurrentExecutions": concurrency, "LoggingConfig": logs,
			"Role": m{"Fn::GetAtt": []any{id + "Role", "Arn"}}, "FunctionName": nil,
		}
		got := m{}
		for name := range want {
			got[name] = p[name]
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +transformed):\n%s", id, d)
		}
		checkRole(t, id, all[id+"Role"].Properties)
	}
	invoke := all["ReconcileFunctionEventInvokeConfig"].Properties
	if invoke["MaximumRetryAttempts"] != 0.0 || invoke["MaximumEventAgeInSeconds"] != 60.0 {
		t.Errorf("asynchronous calls of reconcile: %v", invoke)
	}
	if rule := all["ReconcileFunctionSchedule"].Properties; rule["ScheduleExpression"] != "rate(5 minutes)" {
		t.Errorf("schedule %v", rule)
	}
}

// checkRole: beside what the template says a function may write its log, and
// only Lambda may be it.
func checkRole(t *testing.T, id string, role m) {
	t.Helper()
	managed, err := json.Marshal(role["ManagedPolicyArns"])
	if err != nil || !strings.HasSuffix(string(managed), `:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"]`) || strings.Count(string(managed), "arn:") != 1 {
		t.Errorf("%s: managed policies %s", id, managed)
	}
	trust, err := json.Marshal(role["AssumeRolePolicyDocument"])
	if err != nil || !strings.Contains(string(trust), `"Principal":{"Service":["lambda.amazonaws.com"]}`) || strings.Count(string(trust), "Principal") != 1 {
		t.Errorf("%s: trusted %s", id, trust)
	}
	keys := regexp.MustCompile(`"dynamodb:LeadingKeys":\[[^]]*\]`)
	policies, err := json.Marshal(role["Policies"])
	// Keys alone may have an open end.
	if err != nil || strings.Contains(keys.ReplaceAllString(string(policies), ""), `*`) {
		t.Errorf("%s: policies %s", id, policies)
	}
}

// checkStage: the stage has the name that the CDK app's domain waits for, its
// throttling and its access log.
func checkStage(t *testing.T, all map[string]resource) {
	t.Helper()
	p := all[stage].Properties
	if all[stage].Type != "AWS::ApiGatewayV2::Stage" || p["StageName"] != "$default" || p["AutoDeploy"] != true {
		t.Errorf("stage %v", all[stage])
	}
	if d := cmp.Diff(m{"ThrottlingRateLimit": 1000.0, "ThrottlingBurstLimit": 2000.0}, p["DefaultRouteSettings"]); d != "" {
		t.Errorf("throttling:\n%s", d)
	}
	if d := cmp.Diff(m{"$default": m{"ThrottlingRateLimit": 100.0, "ThrottlingBurstLimit": 200.0}}, p["RouteSettings"]); d != "" {
		t.Errorf("throttling of the documents:\n%s", d)
	}
	if log, _ := p["AccessLogSettings"].(m); log["DestinationArn"] == nil || log["Format"] == nil {
		t.Errorf("access log %v", log)
	}
	for id, r := range all {
		needs, _ := r.DependsOn.([]any)
		for _, need := range needs {
			if _, ok := all[fmt.Sprint(need)]; !ok {
				t.Errorf("%s waits for %v, which there is not", id, need)
			}
		}
	}
	if mapping := all["DomainMapping"]; mapping.Type != "" && !cmp.Equal(mapping.DependsOn, any([]any{stage})) {
		t.Errorf("the domain waits for %v", mapping.DependsOn)
	}
}
