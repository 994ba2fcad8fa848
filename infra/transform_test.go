package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTransform holds both templates, as CloudFormation sees them after the
// transform, to what the service needs.
func TestTransform(t *testing.T) {
	t.Parallel()
	for name, transform := range map[string]func(t *testing.T) document{
		"template.yaml": func(t *testing.T) document { return transformed(t, templatePath, payTo) },
		"CDK":           func(t *testing.T) document { return transformed(t, saved(t, synthesized(t))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := transform(t)
			t.Run("routes", func(t *testing.T) { checkRoutes(t, d) })
			t.Run("permissions", func(t *testing.T) { checkPermissions(t, d) })
			t.Run("functions", func(t *testing.T) { checkFunctions(t, d, name == "CDK") })
			t.Run("stage", func(t *testing.T) { checkStage(t, d) })
			t.Run("releases", func(t *testing.T) { checkReleases(t, d) })
		})
	}
}

// checkRoutes: one route a path, ANY, by payload format 2.0, to its function.
func checkRoutes(t *testing.T, d document) {
	t.Helper()
	want, got := map[string]string{}, map[string]string{}
	for slug, routes := range routesBySlug() {
		for _, route := range routes {
			want[strings.TrimPrefix(route, "ANY ")] = "aws_proxy 2.0 " + logicalID(slug)
		}
	}
	target := regexp.MustCompile(`functions/\$\{(\w+)Aliaslive\}/invocations`)
	for path, methods := range section(section(properties(d, idAPI), "Body"), "paths") {
		integration := section(section(methods.(document), "x-amazon-apigateway-any-method"), "x-amazon-apigateway-integration")
		if len(methods.(document)) != 1 {
			t.Errorf("%s has %v, want any method and nothing else", path, methods)
		}
		uri := target.FindStringSubmatch(fmt.Sprint(integration["uri"]))
		got[path] = fmt.Sprint(integration["type"], " ", integration["payloadFormatVersion"], " ", strings.Join(uri[min(1, len(uri)):], ""))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-catalog +transformed):\n%s", diff)
	}
	if apis, routes := ofType(d, "AWS::ApiGatewayV2::Api"), ofType(d, "AWS::ApiGatewayV2::Route"); len(apis) != 1 || len(routes) != 0 {
		t.Errorf("%d APIs, and %d routes beside the API's body", len(apis), len(routes))
	}
}

// checkPermissions: the gateway may call each function for each of its paths,
// the schedule the one that is its own, and nobody anything else.
func checkPermissions(t *testing.T, d document) {
	t.Helper()
	var want, got []string
	for slug, routes := range routesBySlug() {
		for _, route := range routes {
			path := strings.TrimPrefix(strings.TrimPrefix(route, "ANY "), "$default") // SAM: any path of the API
			want = append(want, "apigateway.amazonaws.com calls "+logicalID(slug)+" for "+path)
		}
	}
	want = append(want, "events.amazonaws.com calls ReconcileFunction for ReconcileFunctionSchedule")
	for _, id := range ofType(d, "AWS::Lambda::Permission") {
		p := properties(d, id)
		function := section(p, "FunctionName")
		source, err := json.Marshal(p["SourceArn"])
		if err != nil || p["Action"] != "lambda:InvokeFunction" {
			t.Errorf("%s: %v", id, p)
		}
		name, aliased := strings.CutSuffix(fmt.Sprint(function["Ref"]), "Alias"+alias)
		if !aliased {
			t.Errorf("%s: %v is called past its alias", id, function)
		}
		got = append(got, fmt.Sprintf("%v calls %s for %s", p["Principal"], name, sourceOf(string(source))))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("permissions (-want +transformed):\n%s", diff)
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
func checkFunctions(t *testing.T, d document, production bool) {
	t.Helper()
	if n := len(ofType(d, "AWS::Lambda::Function")); n != len(slugs()) {
		t.Errorf("%d functions, want %d", n, len(slugs()))
	}
	for _, slug := range slugs() {
		id := logicalID(slug)
		p := properties(d, id)
		timeout, memory, concurrency := 29.0, 512.0, any(nil)
		if slug == slugReconcile {
			timeout, memory = 240, 256
			if production {
				concurrency = 1.0
			}
		}
		logs := document{"LogFormat": "JSON", "ApplicationLogLevel": "DEBUG"}
		if production {
			logs["LogGroup"] = document{"Ref": pascal(slug) + "Log"}
		}
		want := document{
			"Runtime": "provided.al2023", "Handler": "bootstrap", "Architectures": []any{"arm64"},
			"Timeout": timeout, "MemorySize": memory, "ReservedConcurrentExecutions": concurrency, "LoggingConfig": logs,
			"Role": document{"Fn::GetAtt": []any{id + "Role", "Arn"}}, "FunctionName": nil,
		}
		got := document{}
		for name := range want {
			got[name] = p[name]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +transformed):\n%s", id, diff)
		}
		checkRole(t, id, properties(d, id+"Role"))
	}
	invoke := properties(d, "ReconcileFunctionEventInvokeConfig")
	if invoke["MaximumRetryAttempts"] != 0.0 || invoke["MaximumEventAgeInSeconds"] != 60.0 {
		t.Errorf("asynchronous calls of reconcile: %v", invoke)
	}
	if rule := properties(d, "ReconcileFunctionSchedule"); rule["ScheduleExpression"] != "rate(5 minutes)" {
		t.Errorf("schedule %v", rule)
	}
}

// checkRole: beside what the template says a function may write its log, and
// only Lambda may be it.
func checkRole(t *testing.T, id string, role document) {
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
func checkStage(t *testing.T, d document) {
	t.Helper()
	stages, p := ofType(d, "AWS::ApiGatewayV2::Stage"), properties(d, idStage)
	if !slices.Equal(stages, []string{idStage}) || p["StageName"] != "$default" || p["AutoDeploy"] != true {
		t.Errorf("stages %q, %v", stages, p)
	}
	if diff := cmp.Diff(document{"ThrottlingRateLimit": 1000.0, "ThrottlingBurstLimit": 2000.0}, p["DefaultRouteSettings"]); diff != "" {
		t.Errorf("throttling:\n%s", diff)
	}
	documents := document{"$default": document{"ThrottlingRateLimit": 100.0, "ThrottlingBurstLimit": 200.0}}
	if diff := cmp.Diff(documents, p["RouteSettings"]); diff != "" {
		t.Errorf("throttling of the documents:\n%s", diff)
	}
	if log := section(p, "AccessLogSettings"); log["DestinationArn"] == nil || log["Format"] == nil {
		t.Errorf("access log %v", log)
	}
	all := section(d, "Resources")
	for id, r := range all {
		needs, _ := r.(document)["DependsOn"].([]any)
		for _, need := range needs {
			if all[fmt.Sprint(need)] == nil {
				t.Errorf("%s waits for %v, which there is not", id, need)
			}
		}
	}
	if mapping := section(all, "DomainMapping"); mapping != nil && !cmp.Equal(mapping["DependsOn"], any([]any{idStage})) {
		t.Errorf("the domain waits for %v", mapping["DependsOn"])
	}
}
