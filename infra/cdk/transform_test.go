package main

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// alias is the name of the alias through which callers reach every function.
const alias = "live"

// TestTransform compares two templates with testdata: template.yaml and the template of the
// CDK app, both after CloudFormation's SAM transform. It compares the time limits, settings,
// roles and releases of functions, who may call them for which path, and the stage with its
// throttling. Of the functions for the catalog's operations it compares only one, because the
// others are written and released in the same way. Other tests check all functions with cdk-nag
// and cfn-lint.
func TestTransform(t *testing.T) {
	t.Parallel()
	for file, transform := range map[string]func(t *testing.T) document{
		"testdata/transformed.json":     func(t *testing.T) document { return transformTemplate(t, templatePath, payTo) },
		"testdata/transformed.cdk.json": func(t *testing.T) document { return transformTemplate(t, saveTemplate(t, exampleTemplate(t))) },
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			d, kept := transform(t), document{}
			checkReleasedAlike(t, d)
			for id, r := range section(d, "Resources") {
				if regexp.MustCompile(`^(Dns|Discovery|Health|Reconcile)Function|^Api|^CodeDeploy|^ServerlessDeployment|^Release|^New`).MatchString(id) {
					delete(properties(d, id), "Environment") // infra/sam tests the environment
					kept[id] = r
				}
			}
			joinReleaseAlarms(t, d, kept)
			paths := section(section(properties(d, idAPI), "Body"), "paths")
			for path := range paths {
				if !slices.Contains([]string{"/v1/tools/dns", "/health", "/ready", "$default"}, path) {
					delete(paths, path)
				}
			}
			text := must(json.MarshalIndent(kept, "", "  "))(t)
			golden(t, file, regexp.MustCompile(`(Version|Deployment)[0-9a-f]{10}`).ReplaceAll(text, []byte("$1")))
		})
	}
}

// TestNetworkAlone checks that the parameter Network alone selects the USDC of a known
// network. A function that is deployed with that parameter and a payee must have the terms of
// that USDC.
func TestNetworkAlone(t *testing.T) {
	t.Parallel()
	for _, n := range x402.Networks() {
		t.Run(n.Name, func(t *testing.T) {
			t.Parallel()
			given := map[string]string{"PayTo": boot.LocalPayTo, "Network": n.USDC.Network}
			d := transformTemplate(t, templatePath, "PayTo="+given["PayTo"], "Network="+given["Network"])
			variables := section(section(properties(d, sam.LogicalID(catalog.DNS().Slug)), "Environment"), "Variables")
			read := must(boot.ParseLocal(func(name string) string {
				ref, _ := variables[name].(document)
				parameter, _ := ref["Ref"].(string) // a variable whose value is no !Ref counts as empty here
				usual, _ := section(section(d, "Parameters"), parameter)["Default"].(string)
				return cmp.Or(given[parameter], usual)
			}))(t)
			want := n.USDC
			want.PayTo = boot.LocalPayTo
			if read.Terms != want {
				t.Errorf("%+v, want %+v", read.Terms, want)
			}
		})
	}
}

// joinReleaseAlarms makes the compared alarms and metric filters independent of the catalog,
// so that testdata stays the same when an operation is added. An alarm such as
// ReleaseCrashesAlarm has one metric for each function. The functions for which it has no room
// are in further alarms with numbers (see numberedAlarm). joinReleaseAlarms moves the metrics
// of the numbered alarms into the first alarm, and keeps only those of dns, discovery and
// reconcile. From the metric filters and from ReleaseFaultsAlarm, it removes what concerns
// functions other than dns (see keepDNS).
func joinReleaseAlarms(t *testing.T, d, kept document) {
	t.Helper()
	for _, id := range releaseAlarms(t) {
		if id == "ReleaseFaultsAlarm" {
			continue // the number of its metrics does not depend on the catalog
		}
		metrics := properties(d, id)["Metrics"].([]any)
		metrics = slices.DeleteFunc(metrics, func(m any) bool {
			return !slices.Contains([]any{"dns", "discovery", "reconcile"}, m.(document)["Id"])
		})
		first := numberedAlarm.ReplaceAllString(id, "Alarm")
		if first != id {
			metrics = append(properties(d, first)["Metrics"].([]any), metrics...)
			delete(kept, id)
		}
		properties(d, first)["Metrics"] = metrics
	}
	for _, id := range append(ofType(d, "AWS::Logs::MetricFilter"), "ReleaseFaultsAlarm") {
		if kept[id] != nil {
			kept[id] = keepDNS(t, kept[id])
		}
	}
}

// keepDNS removes list items from a value, and returns the value. An item stays if it names
// the function of dns, or no function at all.
func keepDNS(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case document:
		for name, part := range v {
			v[name] = keepDNS(t, part)
		}
	case []any:
		kept := []any{}
		for _, part := range v {
			text := string(must(json.Marshal(part))(t))
			if strings.Contains(text, "DnsFunction") || !regexp.MustCompile(`\wFunction`).MatchString(text) {
				kept = append(kept, keepDNS(t, part))
			}
		}
		return kept
	}
	return v
}

// numberedAlarm matches the end of the logical id of an additional alarm. An additional alarm
// watches the functions for which the first alarm of its kind has no room. The number of
// additional alarms depends on the catalog.
var numberedAlarm = regexp.MustCompile(`[0-9]+Alarm$`)

// checkReleasedAlike checks that all selling functions are released like the function of dns.
// It also removes the numbered alarms from the deployment groups.
func checkReleasedAlike(t *testing.T, d document) {
	t.Helper()
	const group = "DeploymentGroup"
	like := properties(d, sam.LogicalID(catalog.DNS().Slug)+group)
	for _, op := range catalog.All() {
		if diff := gocmp.Diff(like, properties(d, sam.LogicalID(op.Slug)+group)); diff != "" {
			t.Errorf("%s is not released as dns is (-dns +%s):\n%s", op.Slug, op.Slug, diff)
		}
	}
	for _, id := range ofType(d, "AWS::CodeDeploy::DeploymentGroup") {
		watched := properties(d, id)["AlarmConfiguration"].(document)["Fn::If"].([]any)[1].(document)
		watched["Alarms"] = slices.DeleteFunc(watched["Alarms"].([]any), func(a any) bool {
			ref, _ := a.(document)["Name"].(document)["Ref"].(string)
			return numberedAlarm.MatchString(ref)
		})
	}
}
