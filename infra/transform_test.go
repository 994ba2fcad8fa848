package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
)

// alias is what callers use.
const alias = "live"

// TestTransform holds both templates, as CloudFormation sees them after the
// transform, to what the service needs. What cdk-nag and cfn-lint say of them has its
// own tests.
func TestTransform(t *testing.T) {
	t.Parallel()
	for name, transform := range map[string]func(t *testing.T) document{
		"template.yaml": func(t *testing.T) document { return transformed(t, templatePath, payTo) },
		"CDK":           func(t *testing.T) document { return transformed(t, saved(t, synthesized(t))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := transform(t)
			for id, want := range facts(t, d) {
				delete(section(properties(d, id), "LoggingConfig"), "LogGroup") // TestEnvelope is about it
				got := document{}
				for property := range want {
					got[property] = properties(d, id)[property]
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +transformed):\n%s", id, diff)
				}
			}
			want, got := calls(d)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("who calls whom for what (-want +transformed):\n%s", diff)
			}
		})
	}
}

// facts are properties by logical id: how each function runs, for how long, and that
// only Lambda may have its role; how it is released; and the stage that the CDK app's
// domain waits for, with its throttling.
func facts(t *testing.T, d document) map[string]document {
	t.Helper()
	published := versions(d)
	all := map[string]document{
		idStage: {
			"StageName": "$default", "AutoDeploy": true,
			"DefaultRouteSettings": document{"ThrottlingRateLimit": 1000.0, "ThrottlingBurstLimit": 2000.0},
			"RouteSettings":        document{"$default": document{"ThrottlingRateLimit": 100.0, "ThrottlingBurstLimit": 200.0}},
		},
		"ReconcileFunctionEventInvokeConfig": {"MaximumRetryAttempts": 0.0, "MaximumEventAgeInSeconds": 60.0},
		"ReconcileFunctionSchedule":          {"ScheduleExpression": "rate(5 minutes)"},
	}
	var watched []any
	for _, id := range releaseAlarms(t) {
		all[id] = watching(t, id, published)
		watched = append(watched, document{"Name": document{"Ref": id}})
	}
	for _, slug := range functionSlugs() {
		id, timeout, memory := sam.LogicalID(slug), 29.0, 512.0
		// A new version takes over by parts, and is rolled back when one of the
		// template's alarms goes off.
		group := document{
			"DeploymentConfigName":      document{"Fn::If": []any{"ChangesTerms", configuration("AllAtOnce"), configuration("Canary10Percent10Minutes")}},
			"AutoRollbackConfiguration": document{"Enabled": true, "Events": []any{"DEPLOYMENT_FAILURE", "DEPLOYMENT_STOP_ON_ALARM", "DEPLOYMENT_STOP_ON_REQUEST"}},
			"AlarmConfiguration":        document{"Fn::If": []any{"Watched", document{"Enabled": true, "Alarms": watched}, document{}}},
		}
		if slug == sam.Reconcile {
			timeout, memory, group = 240, 256, document{"DeploymentConfigName": nil}
		}
		all[id] = document{
			"Runtime": "provided.al2023", "Handler": "bootstrap", "Architectures": []any{"arm64"}, "Timeout": timeout, "MemorySize": memory,
			"Role": document{"Fn::GetAtt": []any{id + "Role", "Arn"}}, "FunctionName": nil,
			"LoggingConfig": document{"LogFormat": "JSON", "ApplicationLogLevel": "DEBUG"},
		}
		all[id+"Role"] = document{"AssumeRolePolicyDocument": document{"Version": "2012-10-17", "Statement": []any{document{
			"Action": []any{"sts:AssumeRole"}, "Effect": "Allow", "Principal": document{"Service": []any{"lambda.amazonaws.com"}},
		}}}}
		all[id+"DeploymentGroup"] = group
		all[id+"Alias"+alias] = document{
			"Name": alias, "FunctionName": document{"Ref": id}, "FunctionVersion": document{"Fn::GetAtt": []any{published[id], "Version"}},
		}
	}
	return all
}

// configuration is CodeDeploy's own of a name.
func configuration(name string) document {
	return document{"Fn::Sub": []any{"CodeDeployDefault.Lambda${ConfigName}", document{"ConfigName": name}}}
}

// watching are the metrics of an alarm of the template, of the versions that the
// transform makes.
func watching(t *testing.T, id string, published map[string]string) (metrics document) {
	t.Helper()
	text := string(must(json.Marshal(document{"Metrics": properties(deployed.Template(t), id)["Metrics"]}))(t))
	for function, version := range published {
		text = strings.ReplaceAll(text, `["`+function+`","Version.Version"]`, `["`+version+`","Version"]`)
	}
	check(t, json.Unmarshal([]byte(text), &metrics))
	return metrics
}

// calls are who calls whose alias for what: the gateway each function for each of its
// paths, by any method and payload format 2.0, and may do so; the schedule the one that
// is its own, and nobody anything else.
func calls(d document) (want, got map[string]int) {
	const api = "arn:${AWS::Partition}:execute-api:${AWS::Region}:${AWS::AccountId}:${__ApiId__}/${__Stage__}/*"
	want, got = map[string]int{}, map[string]int{}
	for slug, routes := range deployed.Routes() {
		for _, route := range routes {
			path := strings.TrimPrefix(route, "ANY ")
			want["aws_proxy 2.0 "+sam.LogicalID(slug)+"Aliaslive for "+path+" of 1"]++
			path = strings.TrimPrefix(path, "$default") // SAM: any path of the API
			want["apigateway.amazonaws.com lambda:InvokeFunction "+sam.LogicalID(slug)+"Aliaslive for map[Fn::Sub:["+api+path+" map[__ApiId__:map[Ref:Api] __Stage__:*]]]"]++
		}
	}
	want["events.amazonaws.com lambda:InvokeFunction ReconcileFunctionAliaslive for map[Fn::GetAtt:[ReconcileFunctionSchedule Arn]]"]++
	for _, id := range ofType(d, "AWS::Lambda::Permission") {
		p := properties(d, id)
		got[fmt.Sprintf("%v %v %v for %v", p["Principal"], p["Action"], section(p, "FunctionName")["Ref"], p["SourceArn"])]++
	}
	target := regexp.MustCompile(`functions/\$\{(\w*)\}/invocations`)
	for _, api := range append(ofType(d, "AWS::ApiGatewayV2::Api"), ofType(d, "AWS::ApiGatewayV2::Route")...) {
		for path, methods := range section(section(properties(d, api), "Body"), "paths") {
			integration := section(section(methods.(document), "x-amazon-apigateway-any-method"), "x-amazon-apigateway-integration")
			uri := target.FindStringSubmatch(fmt.Sprint(integration["uri"], "functions/${}/invocations"))
			got[fmt.Sprint(integration["type"], " ", integration["payloadFormatVersion"], " ", uri[1], " for ", path, " of ", len(methods.(document)))]++
		}
	}
	return want, got
}
