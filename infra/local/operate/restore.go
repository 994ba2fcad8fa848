package main

import (
	"cmp"
	"context"
	"errors"
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

const (
	// callTimeout is the time limit for one call, which may work on a whole table.
	callTimeout = 30 * time.Second
	// maxReply is the size limit of a reply, in bytes; a page of a scan has at most 1 MB.
	maxReply = 4 << 20
	// pollEvery is the time between two checks whether the copy is ready.
	pollEvery = 10 * time.Second
	// maxRestoreTime is the time limit for a restore, which takes minutes to hours.
	maxRestoreTime = 48 * time.Hour
)

// tableCopy is a restored copy of a table, under another name.
type tableCopy struct {
	api         *dynamodb.Client
	from, to    string
	restoreTime time.Time // zero means the latest restorable time
	isDrill     bool
	out         io.Writer
}

// restore makes a copy of the ledger's table (LEDGER_TABLE) from the table's point-in-time
// recovery. The copy has another name, and the original is only read. restore turns on the
// features that a restored table lacks (see protections), and prints how many items the
// original and the copy have. If the copy exists already, restore continues with it. A drill
// deletes the copy at the end.
func restore(ctx context.Context, o order) error {
	c, err := boot.ParseLocal(o.getenv)
	if err != nil {
		return err
	}
	t := tableCopy{
		from:    c.Ledger.Name,
		to:      cmp.Or(o.copyName, copyOf(c.Ledger.Name, o.isDrill)),
		isDrill: o.isDrill,
		out:     o.out,
	}
	if o.restoreTime != "" {
		if t.restoreTime, err = time.Parse(time.RFC3339, o.restoreTime); err != nil {
			return fmt.Errorf("-at %q is not a time such as 2026-11-20T08:00:00Z", o.restoreTime)
		}
	}
	switch {
	case t.from == "":
		return errors.New("LEDGER_TABLE is not set: it names the table to restore")
	case t.to == t.from:
		return errors.New("-to must name the copy, a table other than LEDGER_TABLE")
	}
	t.api = tableClient(c.Ledger)
	return t.make(ctx)
}

// copyOf returns the default name for a table's copy. The operators' AWS role for restores may
// use every table whose name begins with this default name.
func copyOf(table string, drill bool) string {
	if drill {
		return table + "-drill"
	}
	return table + "-copy"
}

// tableClient returns a client with a time-out long enough for calls that work on a whole
// table.
func tableClient(t boot.Table) *dynamodb.Client {
	c := t.AWS
	c.HTTPClient = dynamo.HTTPClient(callTimeout, maxReply, callTimeout)
	return dynamo.NewClient(c)
}

// make creates the copy, or continues with an existing copy. It protects the copy and compares
// it with the original.
func (o tableCopy) make(ctx context.Context) error {
	in := &dynamodb.RestoreTableToPointInTimeInput{
		SourceTableName:         &o.from,
		TargetTableName:         &o.to,
		UseLatestRestorableTime: aws.Bool(true),
	}
	if !o.restoreTime.IsZero() {
		in.UseLatestRestorableTime = nil
		in.RestoreDateTime = &o.restoreTime
	}
	_, err := o.api.RestoreTableToPointInTime(ctx, in)
	var there *types.TableAlreadyExistsException
	var inUse *types.ResourceInUseException
	switch {
	case errors.As(err, &there) || errors.As(err, &inUse):
		if err := o.checkExisting(ctx); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("restore %s: %w", o.from, err)
	default:
		fmt.Fprintf(o.out, "%s is being restored as %s; this can take a long time\n", o.from, o.to)
		if !o.isDrill {
			fmt.Fprintln(o.out, "what is sold from now on is not in the copy: if you have not stopped selling, deploy with Selling=no now")
		}
	}
	if err := o.finish(ctx); err != nil {
		return fmt.Errorf("%w\n%s is not finished: do not use it. The same command continues where this one stopped, with new credentials if these have expired", err, o.to)
	}
	if !o.isDrill {
		fmt.Fprintf(o.out, "deploy with LedgerTableName=%s and Selling=no, and sell again when reconcile has read the chain for it\n", o.to)
		return nil
	}
	return o.remove(ctx)
}

// checkExisting checks whether an existing table can be the requested copy. A drill deletes
// its copy. A drill therefore refuses a table that has deletion protection, and a table that
// DynamoDB does not know as a restored copy.
func (o tableCopy) checkExisting(ctx context.Context) error {
	d, err := o.api.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &o.to})
	if err != nil {
		return fmt.Errorf("describe %s, which is there already: %w", o.to, err)
	}
	of := ""
	known := d.Table.RestoreSummary
	if known != nil {
		_, of, _ = strings.Cut(aws.ToString(known.SourceTableArn), "/")
	}
	switch {
	case known != nil && of != o.from:
		return fmt.Errorf("%s is there already, as a copy of %s: give another name", o.to, of)
	case known != nil && !o.restoreTime.IsZero() && aws.ToTime(known.RestoreDateTime).Sub(o.restoreTime).Abs() >= time.Second:
		return fmt.Errorf("%s is there already, as %s was at %s: give that time, or another name", o.to, o.from, aws.ToTime(known.RestoreDateTime).UTC().Format(time.RFC3339))
	case o.isDrill && (known == nil || aws.ToBool(d.Table.DeletionProtectionEnabled)):
		return fmt.Errorf("%s is there already, and may be in use: a drill deletes its copy, so give another name.\nIf a drill has left it behind, delete it:\n"+
			"  aws dynamodb update-table --table-name %[1]s --no-deletion-protection-enabled && aws dynamodb delete-table --table-name %[1]s", o.to)
	case known == nil:
		fmt.Fprintf(o.out, "%s is there already, and DynamoDB does not say whose copy it is: compare what both hold before you use it\n", o.to)
	default:
		fmt.Fprintf(o.out, "%s is there already: this continues with it\n", o.to)
	}
	return nil
}

// finish waits until the copy can be used, and sets up what DynamoDB does not restore. Then it
// prints how many items and payments the original and the copy have.
func (o tableCopy) finish(ctx context.Context) error {
	active := dynamodb.NewTableExistsWaiter(o.api, func(w *dynamodb.TableExistsWaiterOptions) {
		w.MinDelay = pollEvery
		w.MaxDelay = pollEvery
	})
	if err := active.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &o.to}, maxRestoreTime); err != nil {
		return fmt.Errorf("wait until %s can be used: %w", o.to, err)
	}
	errProtect := protectTable(ctx, o.api, o.to)
	errCheck := dynamo.Check(ctx, o.api, o.to)
	if err := errors.Join(errProtect, errCheck); err != nil {
		return err
	}
	return errors.Join(o.printCounts(ctx, o.from), o.printCounts(ctx, o.to))
}

// countPlaces counts the entries of a list in the ledger's index. If latest is not zero, it
// counts only the entries up to that time.
func countPlaces(ctx context.Context, index ledger.Index, list string, latest time.Time) (n int, err error) {
	const atOnce = 10_000
	var after ledger.Place
	for {
		page, err := index.List(ctx, list, latest, after, atOnce)
		if n += len(page); err != nil || len(page) < atOnce {
			return n, err
		}
		after = page[len(page)-1]
	}
}

// printCounts prints how many items a table has, and how many payments in it are in doubt or
// owed. These are the payments that must not be lost.
func (o tableCopy) printCounts(ctx context.Context, table string) error {
	items := 0
	pages := dynamodb.NewScanPaginator(o.api, &dynamodb.ScanInput{
		TableName:      &table,
		Select:         types.SelectCount,
		ConsistentRead: aws.Bool(true),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("count the items of %s: %w", table, err)
		}
		items += int(page.Count)
	}
	index := dynamo.New(dynamo.APIOf(o.api), table)
	open, errOpen := countPlaces(ctx, index, ledger.ListOpen, time.Now())
	owed, errOwed := countPlaces(ctx, index, ledger.ListOwed, time.Time{})
	if err := errors.Join(errOpen, errOwed); err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	fmt.Fprintf(o.out, "%s: %d items, %d in doubt, %d owed\n", table, items, open, owed)
	return nil
}

// remove deletes the copy of a drill.
func (o tableCopy) remove(ctx context.Context) error {
	_, err := o.api.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &o.to, DeletionProtectionEnabled: aws.Bool(false)})
	if err == nil {
		_, err = o.api.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &o.to})
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", o.to, err)
	}
	fmt.Fprintf(o.out, "%s is deleted: the drill is over\n", o.to)
	return nil
}
