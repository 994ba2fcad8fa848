package main

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
)

// cloudOf returns the environment of a command that calls AWS at the given URL.
func cloudOf(at string) map[string]string {
	return map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t", "STACK_NAME": "shop",
		"AWS_ENDPOINT_URL_SNS": at, "AWS_ENDPOINT_URL_CLOUDWATCH": at,
	}
}

// TestTryPage runs try-page with an emulator of AWS that has the alarms and topics of a stack.
// The command must print who is notified, and must set off both alarms, each with a reason
// that says that it is a drill. If an alarm is missing, notifies nobody, or is set off already,
// the command must set off no alarm. It must not show the path of a subscriber's URL, which may
// contain a key.
func TestTryPage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("make verify starts an emulator of AWS")
	}
	moto := deployed.Python(t, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
	env := cloudOf(programs.StartPeer(t, moto, " Running on ").URL)
	a := testbed.Must(order{getenv: func(name string) string { return env[name] }, now: time.Now}.awsAccount())
	topics := map[string]string{}
	for _, name := range []string{"Alarms", "Tickets"} {
		var made struct {
			Arn string `xml:"CreateTopicResult>TopicArn"`
		}
		testbed.Check(a.request(t.Context(), snsService(), "CreateTopic", map[string]string{"Name": name}, &made))
		topics[name] = made.Arn
	}
	alarm := func(name, topic string) {
		testbed.Check(a.request(t.Context(), cloudWatchService(), "PutMetricAlarm", map[string]string{
			"AlarmName": "shop-" + name, "AlarmActions.member.1": topic, "ActionsEnabled": "true", "Namespace": "Hostfacts/shop", "MetricName": "Internal",
			"ComparisonOperator": "GreaterThanThreshold", "Threshold": "0", "EvaluationPeriods": "1", "Period": "300", "Statistic": "Sum",
		}, nil))
	}
	subscribe := func(topic, protocol, endpoint string) {
		testbed.Check(a.request(t.Context(), snsService(), "Subscribe", map[string]string{"TopicArn": topic, "Protocol": protocol, "Endpoint": endpoint}, nil))
	}
	reason := func(name string) string {
		var said struct {
			State  string `xml:"DescribeAlarmsResult>MetricAlarms>member>StateValue"`
			Reason string `xml:"DescribeAlarmsResult>MetricAlarms>member>StateReason"`
		}
		testbed.Check(a.request(t.Context(), cloudWatchService(), "DescribeAlarms", map[string]string{"AlarmNames.member.1": "shop-" + name}, &said))
		return said.State + " " + said.Reason
	}

	_, notes := operate(t, exitFailed, env, "try-page")
	checkContains(t, notes, "there is no alarm shop-errors in us-east-1: the CDK app makes the alarms", "there is no alarm shop-reconcile-failing",
		"Nothing was tried. When that is done: make try-page\n")
	alarm(pageAlarm, topics["Alarms"])
	alarm(ticketAlarm, topics["Tickets"])
	alarm("uncertain", topics["Alarms"])
	subscribe(topics["Alarms"], "email", "oncall@example.com")
	out, notes := operate(t, exitFailed, env, "try-page")
	checkContains(t, out, "page    email oncall@example.com is told\n")
	checkContains(t, notes, "nobody is notified of a ticket: confirm the mail from AWS, or set a recipient and deploy")
	if got := reason(pageAlarm); strings.HasPrefix(got, "ALARM") {
		t.Errorf("nobody hears of tickets, and the page was tried: %s", got)
	}
	subscribe(topics["Tickets"], "https", "https://events.example/integration/s3cr3t/enqueue")
	out, _ = operate(t, 0, env, "try-page")
	checkContains(t, out, "page    email oncall@example.com is told\n", "ticket  https https://events.example is told\n", "shop-errors is set off as a page\n",
		"shop-reconcile-failing is set off as a ticket\n", "The alarms go back to OK by themselves")
	if strings.Contains(out, "s3cr3t") {
		t.Errorf("it shows the key of a service on call:\n%s", out)
	}
	for _, name := range []string{pageAlarm, ticketAlarm} {
		if got := reason(name); !strings.HasPrefix(got, "ALARM This is a drill by "+localUser()) {
			t.Errorf("%s is %s", name, got)
		}
	}
	if got := reason("uncertain"); strings.HasPrefix(got, "ALARM") {
		t.Errorf("another alarm is %s", got)
	}
	_, notes = operate(t, exitFailed, env, "try-page")
	checkContains(t, notes, "shop-errors is in alarm already, so it cannot be tried: deal with that first")
}

// TestTryPageConfirmed checks that try-page reads the list of subscribers page by page, and
// prints those who have not confirmed. An error of AWS must be printed in AWS's words, without
// control characters. If a setting is missing, the error must name the setting.
func TestTryPageConfirmed(t *testing.T) {
	t.Parallel()
	const alarms = `<DescribeAlarmsResponse xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/"><DescribeAlarmsResult><MetricAlarms><member>` +
		`<StateValue>OK</StateValue><ActionsEnabled>true</ActionsEnabled><AlarmActions><member>arn:aws:sns:us-east-1:111122223333:t</member></AlarmActions>` +
		`</member></MetricAlarms></DescribeAlarmsResult></DescribeAlarmsResponse>`
	const list = `<ListSubscriptionsByTopicResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><ListSubscriptionsByTopicResult>%` +
		`</ListSubscriptionsByTopicResult></ListSubscriptionsByTopicResponse>`
	const waiting = `<Subscriptions><member><SubscriptionArn>PendingConfirmation</SubscriptionArn><Protocol>email</Protocol><Endpoint>a@example.com</Endpoint></member>` +
		`<member><SubscriptionArn>Deleted</SubscriptionArn><Protocol>email</Protocol><Endpoint>b@example.com</Endpoint></member></Subscriptions>`
	const told = `<Subscriptions><member><SubscriptionArn>arn:aws:sns:us-east-1:111122223333:t:1</SubscriptionArn><Protocol>sms</Protocol><Endpoint>+12025550123</Endpoint></member></Subscriptions>`
	page := func(of string) string { return strings.Replace(list, "%", of, 1) }
	type answers map[string]string // the answers of AWS, by action and page token
	for name, c := range map[string]struct {
		answers answers
		out     []string
		notes   []string
		code    int
	}{
		"nobody confirmed": {
			answers{"ListSubscriptionsByTopic": page(waiting)},
			[]string{"page    email a@example.com has not confirmed\n", "page    email b@example.com is no longer notified (Deleted)\n", "ticket  email a@example.com has not confirmed\n"},
			[]string{"nobody is notified of a page", "nobody is notified of a ticket"}, exitFailed,
		},
		"somebody on the second page": {
			answers{"ListSubscriptionsByTopic": page(waiting + "<NextToken>2</NextToken>"), "ListSubscriptionsByTopic2": page(told), "SetAlarmState": "<SetAlarmStateResponse/>"},
			[]string{"page    sms +12025550123 is told\n", "shop-errors is set off as a page\n"}, nil, 0,
		},
		"a list without an end": {
			answers{"ListSubscriptionsByTopic": page("<NextToken>2</NextToken>"), "ListSubscriptionsByTopic2": page("<NextToken>2</NextToken>")},
			nil, []string{"more subscriptions than this command reads"}, exitFailed,
		},
		"what is not XML": {answers{"ListSubscriptionsByTopic": "\x1b[31m"}, nil, []string{"read what AWS says to ListSubscriptionsByTopic"}, exitFailed},
		"not permitted": {
			answers{"ListSubscriptionsByTopic": page(told)}, nil, []string{"AWS refuses to SetAlarmState with 403: AccessDenied: you may not"}, exitFailed,
		},
	} {
		at := testbed.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			form, _ := url.ParseQuery(string(body))
			if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=k/") || r.Header.Get("X-Amz-Security-Token") != "t" {
				t.Errorf("%s: not signed: %v", name, r.Header)
			}
			action := form.Get("Action")
			said, ok := c.answers[action+form.Get("NextToken")]
			switch {
			case action == "DescribeAlarms":
				_, _ = io.WriteString(w, alarms)
			case ok:
				_, _ = io.WriteString(w, said)
			default:
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>you may not</Message></Error></ErrorResponse>`)
			}
		}))
		out, notes := operate(t, c.code, cloudOf(at), "try-page")
		checkContains(t, out, c.out...)
		checkContains(t, notes, c.notes...)
		if strings.Contains(out+notes, "\x1b") {
			t.Errorf("%s: it steers the terminal: %q%q", name, out, notes)
		}
	}
	env := cloudOf("http://127.0.0.1:1")
	for missing, says := range map[string]string{
		"STACK_NAME": "STACK_NAME is not set", "AWS_REGION": "AWS_REGION is not set", "AWS_ACCESS_KEY_ID": "aws configure export-credentials --format env", "": "ask AWS to DescribeAlarms",
	} {
		value := env[missing]
		delete(env, missing)
		_, notes := operate(t, exitFailed, env, "try-page")
		checkContains(t, notes, says)
		env[missing] = value
	}
}

// TestTriedAlarms checks the two alarms that try-page sets off. In the CDK app, one must be a
// page and the other a ticket. Both must evaluate periods of five minutes, so they end soon.
func TestTriedAlarms(t *testing.T) {
	t.Parallel()
	type query struct {
		MetricStat struct{ Period int }
	}
	var envelope struct {
		Resources map[string]struct {
			Properties struct {
				AlarmName    string
				AlarmActions []struct{ Ref string }
				Period       int
				Metrics      []query
			}
		}
	}
	testbed.Check(json.Unmarshal(testbed.Must(os.ReadFile("../../cdk/testdata/envelope.json")), &envelope))
	found := map[string]string{}
	for _, r := range envelope.Resources {
		p := r.Properties
		_, name, ok := strings.Cut(p.AlarmName, deployed.Stack+"-")
		if !ok || name != pageAlarm && name != ticketAlarm {
			continue
		}
		for _, q := range p.Metrics {
			p.Period = max(p.Period, q.MetricStat.Period)
		}
		if len(p.AlarmActions) != 1 || p.Period != 300 {
			t.Errorf("%s has the actions %v and looks at %d s", name, p.AlarmActions, p.Period)
			continue
		}
		found[name] = p.AlarmActions[0].Ref
	}
	if want := map[string]string{pageAlarm: "Alarms", ticketAlarm: "Tickets"}; !maps.Equal(found, want) {
		t.Errorf("alarms and their topics %v, want %v", found, want)
	}
}
