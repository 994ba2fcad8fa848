package runbook

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // the tested programs contain this package; the import makes go test notice its changes
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

func TestMain(m *testing.M) {
	testbed.Parallel(4) // most tests wait for single-threaded programs
	m.Run()
}

const operateCommand = "./infra/local/operate"

// runbook returns the text of the runbook, with each command on one line.
func runbook() string {
	text := testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), "infra", "RUNBOOK.md")))
	return strings.ReplaceAll(string(text), "\\\n", " ")
}

func serve(t testing.TB, h http.HandlerFunc) string { return testbed.Serve(t, h) }

// slowCall is how long a call to the emulator may take: half the time that the programs wait
// for an answer of DynamoDB. If a test fails after a slower call, the emulator may be the
// cause.
const slowCall = dynamo.DefaultAttemptTimeout / 2

// runOnEmulator runs a test with the emulator moto, whose DynamoDB can restore a table. Moto
// is slow on a busy machine. So if the test fails after a slow call, runOnEmulator runs the
// test once more.
func runOnEmulator(t *testing.T, play func(t testing.TB, server cloud.Dynamo)) {
	t.Helper()
	testbed.Fairly(t, slowCall, func(tb testing.TB, p *testbed.Pace) {
		moto := testbed.ProxyTo(tb, deployed.Emulator(tb))
		timed := testbed.Relay{To: moto, Do: func(r *testbed.Relayed) {
			begun := time.Now()
			r.Pass()
			p.Took(time.Since(begun))
		}}
		play(tb, cloud.Dynamo{URL: testbed.Serve(tb, timed)})
	})
}

// backUp turns on point-in-time recovery for a table.
func backUp(t testing.TB, api *dynamodb.Client, table string) {
	t.Helper()
	yes := true
	testbed.Must(api.UpdateContinuousBackups(t.Context(), &dynamodb.UpdateContinuousBackupsInput{
		TableName: &table, PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: &yes},
	}))
}

// protect gives a table the settings that the table of a deployment has.
func protect(t testing.TB, server cloud.Dynamo, table string) {
	t.Helper()
	api := dynamo.NewClient(server.Config())
	backUp(t, api, table)
	yes := true
	expires := dynamo.AttrExpiresAt
	testbed.Must(api.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
		TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &expires, Enabled: &yes},
	}))
	testbed.Must(api.UpdateTable(t.Context(), &dynamodb.UpdateTableInput{TableName: &table, DeletionProtectionEnabled: &yes}))
}
