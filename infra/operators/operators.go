// Package operators defines what operators of a deployment may do in AWS: a role for each kind
// of work, with only the permissions that its commands need. The CDK app creates the roles.
// Tests run the commands and compare their requests with the roles.
package operators

import "slices"

// Place is a kind of resource for a permission.
type Place string

// The places. The names of tables that make restore creates begin with the ledger table's name,
// so that no role for one ledger can touch another table of the account.
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
	// Secrets are the secrets that the stack names, and those whose names begin with the stack's
	// name.
	Secrets Place = "its secrets"
	// Bootstrap are the roles created by cdk bootstrap, with which the CDK CLI deploys.
	Bootstrap Place = "the roles of the CDK"
)

// The suffixes of the name of a table's copy, and of a drill's copy.
const (
	CopySuffix  = "-copy"
	DrillSuffix = "-drill"
)

// Permission is some actions on some places.
type Permission struct {
	Actions []string
	On      []Place
	// Keys are the forms of the item keys that it covers; nil means every item.
	Keys []string
}

// Role is a set of permissions for one kind of work.
type Role struct {
	Name    string
	Setting string // of the CDK app: who may assume it
	Does    string
	May     []Permission
}

// Roles returns all roles. Each of the first three includes the permissions of the one before.
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

// payments are the keys of payments.
const payments = "eip155:*"

// read has the permissions of what reads the ledger.
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

// write has the permissions of what writes to the ledger, beside those to read it.
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

// restore has the permissions of make restore. What AWS asks for on the target of
// RestoreTableToPointInTime is read and write permissions on its items: the developer guide
// says so. It says "the source table" of the action itself, and the service's reference any
// table, so that it is granted on both.
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

// deploy has the permissions of a deployment by the CDK app: the roles of the CDK have the
// rest. GetCallerIdentity needs no permission.
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
