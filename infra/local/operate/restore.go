package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// pollEvery is how often a table that is being made is looked at: a restore takes
// minutes to hours.
const pollEvery = 10 * time.Second

// callTimeout is for calls that work on a whole table, or on a page of it.
const callTimeout = 30 * time.Second

// maxReply bounds a reply, in bytes: a page of a scan has at most 1 MB.
const maxReply = 4 << 20

// copyOrder is a command line of restore.
type copyOrder struct {
	from, to string
	at       time.Time // zero is the latest time there is
	drill    bool
	poll     time.Duration
}

// runRestore brings the ledger's table back from its point-in-time recovery as a
// table of another name. It gives the copy what a restored table lacks (the end of
// old items, recovery and protection of its own), and says what it holds beside the
// original, which is only read. A copy that is there already is finished. With -drill
// it deletes the copy then.
//
// The table is LEDGER_TABLE, with the region and the keys of the environment.
func runRestore(ctx context.Context, args []string, getenv func(string) string, out, notes io.Writer, poll time.Duration) error {
	o := copyOrder{poll: poll}
	flags := flag.NewFlagSet("restore", flag.ContinueOnError)
	flags.SetOutput(notes)
	flags.StringVar(&o.to, "to", "", "`name` of the copy")
	at := flags.String("at", "", "`time` to restore, as 2026-11-20T08:00:00Z; default: the latest that there is")
	flags.BoolVar(&o.drill, "drill", false, "delete the copy when it has been looked at")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *at != "" {
		var err error
		if o.at, err = time.Parse(time.RFC3339, *at); err != nil {
			return fmt.Errorf("-at %q is no time such as 2026-11-20T08:00:00Z", *at)
		}
	}
	c, err := boot.ReadLocal(getenv)
	if err != nil {
		return err
	}
	o.from = c.Ledger.Name
	switch {
	case o.from == "":
		return errors.New("LEDGER_TABLE is not set: it names the table to restore")
	case o.to == "" || o.to == o.from:
		return errors.New("-to must name the copy, another table than LEDGER_TABLE")
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not expected", flags.Arg(0))
	}
	return restore(ctx, tableClient(c.Ledger), o, out)
}

// tableClient has time for calls that work on a whole table.
func tableClient(t boot.Table) *dynamodb.Client {
	c := t.AWS()
	c.HTTPClient = dynamo.HTTPClient(callTimeout, maxReply, callTimeout)
	return dynamo.NewClient(c)
}

// restore makes the copy, or goes on with one that is there, protects it, and compares
// it with the original.
func restore(ctx context.Context, api *dynamodb.Client, o copyOrder, out io.Writer) error {
	in := &dynamodb.RestoreTableToPointInTimeInput{SourceTableName: &o.from, TargetTableName: &o.to, UseLatestRestorableTime: aws.Bool(true)}
	if !o.at.IsZero() {
		in.UseLatestRestorableTime, in.RestoreDateTime = nil, &o.at
	}
	_, err := api.RestoreTableToPointInTime(ctx, in)
	var there *types.TableAlreadyExistsException
	var inUse *types.ResourceInUseException
	switch {
	case errors.As(err, &there) || errors.As(err, &inUse):
		if err := resume(ctx, api, o, out); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("restore %s: %w", o.from, err)
	default:
		fmt.Fprintf(out, "%s is being restored as %s; this can take long\n", o.from, o.to)
	}
	if err := finish(ctx, api, o, out); err != nil {
		return fmt.Errorf("%w\n%s is not finished: do not use it. The same command goes on where this one stopped, with new credentials if these have expired", err, o.to)
	}
	if !o.drill {
		fmt.Fprintf(out, "deploy with LedgerTableName=%s\n", o.to)
		return nil
	}
	return removeTable(ctx, api, o.to, out)
}

// resume looks whether a table that is there can be the copy that was ordered. A drill,
// which deletes its copy, takes none that is protected from that.
func resume(ctx context.Context, api *dynamodb.Client, o copyOrder, out io.Writer) error {
	d, err := api.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &o.to})
	if err != nil {
		return fmt.Errorf("describe %s, which is there already: %w", o.to, err)
	}
	of, known := "", d.Table.RestoreSummary
	if known != nil {
		_, of, _ = strings.Cut(aws.ToString(known.SourceTableArn), "/")
	}
	switch {
	case known != nil && of != o.from:
		return fmt.Errorf("%s is there already, as a copy of %s: give another name", o.to, of)
	case known != nil && !o.at.IsZero() && aws.ToTime(known.RestoreDateTime).Sub(o.at).Abs() >= time.Second:
		return fmt.Errorf("%s is there already, as %s was at %s: give that time, or another name", o.to, o.from, aws.ToTime(known.RestoreDateTime).UTC().Format(time.RFC3339))
	case o.drill && (known == nil || aws.ToBool(d.Table.DeletionProtectionEnabled)):
		return fmt.Errorf("%s is there already, and may be in use: a drill deletes its copy, so give another name.\nIf it is left of a drill, it can be deleted:\n"+
			"  aws dynamodb update-table --table-name %[1]s --no-deletion-protection-enabled && aws dynamodb delete-table --table-name %[1]s", o.to)
	case known == nil:
		fmt.Fprintf(out, "%s is there already, and DynamoDB does not say whose copy it is: compare what both hold before you use it\n", o.to)
	default:
		fmt.Fprintf(out, "%s is there already: this goes on with it\n", o.to)
	}
	return nil
}

// finish waits for the copy, gives it what DynamoDB does not restore, and describes it.
func finish(ctx context.Context, api *dynamodb.Client, o copyOrder, out io.Writer) error {
	if err := waitActive(ctx, api, o); err != nil {
		return err
	}
	if err := errors.Join(protectTable(ctx, api, o.to), dynamo.Check(ctx, api, o.to)); err != nil {
		return err
	}
	for _, table := range []string{o.from, o.to} {
		if err := describeTable(ctx, api, table, out); err != nil {
			return err
		}
	}
	return nil
}

// waitActive waits until the copy can be used.
func waitActive(ctx context.Context, api *dynamodb.Client, o copyOrder) error {
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

// placesAtOnce is how many places of an index are read at once.
const placesAtOnce = 10_000

// countPlaces reads a list of an index to its end.
func countPlaces(list func(after ledger.Place, limit int) ([]ledger.Place, error)) (n int, err error) {
	var after ledger.Place
	for {
		page, err := list(after, placesAtOnce)
		if n += len(page); err != nil || len(page) < placesAtOnce {
			return n, err
		}
		after = page[len(page)-1]
	}
}

// describeTable says what a table holds: how many items, and how many payments in it are
// in doubt or owed, which are those that must not be lost.
func describeTable(ctx context.Context, api *dynamodb.Client, table string, out io.Writer) error {
	items := 0
	pages := dynamodb.NewScanPaginator(api, &dynamodb.ScanInput{TableName: &table, Select: types.SelectCount, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("count the items of %s: %w", table, err)
		}
		items += int(page.Count)
	}
	index := dynamo.New(api, table)
	now := time.Now()
	open, err := countPlaces(func(after ledger.Place, limit int) ([]ledger.Place, error) { return index.Open(ctx, now, after, limit) })
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	owed, err := countPlaces(func(after ledger.Place, limit int) ([]ledger.Place, error) { return index.Owed(ctx, after, limit) })
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	fmt.Fprintf(out, "%s: %d items, %d in doubt, %d owed\n", table, items, open, owed)
	return nil
}

// removeTable deletes the copy of a drill.
func removeTable(ctx context.Context, api *dynamodb.Client, table string, out io.Writer) error {
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
