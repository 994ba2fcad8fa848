package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsbudgets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/jsii-runtime-go"
)

// topic is where alarms go, with the policy that lets them. It is not encrypted with the
// account's SNS key, which CloudWatch may not use; what it carries is names and
// numbers.
func (e *envelope) topic() (arn *string, policy awssns.CfnTopicPolicy) {
	topic := awssns.NewCfnTopic(e.Stack, jsii.String("Alarms"), &awssns.CfnTopicProps{
		DisplayName: jsii.String(e.settings.stack),
	})
	account := map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": awscdk.Aws_ACCOUNT_ID()}}
	policy = awssns.NewCfnTopicPolicy(e.Stack, jsii.String("AlarmsPolicy"), &awssns.CfnTopicPolicyProps{
		Topics: &[]*string{topic.Ref()},
		PolicyDocument: map[string]any{
			"Version": "2012-10-17",
			"Statement": []any{map[string]any{
				"Effect":    "Allow",
				"Principal": map[string]any{"Service": []any{"cloudwatch.amazonaws.com", "budgets.amazonaws.com"}},
				"Action":    "sns:Publish", "Resource": topic.Ref(), "Condition": account,
			}},
		},
	})
	if e.email != "" {
		awssns.NewCfnSubscription(e.Stack, jsii.String("AlarmsEmail"), &awssns.CfnSubscriptionProps{
			TopicArn: topic.Ref(), Protocol: jsii.String("email"), Endpoint: &e.email,
		})
	}
	awscdk.NewCfnOutput(e.Stack, jsii.String("AlarmTopic"), &awscdk.CfnOutputProps{
		Description: jsii.String("SNS topic of the alarms; subscribe whoever is on call"), Value: topic.Ref(),
	})
	return topic.Ref(), policy
}

// budgetAlarm tells when the account's month costs more than was meant: of the
// limit, 80 % spent or all of it in sight. A budget covers the account, because
// what a stack costs is known only where its tags are activated for billing. Its
// name is CloudFormation's: names are the account's and not a region's, and a
// budget of a fixed name cannot be replaced, which is how its notices change.
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
