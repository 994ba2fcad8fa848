package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/smithy-go"

	"github.com/hostfacts/hostfacts/infra/deploy/stackfile"
	"github.com/hostfacts/hostfacts/infra/sam"
)

// The outputs of a stack that this program uses. The last two name the commit that runs and the
// commit that ran before. Only "make deploy" and "make rollback" write these two outputs. A
// deployment by hand removes them, so they never name a wrong commit.
const (
	outputOrigin = "ApiUrl"
	outputLedger = "LedgerTable"
	outputCommit = "Commit"
	outputFormer = "FormerCommit"
)

// stackState is the current state of a stack.
type stackState struct {
	exists    bool
	updatedAt time.Time
	// parameters are the stack's values for the template's parameters, by name. Hidden
	// parameters (NoEcho) are left out.
	parameters map[string]string
	outputs    map[string]string
}

// awsConfig returns the configuration for calls to AWS, with the credentials that the SAM CLI
// uses.
func awsConfig(ctx context.Context, f stackfile.File) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{config.WithRegion(f.Region)}
	if f.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(f.Profile))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return c, fmt.Errorf("the configuration of AWS: %w", err)
	}
	return c, nil
}

// describe returns the current state of a stack from AWS.
func describe(ctx context.Context, c aws.Config, f stackfile.File, t *sam.Template) (stackState, error) {
	api := cloudformation.NewFromConfig(c)
	found, err := api.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &f.Stack})
	if doesNotExist(err) {
		return stackState{}, nil
	}
	if err != nil {
		return stackState{}, fmt.Errorf("ask AWS about the stack %s: %w", f.Stack, err)
	}
	if len(found.Stacks) != 1 {
		return stackState{}, fmt.Errorf("AWS describes %d stacks named %s", len(found.Stacks), f.Stack)
	}
	stack := found.Stacks[0]
	if stack.StackStatus == types.StackStatusReviewInProgress { // a change set was created but never executed
		return stackState{}, nil
	}
	if err := checkDeployable(f.Stack, stack); err != nil {
		return stackState{}, err
	}
	r := stackState{exists: true, parameters: map[string]string{}, outputs: map[string]string{}}
	r.updatedAt = aws.ToTime(stack.CreationTime)
	if stack.LastUpdatedTime != nil {
		r.updatedAt = *stack.LastUpdatedTime
	}
	for _, o := range stack.Outputs {
		r.outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
	}
	for _, p := range stack.Parameters {
		r.parameters[aws.ToString(p.ParameterKey)] = aws.ToString(p.ParameterValue)
	}
	if err := r.addWrittenConstants(ctx, api, f, t); err != nil {
		return stackState{}, err
	}
	for name, p := range t.Parameters {
		if p.NoEcho { // AWS returns only asterisks for the value of such a parameter
			delete(r.parameters, name)
		}
	}
	return r, nil
}

// addWrittenConstants adds to r.parameters the values that the CDK app has written into the
// stack's template as constants. CloudFormation does not list these values among the
// parameters of the stack.
func (r *stackState) addWrittenConstants(ctx context.Context, api *cloudformation.Client, f stackfile.File, t *sam.Template) error {
	lacks := func(name string) bool {
		_, has := r.parameters[name]
		return !has && !t.Parameters[name].NoEcho
	}
	if !slices.ContainsFunc(names(t.Parameters), lacks) {
		return nil
	}
	out, err := api.GetTemplate(ctx, &cloudformation.GetTemplateInput{StackName: &f.Stack, TemplateStage: types.TemplateStageOriginal})
	if err != nil {
		return fmt.Errorf("ask AWS for the template of the stack %s: %w", f.Stack, err)
	}
	constants, err := valuesIn(t.Text, []byte(aws.ToString(out.TemplateBody)))
	if err != nil {
		return fmt.Errorf("the template of the stack %s: %w", f.Stack, err)
	}
	for name, value := range constants {
		if lacks(name) {
			r.parameters[name] = value
		}
	}
	return nil
}

// doesNotExist reports whether an error of CloudFormation says that a stack does not exist.
func doesNotExist(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "does not exist")
}

// checkDeployable returns an error if nothing can be deployed to the stack in its present
// state. The error says how to end that state. It has a command only if AWS accepts the command
// in that state, and the role Deploy may send it (package operators).
func checkDeployable(name string, s types.Stack) error {
	status := string(s.StackStatus)
	command := func(operation string) string {
		return fmt.Sprintf("\n  aws cloudformation %s --stack-name %s --region %s", operation, name, regionOf(aws.ToString(s.StackId)))
	}
	switch {
	case s.StackStatus == types.StackStatusUpdateInProgress:
		return fmt.Errorf("the stack %s is being changed (%s): wait until that ends, or cancel it with%s", name, status, command("cancel-update-stack"))
	case strings.HasSuffix(status, "_IN_PROGRESS"):
		return fmt.Errorf("the stack %s is being changed (%s): wait until that ends", name, status)
	case s.StackStatus == types.StackStatusRollbackComplete, s.StackStatus == types.StackStatusRollbackFailed, s.StackStatus == types.StackStatusCreateFailed:
		return fmt.Errorf("the stack %s was never fully created (%s): delete it, and deploy again", name, status)
	case s.StackStatus == types.StackStatusDeleteFailed:
		return fmt.Errorf("the stack %s was not fully deleted (%s): its events say why. Delete it again, and then deploy", name, status)
	case s.StackStatus == types.StackStatusUpdateRollbackFailed:
		return fmt.Errorf("the stack %s is between two states (%s): its events say why, and this ends that state:%s", name, status, command("continue-update-rollback"))
	case s.StackStatus == types.StackStatusUpdateFailed:
		return fmt.Errorf("the stack %s is between two states (%s): its events say why, and this ends that state:%s", name, status, command("rollback-stack"))
	case strings.HasSuffix(status, "_FAILED"):
		return fmt.Errorf("the stack %s is between two states (%s): its events in the CloudFormation console say why", name, status)
	}
	return nil
}

// regionOf returns the region in an ARN.
func regionOf(arn string) string {
	parts := strings.Split(arn, ":")
	const region = 3
	if len(parts) <= region {
		return "…"
	}
	return parts[region]
}
