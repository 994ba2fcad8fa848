package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/hostfacts/hostfacts/infra/operators"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// principal matches the ARN of a principal that may assume a role: a user or a role of an
// account, or the account itself.
const principal = `arn:aws[a-z-]*:iam::[0-9]{12}:(root|(user|role)/[A-Za-z0-9/_+=,.@-]+)`

// rolePrincipals parses the principals that may assume each role, as ARNs separated by blanks.
// It returns them by the role's name.
func (c *contextParser) rolePrincipals() map[string][]string {
	all := map[string][]string{}
	for _, r := range operators.Roles() {
		who := c.matchingText(r.Setting, `^`+principal+`(\s+`+principal+`)*$`,
			"ARNs of roles or users (or of an account's root, which lets the account decide), with blanks between them")
		if arns := strings.Fields(who); len(arns) > 0 {
			all[r.Name] = arns
		}
	}
	return all
}

// roles creates the roles of operators, except those that nobody may assume. Some of the roles
// get permissions on the alarms' topics.
func (e *envelope) roles(topics ...*string) {
	for _, r := range operators.Roles() {
		who := e.assume[r.Name]
		if len(who) == 0 {
			continue
		}
		role := e.add(r.Name+"Role", "IAM::Role", object{
			"Description": "For operators: " + r.Does,
			"AssumeRolePolicyDocument": object{"Version": "2012-10-17", "Statement": []any{object{
				"Effect":    "Allow",
				"Action":    "sts:AssumeRole",
				"Principal": object{"AWS": who},
			}}},
			"Policies": []any{object{"PolicyName": strings.ToLower(r.Name), "PolicyDocument": object{
				"Version": "2012-10-17", "Statement": e.statements(r, topics),
			}}},
		})
		e.output(r.Name+"RoleArn", "For operators: "+r.Does, awscdk.Fn_GetAtt(role.LogicalId(), jsii.String("Arn")).ToString())
	}
}

// statements returns the policy statements for a role's permissions.
func (e *envelope) statements(r operators.Role, topics []*string) (all []any) {
	for _, p := range r.May {
		var on []any
		for _, place := range p.On {
			on = append(on, e.resourceARNs(place, topics)...)
		}
		statement := object{"Effect": "Allow", "Action": p.Actions, "Resource": on}
		if p.Keys != nil { // ForAllValues allows a request without keys, but every request for items has keys
			statement["Condition"] = object{"ForAllValues:StringLike": object{"dynamodb:LeadingKeys": p.Keys}}
		}
		all = append(all, statement)
	}
	return all
}

// resourceARNs returns the ARNs of the resources that an operators.Place stands for.
func (e *envelope) resourceARNs(place operators.Place, topics []*string) []any {
	const index = "/index/" + dynamo.IndexName
	switch place {
	case operators.Table:
		return []any{e.table("")}
	case operators.TableIndex:
		return []any{e.table(index)}
	case operators.Copies:
		return []any{e.table(operators.CopySuffix + "*")}
	case operators.CopyIndex:
		return []any{e.table(operators.CopySuffix + "*" + index)}
	case operators.Drills:
		return []any{e.table(operators.DrillSuffix + "*")}
	case operators.DrillIndex:
		return []any{e.table(operators.DrillSuffix + "*" + index)}
	case operators.Stack:
		return []any{arn("cloudformation:${AWS::Region}:${AWS::AccountId}:stack/" + e.settings.stack + "/*")}
	case operators.Alarms:
		return []any{arn("cloudwatch:${AWS::Region}:${AWS::AccountId}:alarm:" + e.settings.stack + "-*")}
	case operators.Topics:
		all := make([]any, len(topics))
		for i, topic := range topics {
			all[i] = topic
		}
		return all
	case operators.Secrets:
		return e.secrets()
	case operators.Bootstrap:
		return bootstrapRoles()
	}
	panic(fmt.Sprintf("nobody says what %q is", place))
}

func arn(of string) *string {
	return awscdk.Fn_Sub(jsii.String("arn:${AWS::Partition}:"+of), nil)
}

// table returns the ARN of the ledger's table with a suffix, such as /index/open.
func (e *envelope) table(behind string) *string {
	if name := e.params["LedgerTableName"]; name != "" {
		return arn(fmt.Sprintf("dynamodb:${AWS::Region}:${AWS::AccountId}:table/%v%s", name, behind))
	}
	return awscdk.Fn_Sub(jsii.String("${Ledger.Arn}"+behind), nil)
}

// secrets returns the ARNs of the secrets that the stack uses, and a pattern for secrets whose
// names begin with the stack's name. The pattern is needed because a new secret is created
// before a deployment uses it.
func (e *envelope) secrets() []any {
	all := []any{arn("secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:" + e.settings.stack + "-*")}
	for _, name := range []string{"FacilitatorSecretArn", "FacilitatorFallbackSecretArn"} {
		if named := e.params[name]; named != "" && !slices.Contains(all, named) {
			all = append(all, named)
		}
	}
	return all
}

// bootstrapRoles returns the ARNs of the roles with which the CDK CLI deploys this stack. The
// command cdk bootstrap creates these roles.
func bootstrapRoles() (all []any) {
	qualifier := *awscdk.DefaultStackSynthesizer_DEFAULT_QUALIFIER()
	for _, role := range []string{"deploy", "file-publishing", "lookup"} {
		all = append(all, arn("iam::${AWS::AccountId}:role/cdk-"+qualifier+"-"+role+"-role-${AWS::AccountId}-${AWS::Region}"))
	}
	return all
}
