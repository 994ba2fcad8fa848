package main

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// TestIncludeRestatesNothing: what the synthesized template says of the
// application is what template.yaml says, but for what the envelope is there
// to change.
func TestIncludeRestatesNothing(t *testing.T) {
	t.Parallel()
	s := must(readSettings("..", from(*example())))(t)
	want, got := written(t, s.params), synthesized(t)
	for _, slug := range slugs() {
		properties(want, logicalID(slug))["LoggingConfig"] = document{"LogGroup": document{"Ref": pascal(slug) + "Log"}}
	}
	properties(want, logicalID(slugReconcile))["ReservedConcurrentExecutions"] = 1.0
	for _, name := range templateAlarms() {
		p := properties(want, pascal(name)+"Alarm")
		p["AlarmActions"], p["OKActions"] = []any{document{"Ref": "Alarms"}}, []any{document{"Ref": "Alarms"}}
	}
	properties(want, idLog)["RetentionInDays"] = s.retention
	for _, part := range []string{"Resources", "Outputs", "Conditions"} {
		for id, r := range section(want, part) {
			if d := cmp.Diff(r, section(got, part)[id]); part != "Outputs" && d != "" || section(got, part)[id] == nil {
				t.Errorf("%s (-template.yaml +synthesized):\n%s", id, d)
			}
		}
	}
	if d := cmp.Diff(want["Globals"], got["Globals"]); d != "" {
		t.Errorf("globals (-template.yaml +synthesized):\n%s", d)
	}
	// What is secret is asked for at deployment.
	for name, p := range template(t).Parameters {
		if _, stays := section(got, "Parameters")[name]; stays != p.NoEcho {
			t.Errorf("parameter %s: secret %v, asked for %v", name, p.NoEcho, stays)
		}
	}
}

// TestLogsEnd: every log group has an end, and every function one of its own.
func TestLogsEnd(t *testing.T) {
	t.Parallel()
	got := synthesized(t)
	groups := ofType(got, "AWS::Logs::LogGroup")
	if len(groups) != len(slugs())+1 {
		t.Errorf("%d log groups for %d functions and the API", len(groups), len(slugs()))
	}
	for _, id := range groups {
		p := properties(got, id)
		if days, ok := p["RetentionInDays"].(float64); !ok || days != defaultRetention {
			t.Errorf("%s is kept for %v days", id, p["RetentionInDays"])
		}
		if p["LogGroupName"] != nil {
			t.Errorf("%s has a name: a second stack would not fit beside this one", id)
		}
	}
}

// TestAccessLog: one JSON line a request that holds nothing of what a client sent. The
// path, the query and the headers are the client's words, and hold what was asked about
// and the signature; the address is his.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	log := section(properties(written(t, nil), idAPI), "AccessLogSettings")
	if d := cmp.Diff(document{"Fn::GetAtt": idLog + ".Arn"}, log["DestinationArn"]); d != "" {
		t.Errorf("destination: %s", d)
	}
	format, _ := log["Format"].(string)
	var line map[string]string
	if err := json.Unmarshal([]byte(format), &line); err != nil || strings.Contains(format, "\n") {
		t.Fatalf("%q is no line of JSON: %v", format, err)
	}
	for _, want := range []string{"requestId", "routeKey", "status", "integrationLatency", "integrationErrorMessage"} {
		if !slices.Contains(slices.Collect(maps.Values(line)), "$context."+want) {
			t.Errorf("%s is not logged", want)
		}
	}
	one := regexp.MustCompile(`^\$context\.[^$]+$`)
	banned := regexp.MustCompile(`^\$context\.(path|identity|authorizer|header|query|customDomain)`)
	for key, value := range line {
		if !one.MatchString(value) || banned.MatchString(value) {
			t.Errorf("%s is %q, want one variable, and not of the client's words", key, value)
		}
	}
}

// TestDomain: the mapping waits for the stage, which SAM makes; TestTransform
// holds that it makes one of this name.
func TestDomain(t *testing.T) {
	t.Parallel()
	got := synthesized(t)
	want := document{
		"Type": "AWS::ApiGatewayV2::ApiMapping", "DependsOn": []any{idStage},
		"Properties": document{"ApiId": document{"Ref": idAPI}, "DomainName": document{"Ref": "Domain"}, "Stage": "$default"},
	}
	if d := cmp.Diff(want, section(got, "Resources")["DomainMapping"]); d != "" {
		t.Errorf("mapping (-want +got):\n%s", d)
	}
	if p := properties(got, "Domain"); p["DomainName"] != "api.hostfacts.example" {
		t.Errorf("domain %v", p["DomainName"])
	}
	globals := section(section(section(section(got, "Globals"), "Function"), "Environment"), "Variables")
	if globals["BASE_URL"] != "https://api.hostfacts.example" {
		t.Errorf("BASE_URL %v, want the domain's", globals["BASE_URL"])
	}
}

// TestNotify: alarms reach the topics, the budget that of the tickets, and each topic
// an inbox.
func TestNotify(t *testing.T) {
	t.Parallel()
	got := synthesized(t)
	type m = map[string]any
	for id, email := range map[string]string{"Alarms": "ops@hostfacts.example", "Tickets": "tickets@hostfacts.example"} {
		topic := m{"Ref": id}
		if d := cmp.Diff(m{"Protocol": "email", "Endpoint": email, "TopicArn": topic}, properties(got, id+"Email")); d != "" {
			t.Errorf("subscription:\n%s", d)
		}
		want := []any{m{
			"Effect": "Allow", "Action": "sns:Publish", "Resource": topic,
			"Principal": m{"Service": []any{"cloudwatch.amazonaws.com", "budgets.amazonaws.com"}},
			"Condition": m{"StringEquals": m{"aws:SourceAccount": m{"Ref": "AWS::AccountId"}}},
		}, m{
			"Effect": "Deny", "Action": "sns:Publish", "Resource": topic, "Principal": "*",
			"Condition": m{"Bool": m{"aws:SecureTransport": "false"}},
		}}
		if d := cmp.Diff(any(want), section(properties(got, id+"Policy"), "PolicyDocument")["Statement"]); d != "" {
			t.Errorf("policy:\n%s", d)
		}
	}
	// A budget with a name could not be replaced, nor be in two regions. It waits for
	// the policy that lets it tell.
	notice := func(kind string, percent float64) m {
		return m{
			"Notification": m{"NotificationType": kind, "ComparisonOperator": "GREATER_THAN", "Threshold": percent, "ThresholdType": "PERCENTAGE"},
			"Subscribers":  []any{m{"SubscriptionType": "SNS", "Address": m{"Ref": "Tickets"}}},
		}
	}
	want := m{"Type": "AWS::Budgets::Budget", "DependsOn": []any{"TicketsPolicy"}, "Properties": m{
		"Budget":                       m{"BudgetType": "COST", "TimeUnit": "MONTHLY", "BudgetLimit": m{"Amount": float64(defaultBudget), "Unit": "USD"}},
		"NotificationsWithSubscribers": []any{notice("ACTUAL", 80), notice("FORECASTED", 100)},
	}}
	if d := cmp.Diff(want, section(got, "Resources")["Budget"]); d != "" {
		t.Errorf("budget (-want +got):\n%s", d)
	}
}

// TestDashboard: each operation has its graphs, each metric of ours is on some
// graph, and the runbook is one click away.
func TestDashboard(t *testing.T) {
	t.Parallel()
	d := synthesized(t)
	p := properties(d, ofType(d, "AWS::CloudWatch::Dashboard")[0])
	board, name := must(json.Marshal(p["DashboardBody"]))(t), must(json.Marshal(p["DashboardName"]))(t)
	if !strings.Contains(string(name), `{"Ref":"AWS::Region"}`) {
		t.Errorf("the dashboard's name is the same in all regions: %s", name)
	}
	text := strings.ReplaceAll(string(board), `\`, "")
	want := []string{"(" + catalog.Runbook + ")"}
	for _, name := range writtenMetrics() {
		want = append(want, `["`+service.Namespace(defaultStack)+`","`+name+`"`)
	}
	for _, slug := range slugs() {
		want = append(want, `"label":"`+slug+` ConcurrentExecutions"`)
	}
	for _, name := range []string{"Count", "4xx", "5xx", "Latency", "IntegrationLatency"} {
		want = append(want, `["AWS/ApiGateway","`+name+`","ApiId",`)
	}
	for i, o := range catalog.All() {
		want = append(want, fmt.Sprintf("FILL(m%d, 0) * %s", i, o.Amount)) // revenue, by the catalog's prices
		if n := strings.Count(text, `"`+service.DimensionOperation+`","`+o.Slug+`"`); n < 10 {
			t.Errorf("%d series of %s, want 10", n, o.Slug)
		}
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s is not on the dashboard", w)
		}
	}
}

// TestSavedQueries: each is over the logs that it is about.
func TestSavedQueries(t *testing.T) {
	t.Parallel()
	got := synthesized(t)
	if n := len(ofType(got, "AWS::Logs::QueryDefinition")); n != len(savedQueries()) {
		t.Errorf("%d saved queries, want %d", n, len(savedQueries()))
	}
	for _, q := range savedQueries() {
		var groups []any
		for _, slug := range slugs() {
			groups = append(groups, document{"Ref": pascal(slug) + "Log"})
		}
		if q.gateway {
			groups = []any{document{"Ref": idLog}}
		}
		want := document{"Name": defaultStack + "/" + q.name, "QueryString": q.text, "LogGroupNames": groups}
		if d := cmp.Diff(want, properties(got, q.id())); d != "" {
			t.Errorf("%s (-want +got):\n%s", q.name, d)
		}
	}
}

// TestCodeIsShipped: as the CDK CLI runs the app, in infra and with a context in
// the environment, each function has what was built of it as an asset, and there
// is nothing left for SAM to build. Nothing that was not asked for is added.
func TestCodeIsShipped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	text := must(os.ReadFile(templatePath))(t)
	write(t, filepath.Join(root, templateName), text)
	for _, slug := range slugs() {
		write(t, filepath.Join(root, "functions", slug, "main.go"), nil)
		write(t, filepath.Join(root, "build", slug, "bootstrap"), append(header(elf.EM_AARCH64), slug...))
	}
	write(t, filepath.Join(root, "infra", "cdk.json"), nil)
	text = must(synth(t, filepath.Join(root, "infra"), map[string]any{"PayTo": boot.LocalPayTo, ctxNodes: nodesParameter, ctxReserve: false}))(t)
	var d document
	check(t, json.Unmarshal(text, &d))
	keys := map[any]string{}
	for _, slug := range slugs() {
		code, _ := properties(d, logicalID(slug))["CodeUri"].(map[string]any)
		if other, twice := keys[code["Key"]]; code["Bucket"] == nil || code["Key"] == nil || twice {
			t.Errorf("%s: code %v, as %s", slug, code, other)
		}
		keys[code["Key"]] = slug
		if m := section(section(section(d, "Resources"), logicalID(slug)), "Metadata"); m["BuildMethod"] != nil {
			t.Errorf("%s: SAM would build it again: %v", slug, m)
		}
	}
	if n, ok := properties(d, logicalID(slugReconcile))["ReservedConcurrentExecutions"]; ok {
		t.Errorf("concurrency of %v is reserved, and was not to be", n)
	}
	for _, id := range []string{"Domain", "DomainMapping", "AlarmsEmail"} {
		if section(d, "Resources")[id] != nil {
			t.Errorf("%s is there, and nobody asked for it", id)
		}
	}
}

// TestAppNamesItsFaults: without a context the app ends with what is missing.
func TestAppNamesItsFaults(t *testing.T) {
	t.Parallel()
	_, err := synth(t, ".", map[string]any{ctxAssets: assetsNone, ctxRetention: "x"})
	if err == nil || !strings.Contains(err.Error(), "3 fault(s)") || !strings.Contains(err.Error(), "\nPayTo is not set") {
		t.Errorf("%v", err)
	}
}
