package runbook

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/payments"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
)

// isOwed reports whether a payment is settled and has no answer yet.
func isOwed(t testing.TB, store ledger.Store, key string) bool {
	t.Helper()
	r := ledgertest.Payment(t, store, key)
	return r != nil && r.State == ledger.Settled
}

// TestRestoreDrill checks that "make restore" copies a ledger, and that the copy lists the same
// owed answers. The copy must be protected like the original, although DynamoDB does not
// restore the settings for this. A drill must delete its copy, and must not touch the original.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	runOnEmulator(t, restoreAndDrill)
}

func restoreAndDrill(t testing.TB, server cloud.Dynamo) {
	api := dynamo.NewClient(server.Config())
	testbed.Check(dynamo.Create(t.Context(), api, "ledger"))
	backUp(t, api, "ledger")
	key := payments.Owe(t, payments.Ledger(server.Open("ledger")))
	program := testbed.Program(t, operateCommand)
	restore := func(arguments ...string) (string, error) {
		cmd := exec.Command(program, append([]string{"restore"}, arguments...)...)
		cmd.Env = testbed.Environment(server.Settings("ledger"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	holds := func(table string) string { return fmt.Sprintf("%s: 1 items, 0 in doubt, 1 owed\n", table) }
	out, err := restore("-to", "ledger-copy")
	if err != nil || !strings.Contains(out, holds("ledger")+holds("ledger-copy")) || !strings.HasSuffix(out, "deploy with LedgerTableName=ledger-copy and Selling=no, and sell again when reconcile has read the chain for it\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "\nwhat is sold from now on is not in the copy: if you have not stopped selling, deploy with Selling=no now\n") {
		t.Errorf("it does not say to stop selling:\n%s", out)
	}
	if !isOwed(t, server.Open("ledger-copy"), key) {
		t.Error("the copy has forgotten what is owed")
	}
	checkProtected(t, api, "ledger-copy")
	// If a table exists already, "make restore" refuses it, unless an earlier "make restore" of
	// the same ledger made it. A drill refuses even a finished copy of the same ledger, because
	// the drill would delete that copy.
	testbed.Check(dynamo.Create(t.Context(), api, "other"))
	for line, says := range map[string]string{
		"-to ledger-copy": holds("ledger") + holds("ledger-copy"), "-to other": "DynamoDB does not say whose copy it is",
		"-to ledger-copy -drill": "a drill deletes its copy, so give another name", "-to other -drill": "a drill deletes its copy, so give another name",
		"-to ledger-copy -at 2026-11-20T08:00:00Z": "ledger-copy is there already, as ledger was at",
	} {
		if out, err := restore(strings.Fields(line)...); !strings.Contains(out, says) || (err == nil) != (len(strings.Fields(line)) == 2) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	out, err = restore("-to", "drill", "-drill")
	if err != nil || !strings.Contains(out, holds("drill")+"drill is deleted") || strings.Contains(out, "Selling=no") {
		t.Errorf("%v\n%s", err, out)
	}
	tables, err := api.ListTables(t.Context(), &dynamodb.ListTablesInput{})
	if err != nil || strings.Join(tables.TableNames, " ") != "ledger ledger-copy other" {
		t.Errorf("tables %v, %v", tables, err)
	}
	if !isOwed(t, server.Open("ledger"), key) {
		t.Error("the original has forgotten what is owed")
	}
}

// checkProtected checks that a table has the settings that DynamoDB does not restore.
func checkProtected(t testing.TB, api *dynamodb.Client, table string) {
	t.Helper()
	ttl, err := api.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	if err != nil || ttl.TimeToLiveDescription.TimeToLiveStatus != types.TimeToLiveStatusEnabled || *ttl.TimeToLiveDescription.AttributeName != dynamo.AttrExpiresAt {
		t.Errorf("TTL %+v, %v", ttl, err)
	}
	backups, err := api.DescribeContinuousBackups(t.Context(), &dynamodb.DescribeContinuousBackupsInput{TableName: &table})
	if err != nil || backups.ContinuousBackupsDescription.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus != types.PointInTimeRecoveryStatusEnabled {
		t.Errorf("recovery %+v, %v", backups, err)
	}
	d, err := api.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil || d.Table.DeletionProtectionEnabled == nil || !*d.Table.DeletionProtectionEnabled {
		t.Errorf("protection from deletion %+v, %v", d, err)
	}
}
