// Package operators defines the permissions that the operators of a deployment have in AWS.
// There is a role for each kind of work. A role has only the permissions that the commands for
// this work need. The CDK app creates the roles. Tests run the commands and compare their
// requests with the roles.
package operators

import "slices"

// Place is a kind of resource on which a permission allows actions.
type Place string

// The places. The names of the tables that make restore creates begin with the name of the
// ledger's table. So the permissions of a role cover the tables of one ledger, and no other
// tables of the account.
const (
	Table      Place = "the ledger's table"
	TableIndex Place = "its index"
	Copies     Place = "its copies"
	CopyIndex  Place = "the index of its copies"
	Drills     Place = "the copies of drills"
	DrillIndex Place = "the index of the copies of drills"
	Stack      Place = "the stack"
	Alarms     Place = "its alarms"
	Topics     Place = "its topics"
	// Secrets are the secrets that the stack uses, and those whose names begin with the
	// stack's name.
	Secrets Place = "its secrets"
	// Bootstrap are the roles created by cdk bootstrap, with which the CDK CLI deploys.
	Bootstrap Place = "the roles of the CDK"
)

// The names of copies of a table begin with the name of the table and one of these suffixes.
// The copy that a drill makes has the second suffix.
const (
	CopySuffix  = "-copy"
	DrillSuffix = "-drill"
)

// Permission allows some actions on some places.
type Permission struct {
	Actions []string
	On      []Place
	// Keys are the patterns of the keys of the items that the permission covers. nil means
	// every item.
	Keys []string
}

// Role is a set of permissions for one kind of work.
type Role struct {
	Name    string
	Setting string // the setting of the CDK app that says who may assume the role
	Does    string // the commands that need the role, as a description
	May     []Permission
}

// Roles returns all roles. Refund includes the permissions of Read.
func Roles() []Role {
	return []Role{
		{
			Name:    "Read",
			Setting: "mayRead",
			Does:    "make owed, payer, books and smoke, which read the ledger",
			May:     read(),
		},
		{
			Name:    "Refund",
			Setting: "mayRefund",
			Does:    "what Read does, and make refund, answered and reconcile, which write to it",
			May:     slices.Concat(read(), write()),
		},
		{
			Name:    "Restore",
			Setting: "mayRestore",
			Does:    "make restore, which copies the ledger's table",
			May:     restore(),
		},
		{
			Name:    "Deploy",
			Setting: "mayDeploy",
			Does:    "make deploy, secret, mark-ledger and try-page, which belong to a deployment",
			May:     deploy(),
		},
	}
}

// payments is the pattern of the keys of payments.
const payments = "eip155:*"

// read returns the permissions of the commands that read the ledger.
func read() []Permission {
	return []Permission{
		{
			Actions: []string{
				"dynamodb:DescribeContinuousBackups",
				"dynamodb:DescribeTable",
				"dynamodb:DescribeTimeToLive",
				"dynamodb:Scan",
			},
			On: []Place{Table},
		},
		{
			Actions: []string{"cloudformation:DescribeStacks", "cloudformation:GetTemplate"},
			On:      []Place{Stack},
		},
		{
			Actions: []string{"dynamodb:Query"},
			On:      []Place{TableIndex},
		},
		{
			Actions: []string{"dynamodb:GetItem"},
			On:      []Place{Table},
			Keys:    []string{payments, "purchase|*"},
		},
	}
}

// write returns the permissions that the commands that write to the ledger need in addition to
// those of read.
func write() []Permission {
	return []Permission{
		{
			Actions: []string{"dynamodb:PutItem"},
			On:      []Place{Table},
			Keys:    []string{payments, "cursor|*", "payees|*", "refund|*"},
		},
		{
			Actions: []string{"dynamodb:GetItem"},
			On:      []Place{Table},
			Keys:    []string{"cursor|*", "payees|*"},
		},
	}
}

// restore returns the permissions of make restore. According to the developer guide of
// DynamoDB, RestoreTableToPointInTime requires read and write permissions for the items of the
// target table. According to the guide, the action itself must be allowed on the source table;
// according to the service authorization reference, on any table. So it is allowed on the
// source and on the target.
func restore() []Permission {
	target := []string{
		"dynamodb:BatchWriteItem",
		"dynamodb:DeleteItem",
		"dynamodb:GetItem",
		"dynamodb:PutItem",
		"dynamodb:Query",
		"dynamodb:Scan",
		"dynamodb:UpdateItem",
	}
	protect := []string{
		"dynamodb:DescribeContinuousBackups",
		"dynamodb:DescribeTable",
		"dynamodb:DescribeTimeToLive",
		"dynamodb:UpdateContinuousBackups",
		"dynamodb:UpdateTable",
		"dynamodb:UpdateTimeToLive",
	}
	return []Permission{
		{
			Actions: []string{"dynamodb:RestoreTableToPointInTime"},
			On:      []Place{Table, Copies, Drills},
		},
		{
			Actions: []string{"dynamodb:Scan"},
			On:      []Place{Table},
		},
		{
			Actions: []string{"dynamodb:Query"},
			On:      []Place{TableIndex, CopyIndex, DrillIndex},
		},
		{
			Actions: slices.Concat(target, protect),
			On:      []Place{Copies, Drills},
		},
		{
			Actions: []string{"dynamodb:DeleteTable"},
			On:      []Place{Drills},
		},
	}
}

// deploy returns the permissions for a deployment with the CDK app. The roles of the CDK have the
// other permissions that a deployment needs. GetCallerIdentity needs no permission.
func deploy() []Permission {
	return []Permission{
		{
			Actions: []string{"sts:AssumeRole"},
			On:      []Place{Bootstrap},
		},
		{
			Actions: []string{
				"cloudformation:CancelUpdateStack",
				"cloudformation:DescribeStacks",
				"cloudformation:GetTemplate",
			},
			On: []Place{Stack},
		},
		{
			Actions: []string{"dynamodb:GetItem"},
			On:      []Place{Table},
			Keys:    []string{"payees|*", "stack|*"},
		},
		{
			Actions: []string{"dynamodb:PutItem"},
			On:      []Place{Table},
			Keys:    []string{"stack|*"},
		},
		{
			Actions: []string{"cloudwatch:DescribeAlarms", "cloudwatch:SetAlarmState"},
			On:      []Place{Alarms},
		},
		{
			Actions: []string{"sns:ListSubscriptionsByTopic"},
			On:      []Place{Topics},
		},
		{
			Actions: []string{
				"secretsmanager:CreateSecret",
				"secretsmanager:GetSecretValue",
				"secretsmanager:PutSecretValue",
				"secretsmanager:UpdateSecretVersionStage",
			},
			On: []Place{Secrets},
		},
	}
}
