package main

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// exampleSettings are those of the synthesized example.
func exampleSettings(t *testing.T) settings {
	t.Helper()
	s, err := readSettings("..", from(*example()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestIncludeRestatesNothing: what the synthesized template says of the
// application is what template.yaml says, but for what the envelope is there
// to change.
func TestIncludeRestatesNothing(t *testing.T) {
	t.Parallel()
	s := exampleSettings(t)
	want, got := written(t, s.params), synthesized(t)
	if d := cmp.Diff(want["Globals"], got["Globals"]); d != "" {
		t.Errorf("globals (-template.yaml +synthesized):\n%s", d)
	}
	if d := cmp.Diff(want["Conditions"], got["Conditions"]); d != "" {
		t.Errorf("conditions (-template.yaml +synthesized):\n%s", d)
	}
	for _, slug := range slugs() {
		properties(want, logicalID(slug))["LoggingConfig"] = map[string]any{"LogGroup": map[string]any{"Ref": pascal(slug) + "Log"}}
	}
	properties(want, logicalID(slugReconcile))["ReservedConcurrentExecutions"] = 1.0
	for _, name := range templateAlarms() {
		p := properties(want, pascal(name)+"Alarm")
		p["AlarmActions"], p["OKActions"] = []any{map[string]any{"Ref": "Alarms"}}, []any{map[string]any{"Ref": "Alarms"}}
	}
	properties(want, idLog)["RetentionInDays"] = s.retention
	for id, r := range section(want, "Resources") {
		if d := cmp.Diff(r, section(got, "Resources")[id]); d != "" {
			t.Errorf("%s (-template.yaml +synthesized):\n%s", id, d)
		}
	}
	for id := range section(want, "Outputs") {
		if section(got, "Outputs")[id] == nil {
			t.Errorf("output %s is gone", id)
		}
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

// TestAccessLog: one JSON line a request that holds nothing of what a client
// sent.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]document{"template.yaml": written(t, nil), "synthesized": synthesized(t)} {
		log, _ := properties(d, idAPI)["AccessLogSettings"].(map[string]any)
		if diff := cmp.Diff(map[string]any{"Fn::GetAtt": idLog + ".Arn"}, log["DestinationArn"]); diff != "" {
			t.Errorf("%s: destination: %s", name, diff)
		}
		format, _ := log["Format"].(string)
		var line map[string]string
		if err := json.Unmarshal([]byte(format), &line); err != nil || strings.Contains(format, "\n") {
			t.Fatalf("%s: %q is no line of JSON: %v", name, format, err)
		}
		for _, want := range []string{"requestId", "routeKey", "status", "integrationLatency", "integrationErrorMessage"} {
			if !slices.Contains(slices.Collect(maps.Values(line)), "$context."+want) {
				t.Errorf("%s: %s is not logged", name, want)
			}
		}
		for key, value := range line {
			field, ok := strings.CutPrefix(value, "$context.")
			if !ok || strings.Contains(field, "$") {
				t.Errorf("%s: %s is %q, want one variable", name, key, value)
			}
			// The path, the query and the headers are the client's words, and
			// hold what was asked about and the signature; the address is his.
			for _, banned := range []string{"path", "identity", "authorizer", "header", "query", "customDomain"} {
				if strings.HasPrefix(field, banned) {
					t.Errorf("%s: %s logs %s", name, key, value)
				}
			}
		}
	}
}

// TestDomain: the mapping waits for the stage, which SAM makes; TestTransform
// holds that it makes one of this name.
func TestDomain(t *testing.T) {
	t.Parallel()
	got := synthesized(t)
	mapping := section(got, "Resources")["DomainMapping"].(map[string]any)
	type m = map[string]any
	want := m{
		"Type": "AWS::ApiGatewayV2::ApiMapping", "DependsOn": []any{idStage},
		"Properties": m{"ApiId": m{"Ref": idAPI}, "DomainName": m{"Ref": "Domain"}, "Stage": "$default"},
	}
	if d := cmp.Diff(want, mapping); d != "" {
		t.Errorf("mapping (-want +got):\n%s", d)
	}
	if p := properties(got, "Domain"); p["DomainName"] != "api.hostfacts.example" {
		t.Errorf("domain %v", p["DomainName"])
	}
	globals := section(section(section(got, "Globals")["Function"].(map[string]any), "Environment"), "Variables")
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
	topic := m{"Ref": "Tickets"}
	budget := properties(got, "Budget")
	if name, ok := section(budget, "Budget")["BudgetName"]; ok {
		t.Errorf("the budget has the name %v: it could not be replaced, nor be in two regions", name)
	}
	if r := section(got, "Resources")["Budget"].(m); !cmp.Equal([]any{"TicketsPolicy"}, r["DependsOn"]) {
		t.Errorf("the budget waits for %v, want the policy that lets it tell", r["DependsOn"])
	}
	if d := cmp.Diff(m{"Amount": float64(defaultBudget), "Unit": "USD"}, section(budget, "Budget")["BudgetLimit"]); d != "" {
		t.Errorf("budget:\n%s", d)
	}
	notices := budget["NotificationsWithSubscribers"].([]any)
	if len(notices) != 2 {
		t.Errorf("%d notices of the budget, want what was spent and what is in sight", len(notices))
	}
	for _, n := range notices {
		if d := cmp.Diff([]any{m{"SubscriptionType": "SNS", "Address": topic}}, n.(m)["Subscribers"]); d != "" {
			t.Errorf("budget:\n%s", d)
		}
	}
}

// TestDashboard: each operation has its graphs, each metric of ours is on some
// graph, and the runbook is one click away.
func TestDashboard(t *testing.T) {
	t.Parallel()
	board, err := json.Marshal(properties(synthesized(t), ofType(synthesized(t), "AWS::CloudWatch::Dashboard")[0])["DashboardBody"])
	if err != nil {
		t.Fatal(err)
	}
	name, err := json.Marshal(properties(synthesized(t), ofType(synthesized(t), "AWS::CloudWatch::Dashboard")[0])["DashboardName"])
	if err != nil || !strings.Contains(string(name), `{"Ref":"AWS::Region"}`) {
		t.Errorf("the dashboard's name is the same in all regions: %s, %v", name, err)
	}
	text := strings.ReplaceAll(string(board), `\`, "")
	if !strings.Contains(text, "("+catalog.Runbook+")") {
		t.Error("the dashboard does not link to the runbook")
	}
	for _, o := range catalog.All() {
		if n := strings.Count(text, `"`+service.DimensionOperation+`","`+o.Slug+`"`); n < 10 {
			t.Errorf("%d series of %s, want 10", n, o.Slug)
		}
	}
	for _, name := range writtenMetrics() {
		if !strings.Contains(text, `["`+service.Namespace(defaultStack)+`","`+name+`"`) {
			t.Errorf("%s is on no graph", name)
		}
	}
	for _, slug := range slugs() {
		if !strings.Contains(text, `"label":"`+slug+` ConcurrentExecutions"`) {
			t.Errorf("the concurrency of %s is on no graph", slug)
		}
	}
	for _, name := range []string{"Count", "4xx", "5xx", "Latency", "IntegrationLatency"} {
		if !strings.Contains(text, `["AWS/ApiGateway","`+name+`","ApiId",`) {
			t.Errorf("the gateway's %s is on no graph", name)
		}
	}
	// Revenue is counted by the catalog's prices.
	for i, o := range catalog.All() {
		if term := fmt.Sprintf("FILL(m%d, 0) * %s", i, o.Amount); !strings.Contains(text, term) {
			t.Errorf("revenue lacks %s of %s", term, o.Slug)
		}
	}
}

// TestSavedQueries: each is over the logs that it is about, and asks for what the
// lines have.
func TestSavedQueries(t *testing.T) {
	t.Parallel()
	got := synthesized(t)
	saved := ofType(got, "AWS::Logs::QueryDefinition")
	if len(saved) != len(savedQueries()) {
		t.Errorf("%d saved queries, want %d", len(saved), len(savedQueries()))
	}
	for _, q := range savedQueries() {
		p := properties(got, q.id())
		groups, _ := p["LogGroupNames"].([]any)
		want := len(slugs())
		if q.gateway {
			want = 1
		}
		if p["Name"] != defaultStack+"/"+q.name || p["QueryString"] != q.text || len(groups) != want {
			t.Errorf("%s: %v", q.name, p)
		}
		for _, g := range groups {
			ref, _ := g.(map[string]any)["Ref"].(string)
			if !slices.Contains(ofType(got, "AWS::Logs::LogGroup"), ref) || (ref == idLog) != q.gateway {
				t.Errorf("%s: log group %v", q.name, g)
			}
		}
	}
}

// TestCodeIsShipped: as the CDK CLI runs the app, in infra and with a context in
// the environment, each function has what was built of it as an asset, and there
// is nothing left for SAM to build. Nothing that was not asked for is added.
func TestCodeIsShipped(t *testing.T) {
	t.Parallel()
	root, out := t.TempDir(), t.TempDir()
	text, err := os.ReadFile(templatePath)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, templateName), text)
	for _, slug := range slugs() {
		write(t, filepath.Join(root, "functions", slug, "main.go"), nil)
		write(t, filepath.Join(root, "build", slug, "bootstrap"), append(header(elf.EM_AARCH64), slug...))
	}
	write(t, filepath.Join(root, "infra", "cdk.json"), nil)
	context, err := json.Marshal(map[string]any{"PayTo": boot.LocalPayTo, ctxNodes: nodesParameter, ctxReserve: false})
	if err != nil {
		t.Fatal(err)
	}
	text, err = synth(filepath.Join(root, "infra"), out, []string{"CDK_OUTDIR=" + out, "CDK_CONTEXT_JSON=" + string(context)})
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	keys := map[any]string{}
	for _, slug := range slugs() {
		code, _ := properties(d, logicalID(slug))["CodeUri"].(map[string]any)
		if other, twice := keys[code["Key"]]; code["Bucket"] == nil || code["Key"] == nil || twice {
			t.Errorf("%s: code %v, as %s", slug, code, other)
		}
		keys[code["Key"]] = slug
		if m := section(d, "Resources")[logicalID(slug)].(map[string]any)["Metadata"]; m != nil && m.(map[string]any)["BuildMethod"] != nil {
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
	out := t.TempDir()
	_, err := synth(".", out, []string{"CDK_OUTDIR=" + out, `CDK_CONTEXT_JSON={"assets":"none","logRetentionDays":"x"}`})
	if err == nil || !strings.Contains(err.Error(), "3 fault(s)") || !strings.Contains(err.Error(), "\nPayTo is not set") {
		t.Errorf("%v", err)
	}
}
