package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/local/lambdahost"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

const reconcileEvent = "../events/" + scheduled + ".json"

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
	store := dynamo.NewLedger(dynamo.Config{API: dynamo.NewClient(server.ClientConfig()), Table: table, Timeout: time.Minute})
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
		"level": "INFO", "evidence": true, "unread": false, "Open": 2.0, "SettledLate": 1.0, "StillOpen": 1.0, "OwedUnclaimed": 2.0,
		"ReconcileFailed": 0.0, "Ready": 1.0, "ReadyLedger": 1.0, "ReadyFacilitator": 1.0, "ReadyResolvers": 1.0, "ReadyChain": 1.0,
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
		"level": "ERROR", "evidence": false, "Open": nil, "ReconcileFailed": 1.0, "not_ready": []any{"facilitator", "ledger"},
		"Ready": 0.0, "ReadyLedger": 0.0, "ReadyFacilitator": 0.0, "ReadyResolvers": 1.0, "ReadyChain": nil,
	})
}

// checkLine wants one line of the run, with the name of its invocation, metrics under
// the stack's name, and these members, nil where there is none. What else a line has
// is tested in pkg/service.
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
	line := found[0]
	if id, ok := line["lambda_request_id"].(string); !ok || id == "" {
		t.Errorf("the line does not name its invocation: %v", line)
	}
	if metrics := fmt.Sprint(line["_aws"]); !strings.Contains(metrics, "Namespace:Hostfacts/local") {
		t.Errorf("metrics %s", metrics)
	}
	got := map[string]any{}
	for name := range want {
		got[name] = line[name]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("line (-want +got):\n%s", d)
	}
}
