package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const alias = "live"

var version = regexp.MustCompile(`^(\w+Function)Version[0-9a-f]{10}$`)

// versions are the logical ids of the versions, by function.
func versions(d document) map[string]string {
	found := map[string]string{}
	for _, id := range ofType(d, "AWS::Lambda::Version") {
		if m := version.FindStringSubmatch(id); m != nil {
			found[m[1]] = id
		}
	}
	return found
}

// checkReleases: each function has a version and the alias that callers use. A new
// version of all but reconcile takes over by parts, and is rolled back when one of
// the template's alarms goes off.
func checkReleases(t *testing.T, d document) {
	t.Helper()
	published := versions(d)
	for _, slug := range slugs() {
		id := logicalID(slug)
		want := document{
			"Name": alias, "FunctionName": document{"Ref": id},
			"FunctionVersion": document{"Fn::GetAtt": []any{published[id], "Version"}},
		}
		if diff := cmp.Diff(want, properties(d, id+"Alias"+alias)); diff != "" {
			t.Errorf("%s: alias (-want +transformed):\n%s", id, diff)
		}
		group := properties(d, id+"DeploymentGroup")
		canary := len(group) > 0
		if canary == (slug == slugReconcile) {
			t.Errorf("%s: has a deployment group: %v", id, canary)
		}
		if canary {
			checkDeployment(t, id, group)
		}
	}
	role := properties(d, "CodeDeployServiceRole")
	if arn, err := json.Marshal(role["ManagedPolicyArns"]); err != nil || !strings.HasSuffix(string(arn), `:iam::aws:policy/service-role/AWSCodeDeployRoleForLambda"]`) {
		t.Errorf("CodeDeploy's role has %s", arn)
	}
}

// checkDeployment looks at how a version takes over.
func checkDeployment(t *testing.T, id string, p document) {
	t.Helper()
	rollback, _ := p["AutoRollbackConfiguration"].(document)
	if events, _ := rollback["Events"].([]any); rollback["Enabled"] != true || !slices.Contains(events, any("DEPLOYMENT_STOP_ON_ALARM")) {
		t.Errorf("%s: rollback %v", id, rollback)
	}
	config, err := json.Marshal(p["DeploymentConfigName"])
	if err != nil || !strings.Contains(string(config), "CodeDeployDefault.Lambda") || !strings.Contains(string(config), "Canary10Percent5Minutes") {
		t.Errorf("%s: deployment %s", id, config)
	}
	choice, _ := p["AlarmConfiguration"].(document)["Fn::If"].([]any)
	if len(choice) != 3 || choice[0] != "Watched" || !cmp.Equal(choice[2], any(document{})) {
		t.Fatalf("%s: alarms %v", id, p["AlarmConfiguration"])
	}
	want := document{"Enabled": true, "Alarms": []any{
		document{"Name": document{"Ref": "ErrorsAlarm"}}, document{"Name": document{"Ref": "FacilitatorFaultsAlarm"}}, document{"Name": document{"Ref": "LedgerFaultsAlarm"}},
	}}
	if d := cmp.Diff(any(want), choice[1]); d != "" {
		t.Errorf("%s: alarms (-want +transformed):\n%s", id, d)
	}
}

// TestWhatPublishes: a version is published when code or a property changes, and in
// the CDK app when a parameter does. In template.yaml the value of a parameter is no
// change, which is why make sam-build makes a new binary each time.
func TestWhatPublishes(t *testing.T) {
	t.Parallel()
	before := versions(transformed(t, templatePath, payTo))
	if len(before) != len(slugs()) {
		t.Fatalf("%d versions of %d functions", len(before), len(slugs()))
	}
	for what, c := range map[string]struct {
		path string
		also []string
		want bool
	}{
		"a property":  {changed(t, templatePath, "MemorySize: 512", "MemorySize: 1024"), []string{payTo}, true},
		"the code":    {changed(t, templatePath, "CodeUri: functions/dns", "CodeUri: {Bucket: bucket, Key: another}"), []string{payTo}, true},
		"a parameter": {templatePath, []string{payTo, "FacilitatorUrl=https://facilitator.example"}, false},
		"nothing":     {templatePath, []string{payTo}, false},
	} {
		after := versions(transformed(t, c.path, c.also...))
		if got := after["DnsFunction"] != before["DnsFunction"]; got != c.want {
			t.Errorf("%s is changed: a version is published: %v, want %v", what, got, c.want)
		}
	}
	// The CDK app has the values in the template.
	path := saved(t, synthesized(t))
	other := changed(t, path, `"https://facilitator.example"`, `"https://other.example"`)
	if versions(transformed(t, path))["DnsFunction"] == versions(transformed(t, other))["DnsFunction"] {
		t.Error("a parameter of the CDK app is changed, and no version is published")
	}
}
