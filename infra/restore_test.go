package infra

import (
	"crypto/rand"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// startEmulator starts moto, a DynamoDB in memory that can restore a table.
func startEmulator(t *testing.T) cloud.Dynamo {
	t.Helper()
	return cloud.Dynamo{URL: deployed.Emulator(t)}
}

func ledgerOf(store ledger.Store) *ledger.Ledger { return ledger.New(store, time.Now, rand.Text) }

// pays leaves a payment in a ledger whose answer is owed, and returns its key.
func pays(t *testing.T, l *ledger.Ledger) string {
	t.Helper()
	_, hold, key := claim(t, l, testbed.Must(x402test.NewWallet(rand.Reader)))
	check(t, hold.Settled(t.Context(), ledger.Receipt{Transaction: "0x1"}, false))
	check(t, hold.Release(t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	return key
}

func owes(t *testing.T, store ledger.Store, key string) bool {
	t.Helper()
	r := ledgertest.Payment(t, store, key)
	return r != nil && r.State == ledger.Settled
}

// backUp turns point-in-time recovery on.
func backUp(t *testing.T, api *dynamodb.Client, table string) {
	t.Helper()
	yes := true
	testbed.Must(api.UpdateContinuousBackups(t.Context(), &dynamodb.UpdateContinuousBackupsInput{
		TableName: &table, PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: &yes},
	}))
}

// protects gives a table what that of a deployment has.
func protects(t *testing.T, server cloud.Dynamo, table string) {
	t.Helper()
	api, yes, expires := dynamo.NewClient(server.Config()), true, dynamo.AttrExpiresAt
	backUp(t, api, table)
	testbed.Must(api.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
		TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &expires, Enabled: &yes},
	}))
	testbed.Must(api.UpdateTable(t.Context(), &dynamodb.UpdateTableInput{TableName: &table, DeletionProtectionEnabled: &yes}))
}

// TestRestoreDrill: on a server that can restore a table, make restore brings the
// ledger back with what is owed in it, and with the protection that a restored table
// lacks. A drill deletes the copy and leaves the original alone.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	server := startEmulator(t)
	api := dynamo.NewClient(server.Config())
	check(t, dynamo.Create(t.Context(), api, "ledger"))
	backUp(t, api, "ledger")
	key := pays(t, ledgerOf(server.Open("ledger")))
	operate := testbed.Program(t, "./infra/local/operate")
	restore := func(arguments ...string) (string, error) {
		cmd := exec.Command(operate, append([]string{"restore"}, arguments...)...)
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
	if !owes(t, server.Open("ledger-copy"), key) {
		t.Error("the copy has forgotten what is owed")
	}
	checkProtected(t, api, "ledger-copy")
	// Under a name that is taken nothing is restored, unless it is this copy, which a
	// drill does not delete.
	check(t, dynamo.Create(t.Context(), api, "other"))
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
	if !owes(t, server.Open("ledger"), key) {
		t.Error("the original has forgotten what is owed")
	}
}

// checkProtected: what DynamoDB does not restore is there.
func checkProtected(t *testing.T, api *dynamodb.Client, table string) {
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
