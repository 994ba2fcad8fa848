package main

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsbudgets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/jsii-runtime-go"
)

// topics are where alarms are told: those that somebody has to act on now, and those
// that wait for the next working day.
type topics struct{ page, ticket *string }

// notify makes the topics, each with whoever is told by e-mail. policy is that of
// the tickets, which the budget is told to.
func (e *envelope) notify() (to topics, policy awssns.CfnTopicPolicy) {
	to.page, _ = e.topic("Alarms", "AlarmTopic", "SNS topic of the pages: whoever is on call", e.email)
	to.ticket, policy = e.topic("Tickets", "TicketTopic", "SNS topic of the tickets and of the budget: for the next working day", e.tickets)
	return to, policy
}

// topic is an SNS topic with the policy that lets CloudWatch and Budgets publish to
// it, over TLS alone. It is not encrypted with the account's SNS key, because
// CloudWatch may not use that; its messages contain names and numbers only.
func (e *envelope) topic(id, output, description, email string) (arn *string, policy awssns.CfnTopicPolicy) {
	topic := awssns.NewCfnTopic(e.Stack, &id, &awssns.CfnTopicProps{
		DisplayName: jsii.String(e.settings.stack + " " + strings.ToLower(id)),
	})
	account := map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": awscdk.Aws_ACCOUNT_ID()}}
	policy = awssns.NewCfnTopicPolicy(e.Stack, jsii.String(id+"Policy"), &awssns.CfnTopicPolicyProps{
		Topics: &[]*string{topic.Ref()},
		PolicyDocument: map[string]any{
			"Version": "2012-10-17",
			"Statement": []any{map[string]any{
				"Effect":    "Allow",
				"Principal": map[string]any{"Service": []any{"cloudwatch.amazonaws.com", "budgets.amazonaws.com"}},
				"Action":    "sns:Publish", "Resource": topic.Ref(), "Condition": account,
			}, map[string]any{
				"Effect": "Deny", "Principal": "*", "Action": "sns:Publish", "Resource": topic.Ref(),
				"Condition": map[string]any{"Bool": map[string]any{"aws:SecureTransport": "false"}},
			}},
		},
	})
	if email != "" {
		awssns.NewCfnSubscription(e.Stack, jsii.String(id+"Email"), &awssns.CfnSubscriptionProps{
			TopicArn: topic.Ref(), Protocol: jsii.String("email"), Endpoint: &email,
		})
	}
	awscdk.NewCfnOutput(e.Stack, &output, &awscdk.CfnOutputProps{Description: &description, Value: topic.Ref()})
	return topic.Ref(), policy
}

// budgetAlarm notifies the topic when 80 % of the monthly limit is spent, or the
// forecast reaches all of it. The budget covers the account, because the cost of a
// stack is known only where its tags are activated for billing. CloudFormation
// chooses the name: names are unique in the account over all regions, and a change
// of the notices replaces the budget, which a fixed name would prevent.
func (e *envelope) budgetAlarm(topic *string) awsbudgets.CfnBudget {
	tell := []*awsbudgets.CfnBudget_SubscriberProperty{{SubscriptionType: jsii.String("SNS"), Address: topic}}
	when := func(kind string, percent float64) *awsbudgets.CfnBudget_NotificationWithSubscribersProperty {
		return &awsbudgets.CfnBudget_NotificationWithSubscribersProperty{
			Notification: &awsbudgets.CfnBudget_NotificationProperty{
				NotificationType: &kind, ComparisonOperator: jsii.String("GREATER_THAN"),
				Threshold: &percent, ThresholdType: jsii.String("PERCENTAGE"),
			},
			Subscribers: tell,
		}
	}
	return awsbudgets.NewCfnBudget(e.Stack, jsii.String("Budget"), &awsbudgets.CfnBudgetProps{
		Budget: &awsbudgets.CfnBudget_BudgetDataProperty{
			BudgetType: jsii.String("COST"), TimeUnit: jsii.String("MONTHLY"),
			BudgetLimit: &awsbudgets.CfnBudget_SpendProperty{Amount: &e.budget, Unit: jsii.String("USD")},
		},
		NotificationsWithSubscribers: []*awsbudgets.CfnBudget_NotificationWithSubscribersProperty{when("ACTUAL", 80), when("FORECASTED", 100)},
	})
}
