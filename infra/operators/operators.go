// Package operators defines which permissions the operators of a deployment have in AWS. There
// is a role for each kind of work. A role has only the permissions that the commands for this
// work need. The CDK app creates the roles. Tests run the commands as each role, and compare
// the permissions that the commands need with those of the role.
package operators

import "slices"

// Place is a kind of resource on which a permission allows actions.
type Place string

// The places. The names of the copies that "make restore" creates begin with the name of the
// ledger's table. So a role can have permissions for the tables of one ledger, and for no other
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
	// Secrets are the secrets that the stack uses, and the secrets whose names begin with the
	// stack's name.
	Secrets Place = "its secrets"
	// Bootstrap are the roles that "cdk bootstrap" has created. The CDK CLI deploys with them.
	Bootstrap Place = "the roles of the CDK"
)

// The name of a copy of a table begins with the name of the table and one of these suffixes:
// DrillSuffix for the copy that a drill makes, and CopySuffix for every other copy.
const (
	CopySuffix  = "-copy"
	DrillSuffix = "-drill"
)

// Permission allows some actions on some places.
type Permission struct {
	Actions []string
	On      []Place
	// Keys are patterns for keys of items. The permission covers only the items whose keys
	// match one of them. nil means that it covers every item.
	Keys []string
}

// Role is a set of permissions for one kind of work.
type Role struct {
	Name    string
	Setting string // the setting of the CDK app that says who may assume the role
	Does    string // the commands that need the role, and what they do, as a text
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

// write returns the permissions for writing to the ledger. A command that writes also needs
// the permissions that read returns.
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

// restore returns the permissions of "make restore". According to the developer guide of
// DynamoDB, the action RestoreTableToPointInTime must be allowed on the source table, and the
// caller must have read and write permissions for the items of the target table. The service
// authorization reference says only that the action can be allowed on a table. So the role
// allows the action on both tables.
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

// deploy returns the permissions for a deployment with the CDK app. A deployment needs more
// permissions than these. The roles of the CDK (Bootstrap) have the others. A deployment also
// calls GetCallerIdentity, which needs no permission.
func deploy() []Permission {
	return []Permission{
		{
			Actions: []string{"sts:AssumeRole"},
			On:      []Place{Bootstrap},
		},
		{
			Actions: []string{
				"cloudformation:CancelUpdateStack",
				"cloudformation:ContinueUpdateRollback",
				"cloudformation:DescribeStacks",
				"cloudformation:GetTemplate",
				"cloudformation:RollbackStack",
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
