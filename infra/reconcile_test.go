package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const reconcileEvent = "../events/" + scheduled + ".json"

// TestSchedule: no run that outlasts its slot, no retries, time enough for a run
// to be worth it, and nothing reserved, which a new account cannot do.
func TestSchedule(t *testing.T) {
	t.Parallel()
	f := function(t, template(t), scheduled)
	type m = map[string]any
	want := m{
		"ReservedConcurrentExecutions": nil,
		"EventInvokeConfig":            m{"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60},
		"Events":                       m{"Schedule": m{"Type": "Schedule", "Properties": m{"Schedule": "rate(5 minutes)"}}},
	}
	for name, value := range want {
		if d := cmp.Diff(value, f[name]); d != "" {
			t.Errorf("%s (-want +template):\n%s", name, d)
		}
	}
	const interval, atLeast = 300, 60
	if timeout, ok := f["Timeout"].(int); !ok || timeout < atLeast || timeout >= interval {
		t.Errorf("time-out %v s, want less than the %d s to the next run, and %d s at least", f["Timeout"], interval, atLeast)
	}
}

// TestScheduledEvent: what EventBridge sends, and nothing else.
func TestScheduledEvent(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(reconcileEvent)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var e events.EventBridgeEvent
	if err := d.Decode(&e); err != nil {
		t.Fatal(err)
	}
	if e.Version != "0" || e.DetailType != "Scheduled Event" || e.Source != "aws.events" || string(e.Detail) != "{}" || e.ID == "" || e.Time.IsZero() {
		t.Errorf("%+v is not what a schedule sends", e)
	}
	if len(e.Resources) != 1 || !strings.HasPrefix(e.Resources[0], "arn:aws:events:"+e.Region+":"+e.AccountID+":rule/") || !strings.Contains(e.Resources[0], logicalID(scheduled)) {
		t.Errorf("resources %q, want the rule of the function", e.Resources)
	}
}

// tables records what EnsureTable asks for.
type tables struct{ created *dynamodb.CreateTableInput }

func (f *tables) CreateTable(_ context.Context, in *dynamodb.CreateTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	f.created = in
	return nil, errors.ErrUnsupported
}

func (f *tables) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	return nil, errors.ErrUnsupported
}

// TestLocalTableIsTheTemplates: a table that the local runner makes is the
// deployed one but for protection and TTL.
func TestLocalTableIsTheTemplates(t *testing.T) {
	t.Parallel()
	var api tables
	if err := dynamo.EnsureTable(t.Context(), &api, "t"); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	type m = map[string]any
	key := func(schema []types.KeySchemaElement) (list []any) {
		for _, k := range schema {
			list = append(list, m{"AttributeName": *k.AttributeName, "KeyType": string(k.KeyType)})
		}
		return list
	}
	got := m{"BillingMode": string(api.created.BillingMode), "KeySchema": key(api.created.KeySchema)}
	var attributes, indexes []any
	for _, a := range api.created.AttributeDefinitions {
		attributes = append(attributes, m{"AttributeName": *a.AttributeName, "AttributeType": string(a.AttributeType)})
	}
	for _, x := range api.created.GlobalSecondaryIndexes {
		indexes = append(indexes, m{
			"IndexName": *x.IndexName, "KeySchema": key(x.KeySchema), "Projection": m{"ProjectionType": string(x.Projection.ProjectionType)},
		})
	}
	got["AttributeDefinitions"], got["GlobalSecondaryIndexes"] = attributes, indexes
	want := decode(t, template(t).Resources["Ledger"].Properties)
	for _, name := range []string{"TimeToLiveSpecification", "DeletionProtectionEnabled", "PointInTimeRecoverySpecification"} {
		delete(want, name)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("table (-template +EnsureTable):\n%s", d)
	}
}

// reconcileHost hosts the built function, configured by the template.
func reconcileHost(t *testing.T, params, env map[string]string) (h *lambdahost.Host, logs func() string) {
	t.Helper()
	all := testParams()
	for name, value := range params {
		all[name] = value
	}
	cfg, err := lambdahost.FromTemplate(templatePath, testbed.Functions(t), all, env)
	if err != nil {
		t.Fatal(err)
	}
	var only lambdahost.Config
	for _, f := range cfg.Functions {
		if f.Name == logicalID(scheduled) {
			only.Functions = append(only.Functions, f)
		}
	}
	var text bytes.Buffer
	only.Logs = &text
	if h, err = lambdahost.New(only); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, func() string { h.Close(); return text.String() }
}

// chainBench is a ledger table with payments on a real chain.
type chainBench struct {
	*chaintest.Node
	ledger *ledger.Ledger
	payer  *x402test.Wallet
	terms  x402.Terms
}

// claim drafts a payment, signs it and claims it in the ledger.
func (d *chainBench) claim(t *testing.T) (chaintest.Signed, *ledger.Hold, string) {
	t.Helper()
	payee, err := x402.ParseAddress(d.terms.PayTo)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(5 * time.Minute)
	signed := chaintest.Sign(t, d.payer, chaintest.Authorization(d.payer, payee, 5000, until))
	doc, err := json.Marshal(d.terms.Requirements("5000"))
	if err != nil {
		t.Fatal(err)
	}
	key := ledger.Key(d.terms.Network, strings.ToLower(d.terms.Asset), d.payer.Address().String(), signed.Authorization.Nonce)
	c, err := d.ledger.Claim(t.Context(), ledger.Payment{
		Key: key, AuthDigest: key, SigDigest: "s", Request: "GET /v1/tools/dns?domain=example.com", Terms: doc, ValidBefore: until,
	}, time.Now().Add(time.Minute))
	if err != nil || c.Standing != ledger.Held {
		t.Fatalf("claim: %+v, %v", c, err)
	}
	return signed, c.Hold, key
}

// age makes a payment one of some weeks ago, whose purchase ends soon unless its
// time is prolonged.
func age(t *testing.T, store ledger.Store, key string) {
	t.Helper()
	r, err := store.Fetch(t.Context(), key)
	if err != nil || r == nil {
		t.Fatalf("%s: %v", key, err)
	}
	now := time.Now()
	r.Version, r.WriteID, r.Purchase, r.CreatedAt = r.Version+1, "aged", "purchase|"+key, now.Add(-30*24*time.Hour)
	if err := store.Replace(t.Context(), *r); err != nil {
		t.Fatal(err)
	}
	purchase := ledger.Record{
		Key: r.Purchase, Version: 1, WriteID: "aged", State: ledger.Bought, Owner: key, AuthDigest: r.AuthDigest,
		CreatedAt: r.CreatedAt, UpdatedAt: r.CreatedAt, ExpiresAt: now.Add(24 * time.Hour),
	}
	if old, err := store.Create(t.Context(), purchase); err != nil || old != nil {
		t.Fatalf("%+v, %v", old, err)
	}
}

// TestReconcileFunction runs the built function, by its event, on a DynamoDB
// table and an Ethereum node: what was paid is settled, what was not stays in
// doubt, what is owed is counted.
func TestReconcileFunction(t *testing.T) {
	t.Parallel()
	server, node := dynamotest.Start(t), chaintest.Start(t)
	table := server.Table(t)
	store := dynamo.New(dynamo.Config{API: dynamotable.NewClient(server.ClientConfig()), Table: table, Timeout: time.Minute})
	payer, err := x402test.NewWallet(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	payee, err := x402.ParseAddress(boot.LocalPayTo)
	if err != nil {
		t.Fatal(err)
	}
	d := &chainBench{Node: node, ledger: ledger.New(store, time.Now, rand.Text), payer: payer, terms: chaintest.Terms(payee)}
	d.Mint(t, payer.Address(), 1_000_000)

	signed, lost, paid := d.claim(t)
	receipt := d.Transfer(t, signed)
	_, silent, open := d.claim(t)
	_, done, owed := d.claim(t)
	for _, err := range []error{
		lost.Uncertain(t.Context(), "timeout", ""), silent.Uncertain(t.Context(), "timeout", ""),
		done.Settled(t.Context(), ledger.Receipt{Transaction: "0x1"}, true),
		done.Release(t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	age(t, store, open)
	event, err := os.ReadFile(reconcileEvent)
	if err != nil {
		t.Fatal(err)
	}
	watch := newRecorder(t, table)
	// The node is named in the secret of the first facilitator, which has moved.
	secrets := map[string]string{
		testSecret:     `{"token":"` + testToken + `","rpc_urls":["` + node.URL + `"]}`,
		fallbackSecret: `{"token":"` + fallbackToken + `"}`,
	}
	vault := serve(t, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var asked struct{ SecretId string }
		if err = errors.Join(err, json.Unmarshal(body, &asked)); err != nil {
			t.Error(err)
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		watch.note(t, scheduled, req)
		_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": secrets[asked.SecretId]})
	})
	h, logs := reconcileHost(t, map[string]string{
		"Ledger": table, "RpcUrl": "secret", "LogLevel": "error",
		"FacilitatorUrl": holdsToken(t, testToken, http.NotFoundHandler()), "FacilitatorSecretArn": testSecret,
		"FacilitatorFallbackUrl": holdsToken(t, fallbackToken, testbed.NewFacilitator(t, x402test.FacilitatorConfig{})), "FacilitatorFallbackSecretArn": fallbackSecret,
		"DnsResolvers": nothingExists(t),
	}, map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB":        watch.dynamoDB(t, scheduled, server.URL),
		"AWS_ENDPOINT_URL_SECRETS_MANAGER": vault,
	})
	result, err := h.Call(t.Context(), logicalID(scheduled), event)
	if err != nil || string(result.Payload) != "null" {
		t.Errorf("it answered %s, %v", result.Payload, err)
	}
	for key, want := range map[string]ledger.State{paid: ledger.Settled, open: ledger.Uncertain, owed: ledger.Settled} {
		r, err := store.Fetch(t.Context(), key)
		if err != nil || r == nil || r.State != want {
			t.Errorf("%s: %+v, %v; want %s", key, r, err, want)
		}
		if key == paid && (r.Receipt == nil || r.Receipt.Transaction != receipt.Hash || r.Receipt.Payer != payer.Address().Checksum()) {
			t.Errorf("receipt %+v, want transaction %s", r.Receipt, receipt.Hash)
		}
	}
	// LogLevel does not silence what alarms are made of.
	checkLine(t, logs(), map[string]any{
		"msg": "reconcile", "level": "INFO", "evidence": true, "listed": 2.0, "open": 2.0, "settled_late": 1.0, "still_open": 1.0,
		"refused_late": 0.0, "cannot_tell": 0.0, "skipped": 0.0, "failed": 0.0, "left": 0.0, "owed": 2.0, "exhausted": 0.0, "uncounted": 0.0,
		"received": 0.0, "deposits": 0.0, "found": 0.0, "unasked": 0.0, "unmatched": 0.0, "unread": false,
		"Open": 2.0, "SettledLate": 1.0, "RefusedLate": 0.0, "StillOpen": 1.0, "CannotTell": 0.0, "Left": 0.0,
		"OwedUnclaimed": 2.0, "RefundsDue": 0.0, "ReconcileFailed": 0.0,
		"Ready": 1.0, "ReadyLedger": 1.0, "ReadyFacilitator": 1.0, "ReadyResolvers": 1.0, "ReadyChain": 1.0,
	})
	if d := cmp.Diff(granted(t, written(t, nil), scheduled), watch.used(scheduled)); d != "" {
		t.Errorf("permissions (-granted +used):\n%s", d)
	}
	t.Logf("init %v, first answer %v", result.Init, result.First)
}

// TestReconcileFunctionFails: without its table the invocation fails, so that
// Lambda's own error metric counts it, and the line is there all the same.
func TestReconcileFunctionFails(t *testing.T) {
	t.Parallel()
	event, err := os.ReadFile(reconcileEvent)
	if err != nil {
		t.Fatal(err)
	}
	h, logs := reconcileHost(t, map[string]string{"RpcUrl": "none", "DnsResolvers": nothingExists(t)}, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1"})
	_, err = h.Call(t.Context(), logicalID(scheduled), event)
	var failed *lambdahost.FunctionError
	if !errors.As(err, &failed) || !strings.Contains(failed.Message, "list open records") {
		t.Errorf("it answered %v, want a function error", err)
	}
	checkLine(t, logs(), map[string]any{
		"msg": "reconcile", "level": "ERROR", "evidence": false, "listed": 0.0, "open": 0.0, "settled_late": 0.0, "still_open": 0.0,
		"refused_late": 0.0, "cannot_tell": 0.0, "skipped": 0.0, "failed": 0.0, "left": 0.0, "owed": 0.0, "exhausted": 0.0, "uncounted": 0.0,
		"received": 0.0, "deposits": 0.0, "found": 0.0, "unasked": 0.0, "unmatched": 0.0, "unread": false,
		"ReconcileFailed": 1.0, "not_ready": []any{"facilitator", "ledger"},
		"Ready": 0.0, "ReadyLedger": 0.0, "ReadyFacilitator": 0.0, "ReadyResolvers": 1.0,
	})
}

// checkLine wants one line with these members, and those that differ from run
// to run.
func checkLine(t *testing.T, logs string, want map[string]any) {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(logs) {
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == "reconcile" {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d lines, want 1, in:\n%s", len(found), logs)
	}
	got := found[0]
	metrics, ok := got["_aws"].(map[string]any)
	if !ok {
		t.Fatalf("the line carries no metrics: %v", got)
	}
	if at, ok := metrics["Timestamp"].(float64); !ok || at < 1e12 {
		t.Errorf("timestamp %v, want unix milliseconds", metrics["Timestamp"])
	}
	var defined []any
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if name[0] < 'a' { // lower case is the summary, for people
			defined = append(defined, map[string]any{"Name": name, "Unit": "Count"})
		}
	}
	one := map[string]any{"Namespace": "Hostfacts/local", "Dimensions": []any{[]any{}}, "Metrics": defined}
	byName := cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })
	if d := cmp.Diff([]any{one}, metrics["CloudWatchMetrics"], byName); d != "" {
		t.Errorf("metrics (-want +got):\n%s", d)
	}
	if id, ok := got["lambda_request_id"].(string); !ok || id == "" {
		t.Errorf("the line does not name its invocation: %v", got)
	}
	delete(got, "lambda_request_id")
	if ms, ok := got["ms"].(float64); !ok || ms <= 0 {
		t.Errorf("it took %v ms", got["ms"])
	}
	for _, name := range []string{"timestamp", "ms", "_aws", "error"} {
		delete(got, name)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("line (-want +got):\n%s", d)
	}
}
