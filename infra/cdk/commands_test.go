package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
)

// printedOutput returns an output as CloudFormation prints it. Only AWS knows some values in
// an output, such as the ARN of a topic, so the caller provides them. The key of a value is
// the JSON of the intrinsic function that stands for the value in the template.
func printedOutput(t *testing.T, d document, id string, values map[string]string) string {
	t.Helper()
	value := section(section(d, "Outputs"), id)["Value"]
	sub := section(document{"": value}, "")["Fn::Sub"]
	text, plain := sub.(string)
	words := map[string]any{}
	if parts, ok := sub.([]any); ok && !plain {
		text, words = parts[0].(string), parts[1].(document)
	}
	for word, of := range words {
		name := string(must(json.Marshal(of))(t))
		if values[name] == "" {
			t.Fatalf("%s: nobody says what %s is", id, name)
		}
		text = strings.ReplaceAll(text, "${"+word+"}", values[name])
	}
	text = strings.ReplaceAll(text, "${AWS::Region}", "us-east-1")
	if text == "" || strings.Contains(text, "${") {
		t.Fatalf("%s prints %q", id, text)
	}
	return text
}

// TestPrintedCommands runs the printed commands of a deployment with the AWS CLI and checks
// that each does what its description says.
func TestPrintedCommands(t *testing.T) {
	t.Parallel()
	d := exampleTemplate(t)
	emulator := deployed.Emulator(t)
	var raised map[string]any
	url := testbed.Serve(t, testbed.Relay{To: testbed.ProxyTo(t, emulator), Do: func(r *testbed.Relayed) {
		if !strings.HasSuffix(r.Request.Header.Get("X-Amz-Target"), ".RequestServiceQuotaIncrease") { // the emulator has all other actions that the commands use
			r.Pass()
			return
		}
		check(t, json.Unmarshal(r.Sent, &raised))
		_, _ = io.WriteString(r.ResponseWriter, `{"RequestedQuota":{"Status":"PENDING"}}`)
	}})
	run := func(script string) string {
		t.Helper()
		out, err := deployed.CLI(t, url, script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run(printedOutput(t, d, "RaiseConcurrency", nil))
	if want := map[string]any{"ServiceCode": "lambda", "QuotaCode": concurrencyQuota, "DesiredValue": float64(enoughAtOnce)}; fmt.Sprint(raised) != fmt.Sprint(want) {
		t.Errorf("asked for %v, want %v", raised, want)
	}
	for output, topic := range map[string]string{"SubscribeToPages": "Alarms", "SubscribeToTickets": "Tickets"} {
		arn := run("aws sns create-topic --name " + topic + " --query TopicArn --output text")
		run(printedOutput(t, d, output, map[string]string{`{"Ref":"` + topic + `"}`: arn}))
		if got := run("aws sns list-subscriptions-by-topic --topic-arn " + arn + " --query 'Subscriptions[].[Protocol,Endpoint]' --output text"); got != "email\tyou@example.com" {
			t.Errorf("%s: subscribed is %q", output, got)
		}
	}
	// Two of these public zones contain api.hostfacts.example, and the command must choose the
	// more specific one. The other two only have similar names. A private zone follows, which
	// the command must not choose.
	for _, zone := range []string{"example", "hostfacts.example", "i.hostfacts.example", "notapi.hostfacts.example"} {
		run("aws route53 create-hosted-zone --name " + zone + " --caller-reference " + zone)
	}
	run("aws route53 create-hosted-zone --name api.hostfacts.example --caller-reference private --vpc VPCRegion=us-east-1,VPCId=vpc-1 --hosted-zone-config PrivateZone=true")
	run(printedOutput(t, d, "AliasRecord", map[string]string{
		`{"Fn::GetAtt":["Domain","RegionalDomainName"]}`:   "d-abcdefghij.execute-api.us-east-1.amazonaws.com",
		`{"Fn::GetAtt":["Domain","RegionalHostedZoneId"]}`: "Z1UJRXOUMOOFQ8",
	}))
	zone := run("aws route53 list-hosted-zones --query 'HostedZones[?Name==`hostfacts.example.`].Id' --output text")
	got := run("aws route53 list-resource-record-sets --hosted-zone-id " + zone + " --output text --query 'ResourceRecordSets[?Type==`A`].[Name,AliasTarget.DNSName,AliasTarget.HostedZoneId]'")
	if want := "api.hostfacts.example.\td-abcdefghij.execute-api.us-east-1.amazonaws.com\tZ1UJRXOUMOOFQ8"; strings.ReplaceAll(got, "amazonaws.com.", "amazonaws.com") != want {
		t.Errorf("the record is %q, want %q", got, want)
	}
}
