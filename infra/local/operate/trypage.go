package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// These constants name the two alarms that try-page sets off. One alarm sends a page, and the
// other sends a ticket. The name of each alarm is the name of the stack, a dash and the
// constant. Both alarms evaluate periods of five minutes, so they soon return to their real
// state. Neither alarm rolls a release back.
const (
	pageAlarm   = "errors"
	ticketAlarm = "reconcile-failing"
)

// cloudWatchService returns CloudWatch, the service that has the alarms.
func cloudWatchService() awsService {
	return awsService{
		name:     "monitoring",
		version:  "2010-08-01",
		endpoint: "AWS_ENDPOINT_URL_CLOUDWATCH",
	}
}

func snsService() awsService {
	return awsService{name: "sns", version: "2010-03-31", endpoint: "AWS_ENDPOINT_URL_SNS"}
}

// tryPage prints who is notified of the alarms of STACK_NAME, and sends one page and one ticket,
// each marked as a drill. If nobody is notified, it fails and sends nothing.
func tryPage(ctx context.Context, o order) error {
	stack := o.getenv("STACK_NAME")
	if stack == "" {
		return errors.New("STACK_NAME is not set: it names the stack whose alarms are tried")
	}
	a, err := o.awsAccount()
	if err != nil {
		return err
	}
	drills := []*alarmDrill{
		{alarm: stack + "-" + pageAlarm, what: "page"},
		{alarm: stack + "-" + ticketAlarm, what: "ticket"},
	}
	var faults []error
	for _, d := range drills {
		if err := d.prepare(ctx, a, o); err != nil {
			faults = append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w\nNothing was tried. When that is done: %s", err, o.invocation.Command("try-page"))
	}
	for _, d := range drills {
		reason := "This is a drill by " + localUser() + " (make try-page): nothing is broken."
		err := a.request(ctx, cloudWatchService(), "SetAlarmState", map[string]string{
			"AlarmName":   d.alarm,
			"StateValue":  "ALARM",
			"StateReason": reason,
		}, nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.out, "%s is set off as a %s\n", d.alarm, d.what)
	}
	fmt.Fprintf(o.out, "Within a minute every one of them must have an ALARM that says \"This is a drill by %s\".\n", localUser())
	fmt.Fprintln(o.out, "The alarms go back to OK by themselves within minutes, and no message says so.")
	return nil
}

// alarmDrill is an alarm to set off on purpose.
type alarmDrill struct {
	alarm string
	what  string // what the alarm sends: "page" or "ticket"
}

// prepare prints who is notified of the alarm. If nobody would be notified, prepare returns an
// error that says why.
func (d *alarmDrill) prepare(ctx context.Context, a awsAccount, o order) error {
	var said struct {
		Alarms []struct {
			State   string   `xml:"StateValue"`
			Actions []string `xml:"AlarmActions>member"`
			Enabled bool     `xml:"ActionsEnabled"`
		} `xml:"DescribeAlarmsResult>MetricAlarms>member"`
	}
	if err := a.request(ctx, cloudWatchService(), "DescribeAlarms", map[string]string{"AlarmNames.member.1": d.alarm}, &said); err != nil {
		return err
	}
	switch {
	case len(said.Alarms) != 1:
		return fmt.Errorf("there is no alarm %s in %s: the CDK app makes the alarms, and template.yaml alone has none that tell anybody", d.alarm, a.Region)
	case said.Alarms[0].State == "ALARM":
		return fmt.Errorf("%s is in alarm already, so it cannot be tried: deal with that first", d.alarm)
	case !said.Alarms[0].Enabled:
		return fmt.Errorf("the actions of %s are turned off: aws cloudwatch enable-alarm-actions --alarm-names %[1]s", d.alarm)
	}
	confirmed := 0
	for _, topic := range said.Alarms[0].Actions {
		n, err := a.printSubscribers(ctx, o, topic, d.what)
		if err != nil {
			return err
		}
		confirmed += n
	}
	if confirmed == 0 {
		return fmt.Errorf("nobody is notified of a %s: confirm the mail from AWS, or set a recipient and deploy", d.what)
	}
	return nil
}

// pendingARN is what AWS returns in place of the ARN of a subscription that is not confirmed.
const pendingARN = "PendingConfirmation"

// printSubscribers prints the subscribers of a topic. It returns the number of confirmed
// subscribers.
func (a awsAccount) printSubscribers(ctx context.Context, o order, topic, what string) (confirmed int, err error) {
	const mostPages = 100 // each page has up to a hundred subscriptions
	parameters := map[string]string{"TopicArn": topic}
	for range mostPages {
		var said struct {
			Listeners []struct {
				Arn      string `xml:"SubscriptionArn"`
				Protocol string
				Endpoint string
			} `xml:"ListSubscriptionsByTopicResult>Subscriptions>member"`
			Next string `xml:"ListSubscriptionsByTopicResult>NextToken"`
		}
		if err := a.request(ctx, snsService(), "ListSubscriptionsByTopic", parameters, &said); err != nil {
			return confirmed, err
		}
		for _, l := range said.Listeners {
			state := "is told"
			switch {
			case l.Arn == pendingARN:
				state = "has not confirmed"
			case !strings.HasPrefix(l.Arn, "arn:"):
				state = "is no longer notified (" + cellText(l.Arn) + ")"
			default:
				confirmed++
			}
			fmt.Fprintf(o.out, "%-6s  %s %s %s\n", what, cellText(l.Protocol), cellText(withoutPath(l.Endpoint)), state)
		}
		if said.Next == "" {
			return confirmed, nil
		}
		parameters["NextToken"] = said.Next
	}
	return confirmed, fmt.Errorf("topic %s has more subscriptions than this command reads", cellText(topic))
}

// withoutPath returns an endpoint without its path and query, which may contain a key.
func withoutPath(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return endpoint
	}
	return u.Scheme + "://" + u.Host
}
