package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// protection is a feature that a ledger's table must have. A table that DynamoDB has restored
// from a backup does not have it.
type protection struct {
	name    string
	command string // the command of the AWS CLI that turns the feature on
	isOn    func(ctx context.Context, api *dynamodb.Client, table *string) (bool, error)
	turnOn  func(ctx context.Context, api *dynamodb.Client, table *string) error
}

// protections returns all protections. A local DynamoDB server supports all but the first.
func protections() []protection {
	return []protection{{
		"point-in-time recovery", "update-continuous-backups --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true",
		func(ctx context.Context, api *dynamodb.Client, table *string) (bool, error) {
			d, err := api.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: table})
			if err != nil || d.ContinuousBackupsDescription == nil || d.ContinuousBackupsDescription.PointInTimeRecoveryDescription == nil {
				return false, err
			}
			return d.ContinuousBackupsDescription.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == types.PointInTimeRecoveryStatusEnabled, nil
		},
		func(ctx context.Context, api *dynamodb.Client, table *string) error {
			_, err := api.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
				TableName: table, PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
			})
			return err
		},
	}, {
		"expiry of old items (TTL)", "update-time-to-live --time-to-live-specification Enabled=true,AttributeName=" + dynamo.AttrExpiresAt,
		func(ctx context.Context, api *dynamodb.Client, table *string) (bool, error) {
			d, err := api.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: table})
			if err != nil || d.TimeToLiveDescription == nil || aws.ToString(d.TimeToLiveDescription.AttributeName) != dynamo.AttrExpiresAt {
				return false, err
			}
			status := d.TimeToLiveDescription.TimeToLiveStatus
			return status == types.TimeToLiveStatusEnabled || status == types.TimeToLiveStatusEnabling, nil
		},
		func(ctx context.Context, api *dynamodb.Client, table *string) error {
			_, err := api.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
				TableName: table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(dynamo.AttrExpiresAt), Enabled: aws.Bool(true)},
			})
			return err
		},
	}, {
		"protection from deletion", "update-table --deletion-protection-enabled",
		func(ctx context.Context, api *dynamodb.Client, table *string) (bool, error) {
			d, err := api.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: table})
			return err == nil && aws.ToBool(d.Table.DeletionProtectionEnabled), err
		},
		func(ctx context.Context, api *dynamodb.Client, table *string) error {
			_, err := api.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: table, DeletionProtectionEnabled: aws.Bool(true)})
			return err
		},
	}}
}

// protectTable turns on the protections that a restored table lacks.
func protectTable(ctx context.Context, api *dynamodb.Client, table string) error {
	var faults []error
	for _, p := range protections() {
		on, err := p.isOn(ctx, api, &table)
		if err == nil && !on {
			err = p.turnOn(ctx, api, &table)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("give %s its %s: %w", table, p.name, err))
		}
	}
	return errors.Join(faults...)
}

// checkTable returns an error when a ledger's table lacks one of the protections. It returns
// nil for a local server, which does not support recovery and has nothing to protect.
func (o order) checkTable(ctx context.Context, t boot.Table) error {
	api := tableClient(t)
	var missing, commands []string
	for _, p := range protections() {
		on, err := p.isOn(ctx, api, &t.Name)
		var said smithy.APIError
		switch {
		case errors.As(err, &said) && said.ErrorCode() == "UnknownOperationException":
			return nil
		case err != nil:
			return fmt.Errorf("cannot check whether table %s has its %s: %w\n"+
				"The credentials need dynamodb:DescribeTable, DescribeTimeToLive and DescribeContinuousBackups on it", t.Name, p.name, err)
		case !on:
			missing = append(missing, "no "+p.name)
			command, flags, _ := strings.Cut(p.command, " ")
			commands = append(commands, fmt.Sprintf("\n  aws dynamodb %s --table-name %s %s", command, t.Name, flags))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("table %s has %s, without which it is not the ledger of a deployment.\n"+
		"If it is a copy, finish it: %s, with LEDGER_TABLE naming the original. Otherwise:%s",
		t.Name, joinWithAnd(missing), o.invocation.Command("restore", called.Word{
			Name:  "TO",
			Flag:  "-to",
			Value: t.Name,
		}), strings.Join(commands, ""))
}
