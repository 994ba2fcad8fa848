package sam_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// TestPermissions checks that the template grants at least one permission to every function.
// deployed.Granted also fails the test if a policy statement has an unknown form. The tests of
// infra/functions check that each function uses all of its permissions, and needs no others.
func TestPermissions(t *testing.T) {
	t.Parallel()
	for slug := range deployed.Routes() {
		if len(deployed.Granted(t, slug)) == 0 {
			t.Errorf("%s may do nothing", slug)
		}
	}
}

// TestAccessLog checks that the access log has one line of JSON for each request, and nothing
// that reveals the client or the subject of the request. The path, the query and the headers
// would reveal the subject and the payment's signature. The client's address would reveal the
// client.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	format, _ := section(properties(deployed.Template(), "Api"), "AccessLogSettings")["Format"].(string)
	var line map[string]string
	if err := json.Unmarshal([]byte(format), &line); err != nil || strings.Contains(format, "\n") {
		t.Fatalf("%q is not a line of JSON: %v", format, err)
	}
	want := strings.Fields(`$context.error.message $context.httpMethod $context.integrationErrorMessage $context.integrationLatency
		$context.integrationStatus $context.protocol $context.requestId $context.requestTime $context.responseLatency
		$context.responseLength $context.routeKey $context.status`)
	if d := cmp.Diff(want, slices.Sorted(maps.Values(line))); d != "" {
		t.Errorf("what is logged (-want +template):\n%s", d)
	}
}

// TestScheduledEvent checks that the example event of the scheduled function has the values
// that EventBridge sends, and no other members.
func TestScheduledEvent(t *testing.T) {
	t.Parallel()
	var e events.EventBridgeEvent
	readEvent(t, sam.Reconcile, &e)
	if e.Version != "0" || e.DetailType != "Scheduled Event" || e.Source != "aws.events" || string(e.Detail) != "{}" || e.ID == "" || e.Time.IsZero() {
		t.Errorf("%+v is not what a schedule sends", e)
	}
	if len(e.Resources) != 1 || !strings.HasPrefix(e.Resources[0], "arn:aws:events:"+e.Region+":"+e.AccountID+":rule/") || !strings.Contains(e.Resources[0], sam.LogicalID(sam.Reconcile)) {
		t.Errorf("resources %q, want the rule of the function", e.Resources)
	}
}

// TestTableIsTheStores checks that the template's table is like the table that package dynamo
// creates for the local runner. In addition, the template's table must have deletion
// protection, point-in-time recovery and TTL, and must be kept when the stack is deleted. If
// LedgerTableName is set, all functions must use the table of that name.
func TestTableIsTheStores(t *testing.T) {
	t.Parallel()
	type m = map[string]any
	var want m
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Amz-Target") == "DynamoDB_20120810.CreateTable" {
			_ = json.NewDecoder(r.Body).Decode(&want)
		}
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer refuses.Close()
	if err := dynamo.Create(t.Context(), dynamo.NewClient(cloud.Dynamo{URL: refuses.URL}.Config()), "t"); err == nil {
		t.Fatal("there is a table")
	}
	delete(want, "TableName")
	want["DeletionProtectionEnabled"], want["PointInTimeRecoverySpecification"] = true, m{"PointInTimeRecoveryEnabled": true}
	want["TimeToLiveSpecification"] = m{"AttributeName": dynamo.AttrExpiresAt, "Enabled": true}
	want = m{
		"Type": "AWS::DynamoDB::Table", "Properties": want, "DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain",
		"Condition": "CreateLedger", // without this condition, a stack with a LedgerTableName would create a second table
	}
	if d := cmp.Diff(want, section(deployed.Template(), "Resources")["Ledger"]); d != "" {
		t.Errorf("table (-Create +template):\n%s", d)
	}
	params := testParams()
	params["LedgerTableName"] = "of-another-stack"
	for _, f := range testbed.Must(template(t).Functions(params)) {
		if f.Env["LEDGER_TABLE"] != "of-another-stack" {
			t.Errorf("%s is told %q, and a table of another stack is named", f.Name, f.Env["LEDGER_TABLE"])
		}
	}
}
