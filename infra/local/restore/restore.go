package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// restore makes the copy, protects it, and compares it with the original.
func restore(ctx context.Context, api *dynamodb.Client, o order, out io.Writer) error {
	in := &dynamodb.RestoreTableToPointInTimeInput{SourceTableName: &o.from, TargetTableName: &o.to, UseLatestRestorableTime: aws.Bool(true)}
	if !o.at.IsZero() {
		in.UseLatestRestorableTime, in.RestoreDateTime = nil, &o.at
	}
	if _, err := api.RestoreTableToPointInTime(ctx, in); err != nil {
		return fmt.Errorf("restore %s: %w", o.from, err)
	}
	fmt.Fprintf(out, "%s is being restored as %s; this can take long\n", o.from, o.to)
	if err := active(ctx, api, o); err != nil {
		return err
	}
	// The key and the index must be those of a ledger.
	if err := dynamo.EnsureTable(ctx, api, o.to); err != nil {
		return err
	}
	if err := protect(ctx, api, o.to); err != nil {
		return err
	}
	for _, table := range []string{o.from, o.to} {
		if err := describe(ctx, api, table, out); err != nil {
			return err
		}
	}
	if !o.drill {
		fmt.Fprintf(out, "deploy with LedgerTableName=%s\n", o.to)
		return nil
	}
	return remove(ctx, api, o.to, out)
}

// active waits until the copy can be used.
func active(ctx context.Context, api *dynamodb.Client, o order) error {
	for {
		d, err := api.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &o.to})
		if err != nil {
			return fmt.Errorf("describe %s: %w", o.to, err)
		}
		if d.Table.TableStatus == types.TableStatusActive {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is still %s: %w", o.to, d.Table.TableStatus, ctx.Err())
		case <-time.After(o.poll):
		}
	}
}

// protect gives a restored table what DynamoDB does not restore.
func protect(ctx context.Context, api *dynamodb.Client, table string) error {
	_, ttl := api.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(dynamo.AttrExpiresAt), Enabled: aws.Bool(true)},
	})
	_, recovery := api.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
		TableName: &table, PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
	})
	_, deletion := api.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &table, DeletionProtectionEnabled: aws.Bool(true)})
	if err := errors.Join(ttl, recovery, deletion); err != nil {
		return fmt.Errorf("protect %s: %w", table, err)
	}
	return nil
}

// most is how many open records are counted of each kind.
const most = 100_000

// describe says what a table holds: how many items, and how many payments in it are
// in doubt or owed, which are those that must not be lost.
func describe(ctx context.Context, api *dynamodb.Client, table string, out io.Writer) error {
	items := 0
	pages := dynamodb.NewScanPaginator(api, &dynamodb.ScanInput{TableName: &table, Select: types.SelectCount, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("count the items of %s: %w", table, err)
		}
		items += int(page.Count)
	}
	index := dynamo.NewIndex(dynamo.IndexConfig{API: api, Table: table})
	open, err := index.Open(ctx, time.Now(), most)
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	owed, err := index.Owed(ctx, most)
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	fmt.Fprintf(out, "%s: %d items, %d in doubt, %d owed\n", table, items, len(open), len(owed))
	return nil
}

// remove deletes the copy of a drill.
func remove(ctx context.Context, api *dynamodb.Client, table string, out io.Writer) error {
	_, err := api.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &table, DeletionProtectionEnabled: aws.Bool(false)})
	if err == nil {
		_, err = api.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table})
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", table, err)
	}
	fmt.Fprintf(out, "%s is deleted: the drill is over\n", table)
	return nil
}
