package main

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// emulator is a running moto: CloudFormation, Lambda, DynamoDB and what else the
// templates need, in memory.
type emulator struct{ url string }

func startEmulator(t *testing.T) emulator {
	t.Helper()
	cmd := python(t, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
	log := must(cmd.StderrPipe())(t)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	begins := ""
	for lines := bufio.NewScanner(log); lines.Scan(); {
		begins += lines.Text() + "\n"
		if _, url, ok := strings.Cut(lines.Text(), " Running on "); ok {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return emulator{url}
		}
	}
	t.Fatalf("the emulator does not start:\n%s", begins)
	return emulator{}
}

// account is what there is on the emulator.
type account struct {
	Stacks    map[string]string // status by name
	Tables    []string
	Functions map[string]map[string]any // environments by name
}

// stack creates or deletes a stack.
func (e emulator) stack(t *testing.T, arguments ...string) account {
	t.Helper()
	var a account
	out := testbed.Run(t, program(t, "stack.py", append([]string{e.url}, arguments...)...))
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return a
}

// tablesOf are the tables that the functions of a stack are told.
func (a account) tablesOf(stack string) []string {
	tables := map[string]bool{}
	n := 0
	for name, env := range a.Functions {
		if strings.HasPrefix(name, stack+"-") {
			n++
			if table, ok := env["LEDGER_TABLE"]; ok {
				tables[fmt.Sprint(table)] = true
			}
		}
	}
	return append(slices.Sorted(maps.Keys(tables)), fmt.Sprint(n))
}

func (e emulator) client() *dynamodb.Client {
	return dynamo.NewClient(testbed.Dynamo{URL: e.url}.Config())
}

// ledger is the ledger in a table of the emulator.
func (e emulator) ledger(table string) *ledger.Ledger {
	return ledger.New(testbed.Dynamo{URL: e.url}.Open(table), time.Now, rand.Text)
}

// forEmulator is a transformed template without what moto does not know: aliases,
// of which what refers to one refers to its function here. CodeDeploy, the parts of
// API Gateway and alarms it leaves out by itself, with a line in its log. It makes null
// of what a list leaves out with AWS::NoValue, such as the secrets that are not given.
func forEmulator(t *testing.T, path string, params ...string) string {
	t.Helper()
	d := transformed(t, path, params...)
	for _, id := range ofType(d, "AWS::Lambda::Alias") {
		delete(section(d, "Resources"), id)
	}
	for _, id := range ofType(d, "AWS::Lambda::Permission") {
		ref := fmt.Sprint(section(properties(d, id), "FunctionName")["Ref"])
		properties(d, id)["FunctionName"] = document{"Ref": strings.TrimSuffix(ref, "Alias"+alias)}
	}
	text := must(json.Marshal(d))(t)
	text = regexp.MustCompile(`,\{"Fn::If":\["Has\w+Secret",\{.*?\},\{"Ref":"AWS::NoValue"\}\]\}`).ReplaceAll(text, nil)
	text = regexp.MustCompile(`\{"Ref":"(\w+)Alias`+alias+`"\}`).ReplaceAll(text, []byte(`{"Fn::GetAtt":["$1","Arn"]}`))
	text = regexp.MustCompile(`\$\{(\w+)Alias`+alias+`\}`).ReplaceAll(text, []byte(`$${$1.Arn}`))
	return stored(t, string(text))
}

// pays leaves a payment in a ledger whose answer is owed, and returns its key.
func pays(t *testing.T, l *ledger.Ledger) string {
	t.Helper()
	_, hold, key := claim(t, l, must(x402test.NewWallet(rand.Reader))(t))
	check(t, hold.Settled(t.Context(), ledger.Receipt{Transaction: "0x1"}, false))
	check(t, hold.Release(t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	return key
}

func owes(t *testing.T, l *ledger.Ledger, key string) bool {
	t.Helper()
	r := must(l.Fetch(t.Context(), key))(t)
	return r != nil && r.State == ledger.Settled
}

// ownNode names the node, as cdk deploy --parameters does.
const ownNode = "RpcUrl=https://node.example"

// TestFromSAMToCDK: on an emulator, a stack by SAM makes its table and its functions;
// the CDK app's stack takes that table over and makes none; and when the first stack
// is deleted, the table and what is owed in it are still there.
func TestFromSAMToCDK(t *testing.T) {
	t.Parallel()
	e := startEmulator(t)
	first := e.stack(t, "create", "hostfacts-sam", forEmulator(t, templatePath, payTo), payTo, "FacilitatorUrl="+facilitatorURL)
	if len(first.Tables) != 1 || !strings.HasSuffix(first.Stacks["hostfacts-sam"], "COMPLETE") {
		t.Fatalf("%+v", first)
	}
	table := first.Tables[0]
	all := fmt.Sprint(len(functionSlugs()))
	if d := cmp.Diff([]string{table, all}, first.tablesOf("hostfacts-sam")); d != "" {
		t.Errorf("tables and functions of the first stack (-want +got):\n%s", d)
	}
	key := pays(t, e.ledger(table))
	path := stored(t, string(must(synth(t, ".", map[string]any{"PayTo": boot.LocalPayTo, "FacilitatorUrl": facilitatorURL, "LedgerTableName": table, "assets": "none", "nodes": "parameter"}))(t)))
	second := e.stack(t, "create", "hostfacts-cdk", forEmulator(t, path), ownNode)
	if d := cmp.Diff([]string{table}, second.Tables); d != "" {
		t.Errorf("tables of both stacks (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{table, all}, second.tablesOf("hostfacts-cdk")); d != "" {
		t.Errorf("tables and functions of the second stack (-want +got):\n%s", d)
	}
	third := e.stack(t, "delete", "hostfacts-sam")
	if d := cmp.Diff([]string{table}, third.Tables); d != "" {
		t.Errorf("tables when the first stack is gone (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"0"}, third.tablesOf("hostfacts-sam")); d != "" {
		t.Errorf("functions of the stack that is gone:\n%s", d)
	}
	if !owes(t, e.ledger(table), key) {
		t.Error("what was owed is forgotten")
	}
}
