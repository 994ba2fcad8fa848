package main

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// TestEnvelope: the synthesized template is template.yaml, of which it restates nothing,
// with what the envelope is there to change and to add. What else it adds has its
// own tests: alarms, and the dashboard.
func TestEnvelope(t *testing.T) {
	t.Parallel()
	s := must(readSettings("..", from(deployed.Context())))(t)
	want, got := written(t, s.params), synthesized(t)
	type m = document
	ref := func(id string) m { return m{"Ref": id} }
	all, add := section(want, "Resources"), func(id, kind string, properties m) m {
		r := m{"Type": "AWS::" + kind, "Properties": properties}
		section(want, "Resources")[id] = r
		return r
	}
	for _, id := range []string{idLog, idFunctionsLog} {
		properties(want, id)["RetentionInDays"] = float64(defaultRetention)
	}
	properties(want, sam.LogicalID(sam.Reconcile))["ReservedConcurrentExecutions"] = 1.0
	for id, email := range map[string]string{"Alarms": "ops@hostfacts.example", "Tickets": "tickets@hostfacts.example"} {
		add(id, "SNS::Topic", m{"DisplayName": defaultStack + " " + strings.ToLower(id)})
		add(id+"Email", "SNS::Subscription", m{"Protocol": "email", "Endpoint": email, "TopicArn": ref(id)})
		add(id+"Policy", "SNS::TopicPolicy", m{"Topics": []any{ref(id)}, "PolicyDocument": m{"Version": "2012-10-17", "Statement": []any{m{
			"Effect": "Allow", "Action": "sns:Publish", "Resource": ref(id),
			"Principal": m{"Service": []any{"cloudwatch.amazonaws.com", "budgets.amazonaws.com"}},
			"Condition": m{"StringEquals": m{"aws:SourceAccount": ref("AWS::AccountId")}},
		}, m{
			"Effect": "Deny", "Action": "sns:Publish", "Resource": ref(id), "Principal": "*", "Condition": m{"Bool": m{"aws:SecureTransport": "false"}},
		}}}})
	}
	// A budget with a name could not be replaced, nor be in two regions. It waits for
	// the policy that lets it tell.
	notice := func(kind string, percent float64) m {
		return m{
			"Notification": m{"NotificationType": kind, "ComparisonOperator": "GREATER_THAN", "Threshold": percent, "ThresholdType": "PERCENTAGE"},
			"Subscribers":  []any{m{"SubscriptionType": "SNS", "Address": ref("Tickets")}},
		}
	}
	add("Budget", "Budgets::Budget", m{
		"Budget":                       m{"BudgetType": "COST", "TimeUnit": "MONTHLY", "BudgetLimit": m{"Amount": float64(defaultBudget), "Unit": "USD"}},
		"NotificationsWithSubscribers": []any{notice("ACTUAL", 80), notice("FORECASTED", 100)},
	})["DependsOn"] = []any{"TicketsPolicy"}
	add("Domain", "ApiGatewayV2::DomainName", m{"DomainName": "api.hostfacts.example", "DomainNameConfigurations": []any{
		m{"CertificateArn": deployed.Context()[ctxCertificate], "EndpointType": "REGIONAL", "SecurityPolicy": "TLS_1_2"},
	}})
	// It waits for the stage, which SAM makes, and TestTransform finds.
	add("DomainMapping", "ApiGatewayV2::ApiMapping", m{"ApiId": ref(idAPI), "DomainName": ref("Domain"), "Stage": "$default"})["DependsOn"] = []any{idStage}
	for _, q := range savedQueries() {
		groups := []any{ref(idFunctionsLog)}
		if q.gateway {
			groups = []any{ref(idLog)}
		}
		add(q.id(), "Logs::QueryDefinition", m{"Name": defaultStack + "/" + q.name, "QueryString": q.text, "LogGroupNames": groups})
	}
	for id, r := range section(got, "Resources") {
		if kind := r.(m)["Type"]; kind == "AWS::CloudWatch::Dashboard" || kind == "AWS::CloudWatch::Alarm" && all[id] == nil {
			all[id] = r
		}
	}
	// What is secret is asked for at deployment.
	for name, p := range template(t).Parameters {
		if _, stays := section(got, "Parameters")[name]; stays != p.NoEcho {
			t.Errorf("parameter %s: secret %v, asked for %v", name, p.NoEcho, stays)
		}
	}
	delete(section(got, "Rules"), "CheckBootstrapVersion") // the CDK's own
	outputs := section(got, "Outputs")
	maps.DeleteFunc(outputs, func(id string, _ any) bool { return section(want, "Outputs")[id] == nil })
	for _, part := range []string{"Resources", "Conditions", "Globals", "Rules", "Outputs"} {
		if d := cmp.Diff(want[part], any(section(got, part))); d != "" {
			t.Errorf("%s (-template.yaml and its envelope +synthesized):\n%s", part, d)
		}
	}
}

// TestDashboard: each operation has its graphs, each series that is kept, which costs,
// is on some graph or in an alarm, and no other one is; and the runbook is one click
// away.
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
	alarmed := map[string]bool{}
	for _, a := range readAlarms(t) {
		for _, q := range a.Queries {
			alarmed[q.Metric.Name] = true
		}
	}
	for _, name := range writtenMetrics() {
		of := regexp.QuoteMeta(`["` + service.Namespace(defaultStack) + `","` + name + `",`)
		seen := map[bool]bool{}
		for _, m := range regexp.MustCompile(of+`("operation")?`).FindAllStringSubmatch(text, -1) {
			seen[m[1] != ""] = true
		}
		total, operation := service.KeptBy(name)
		if operation != seen[true] || total && !seen[false] && !alarmed[name] || seen[false] && !total && !strings.Contains(text, name+`","transport"`) {
			t.Errorf("%s: kept in all %v, by operation %v; seen %v", name, total, operation, seen)
		}
	}
	for _, slug := range functionSlugs() {
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

// TestCodeIsShipped: as the CDK CLI runs the app, in infra and with a context in
// the environment, each function has what was built of it as an asset, and there
// is nothing left for SAM to build. Nothing that was not asked for is added.
func TestCodeIsShipped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	text := must(os.ReadFile(templatePath))(t)
	write(t, filepath.Join(root, templateName), text)
	for _, slug := range functionSlugs() {
		write(t, filepath.Join(root, "functions", slug, "main.go"), nil)
		write(t, filepath.Join(root, "build", slug, "bootstrap"), append(header(elf.EM_AARCH64), slug...))
	}
	write(t, filepath.Join(root, "infra", "cdk.json"), nil)
	text = must(synth(t, filepath.Join(root, "infra"), map[string]any{"PayTo": boot.LocalPayTo, "FacilitatorUrl": facilitatorURL, ctxNodes: nodesParameter, ctxReserve: false}))(t)
	var d document
	check(t, json.Unmarshal(text, &d))
	keys := map[any]string{}
	for _, slug := range functionSlugs() {
		code, _ := properties(d, sam.LogicalID(slug))["CodeUri"].(map[string]any)
		if other, twice := keys[code["Key"]]; code["Bucket"] == nil || code["Key"] == nil || twice {
			t.Errorf("%s: code %v, as %s", slug, code, other)
		}
		keys[code["Key"]] = slug
		if m := section(section(section(d, "Resources"), sam.LogicalID(slug)), "Metadata"); m["BuildMethod"] != nil {
			t.Errorf("%s: SAM would build it again: %v", slug, m)
		}
	}
	if n, ok := properties(d, sam.LogicalID(sam.Reconcile))["ReservedConcurrentExecutions"]; ok {
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
	if err == nil || !strings.Contains(err.Error(), "4 fault(s)") || !strings.Contains(err.Error(), "\nPayTo is not set") {
		t.Errorf("%v", err)
	}
}
