package main

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

// Keys of the CDK context for the recipients of alarms.
const (
	ctxEmail   = "alarmEmail"
	ctxTickets = "ticketEmail"
	ctxPhone   = "alarmPhone"
	ctxURL     = "alarmUrl"
	ctxSlack   = "slackChannel"
	ctxTeams   = "teamsChannel"
)

// nobody is the value of alarmEmail or ticketEmail if nobody is to be notified by e-mail.
const nobody = "none"

// listeners are the recipients of alarms. An empty field means no such recipient.
type listeners struct {
	pageEmail, ticketEmail string
	phone, url             string // both get pages, but no tickets
	slack, teams           []string
}

// uuid matches the ids of teams in Microsoft Teams and of their tenants.
const uuid = `[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`

// listeners parses the recipients of alarms. If nobody is to be notified, the context must say
// so explicitly.
func (c *contextParser) listeners() listeners {
	const email = `^(none|[^@\s]+@[^@\s]+)$`
	l := listeners{
		pageEmail:   c.matchingText(ctxEmail, email, "an e-mail address, or none"),
		ticketEmail: c.matchingText(ctxTickets, email, "an e-mail address, or none"),
		phone:       c.matchingText(ctxPhone, `^\+[1-9][0-9]{6,14}$`, "a telephone number such as +4915112345678"),
		url:         c.matchingText(ctxURL, `^https://[^\s/]+/\S*$`, "an https URL that takes messages of SNS"),
	}
	slack := c.matchingText(ctxSlack, `^[A-Z0-9]+/[A-Z0-9]+$`, "the ids of a Slack workspace and of a channel, as T0123ABCD/C0123ABCD")
	teams := c.matchingText(ctxTeams, `^`+uuid+`/`+uuid+`/[A-Za-z0-9_=+.,-]*%3[aA][A-Za-z0-9_=+.,-]*%40[A-Za-z0-9_=+.,-]*$`,
		"the ids of a tenant of Microsoft, of a team and of a channel, separated by slashes, the last as it is in the channel's link")
	if slack != "" {
		l.slack = strings.Split(slack, "/")
	}
	if teams != "" {
		l.teams = strings.Split(teams, "/")
	}
	if l.ticketEmail == "" {
		l.ticketEmail = l.pageEmail
	}
	const give = "give an address, or none. A chat hears of both as well (" + ctxSlack + ", " + ctxTeams + ")"
	chat := slack + teams
	if l.pageEmail+l.phone+l.url+chat == "" {
		c.fault(ctxEmail, "is not set, so that nobody would hear of a page: %s, and %s and %s of pages", give, ctxPhone, ctxURL)
	} else if l.ticketEmail+chat == "" {
		c.fault(ctxTickets, "is not set, so that nobody would hear of a ticket: %s", give)
	}
	if l.pageEmail == nobody {
		l.pageEmail = ""
	}
	if l.ticketEmail == nobody {
		l.ticketEmail = ""
	}
	return l
}

// topics creates the topics of pages and of tickets and subscribes the recipients. It also
// returns the policy of the topic of tickets. That policy must be created before the budget,
// because without the policy the budget cannot notify the topic.
func (e *envelope) topics() (page, ticket *string, policy awscdk.CfnResource) {
	page, _ = e.topic("Alarms", "AlarmTopic", "SNS topic of the pages, for the person on call")
	ticket, policy = e.topic("Tickets", "TicketTopic", "SNS topic of the tickets and of the budget: for the next working day")
	e.subscribe("AlarmsEmail", page, "email", e.pageEmail)
	e.subscribe("AlarmsPhone", page, "sms", e.phone)
	e.subscribe("AlarmsUrl", page, "https", e.url)
	e.subscribe("TicketsEmail", ticket, "email", e.ticketEmail)
	both := []any{page, ticket}
	if len(e.slack) > 0 {
		e.chat("Slack", "Chatbot::SlackChannelConfiguration", both, object{
			"SlackWorkspaceId": e.slack[0], "SlackChannelId": e.slack[1],
		})
	}
	if len(e.teams) > 0 {
		e.chat("Teams", "Chatbot::MicrosoftTeamsChannelConfiguration", both, object{
			"TeamsTenantId":  e.teams[0],
			"TeamId":         e.teams[1],
			"TeamsChannelId": e.teams[2],
		})
	}
	return page, ticket, policy
}

// topic creates an SNS topic with a policy that lets CloudWatch and Budgets publish to it,
// over TLS only. The topic is not encrypted with the account's SNS key, because CloudWatch may
// not use that key. The topic's messages contain only names and numbers.
func (e *envelope) topic(id, output, description string) (arn *string, policy awscdk.CfnResource) {
	arn = e.add(id, "SNS::Topic", object{"DisplayName": e.settings.stack + " " + strings.ToLower(id)}).Ref()
	policy = e.add(id+"Policy", "SNS::TopicPolicy", object{"Topics": []any{arn}, "PolicyDocument": object{
		"Version": "2012-10-17", "Statement": []any{object{
			"Effect":    "Allow",
			"Action":    "sns:Publish",
			"Resource":  arn,
			"Principal": object{"Service": []any{"cloudwatch.amazonaws.com", "budgets.amazonaws.com"}},
			"Condition": object{"StringEquals": object{"aws:SourceAccount": awscdk.Aws_ACCOUNT_ID()}},
		}, object{
			"Effect":    "Deny",
			"Action":    "sns:Publish",
			"Resource":  arn,
			"Principal": "*",
			"Condition": object{"Bool": object{"aws:SecureTransport": "false"}},
		}},
	}})
	e.output(output, description, arn)
	return arn, policy
}

// subscribe subscribes an endpoint, if there is one, to a topic.
func (e *envelope) subscribe(id string, topic *string, protocol, endpoint string) {
	if endpoint != "" {
		e.add(id, "SNS::Subscription", object{
			"TopicArn": topic,
			"Protocol": protocol,
			"Endpoint": endpoint,
		})
	}
}

// chat forwards the messages of topics to a chat channel. Nobody in the channel can change
// anything in the account: commands from the channel run under a role without permissions, and
// the guardrail denies everything. The default guardrail would be AdministratorAccess.
func (e *envelope) chat(id, kind string, topics []any, channel object) {
	role := e.add(id+"Role", "IAM::Role", object{"AssumeRolePolicyDocument": object{
		"Version": "2012-10-17", "Statement": []any{object{
			"Effect":    "Allow",
			"Action":    "sts:AssumeRole",
			"Principal": object{"Service": "chatbot.amazonaws.com"},
		}},
	}})
	channel["ConfigurationName"] = e.settings.stack + "-" + strings.ToLower(id)
	channel["IamRoleArn"] = role.GetAtt(jsii.String("Arn"), awscdk.ResolutionTypeHint_STRING)
	channel["GuardrailPolicies"] = []any{"arn:aws:iam::aws:policy/AWSDenyAll"}
	channel["SnsTopicArns"] = topics
	e.add(id, kind, channel)
}
