package infra

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/operators"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// The names of a deployment whose operators are watched.
const (
	rolesTable = "shop-Ledger-1ABCDEFGHIJKL"
	rolesStack = "shop"
)

// watched is AWS as an emulator has it, with a note of what each role asks of it.
type watched struct {
	t      *testing.T
	direct cloud.Dynamo
	url    string // of the relay

	mu    sync.Mutex
	as    operators.Role
	asked map[string]bool // "action on place", and of which form of keys
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{t: t, direct: startEmulator(t)}
	w.url = testbed.Serve(t, testbed.Relay{To: testbed.ProxyTo(t, w.direct.URL), Do: func(r *testbed.Relayed) {
		w.note(r)
		if !strings.Contains(string(r.Sent), "Version="+versionOfStacks) {
			r.Pass()
			return
		}
		// The emulator's CloudFormation fails for a stack that is not there.
		r.ResponseWriter.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(r.ResponseWriter, "<ErrorResponse><Error><Code>ValidationError</Code><Message>it does not exist</Message></Error></ErrorResponse>")
	}})
	return w
}

// note notes a request in the words of a permission.
func (w *watched) note(r *testbed.Relayed) {
	service, action, _ := strings.Cut(r.Request.Header.Get("X-Amz-Target"), ".")
	service, _, _ = strings.Cut(strings.ToLower(service), "_") // of its version
	var body struct {
		TableName, IndexName, SourceTableName, TargetTableName, SecretId, Name string
		Key, Item                                                              map[string]struct{ S string }
	}
	if service != "" {
		check(w.t, json.Unmarshal(r.Sent, &body))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch key := body.Key[dynamo.AttrKey].S + body.Item[dynamo.AttrKey].S; {
	case service == "": // a form
		w.form(string(r.Sent))
	case service == "secretsmanager":
		w.add(service+":"+action, secretPlace(body.SecretId+body.Name), "")
	case action == "RestoreTableToPointInTime":
		w.add(service+":"+action, tablePlace(body.SourceTableName, ""), "")
		w.add(service+":"+action, tablePlace(body.TargetTableName, ""), "")
	default:
		w.add(service+":"+action, tablePlace(body.TableName, body.IndexName), key)
	}
}

// The versions that services with forms call themselves by.
const (
	versionOfStacks = "2010-05-15"
	versionOfAlarms = "2010-08-01"
	versionOfTopics = "2010-03-31"
)

// form notes a request of CloudFormation, CloudWatch, SNS or STS. Nobody needs a permission to
// ask who they are.
func (w *watched) form(sent string) {
	values := testbed.Must(url.ParseQuery(sent))
	if values.Get("Action") == "GetCallerIdentity" {
		return
	}
	service := map[string]string{versionOfStacks: "cloudformation", versionOfAlarms: "cloudwatch", versionOfTopics: "sns"}[values.Get("Version")]
	place := operators.Place(sent)
	switch alarm := values.Get("AlarmName") + values.Get("AlarmNames.member.1"); {
	case values.Get("StackName") == rolesStack:
		place = operators.Stack
	case strings.HasPrefix(alarm, rolesStack+"-"):
		place = operators.Alarms
	case strings.HasSuffix(values.Get("TopicArn"), ":"+rolesStack+"-Alarms"):
		place = operators.Topics
	}
	w.add(service+":"+values.Get("Action"), place, "")
}

func (w *watched) add(action string, place operators.Place, key string) {
	for _, p := range w.as.May {
		for _, form := range p.Keys {
			start, open := strings.CutSuffix(form, "*")
			if slices.Contains(p.Actions, action) && slices.Contains(p.On, place) && open && strings.HasPrefix(key, start) {
				w.asked[permitted(action, place, form)] = true
				return
			}
		}
		if p.Keys == nil && slices.Contains(p.Actions, action) && slices.Contains(p.On, place) {
			key = ""
		}
	}
	w.asked[permitted(action, place, key)] = true
}

func permitted(action string, place operators.Place, key string) string {
	if key == "" {
		return action + " on " + string(place)
	}
	return action + " on " + string(place) + ", " + key
}

// tablePlace is the place of a table by its name.
func tablePlace(name, index string) operators.Place {
	places := []struct {
		is           bool
		table, index operators.Place
	}{
		{name == rolesTable, operators.Table, operators.TableIndex},
		{strings.HasPrefix(name, rolesTable+operators.CopySuffix), operators.Copies, operators.CopyIndex},
		{strings.HasPrefix(name, rolesTable+operators.DrillSuffix), operators.Drills, operators.DrillIndex},
	}
	for _, p := range places {
		switch {
		case p.is && index == dynamo.IndexName:
			return p.index
		case p.is && index == "":
			return p.table
		}
	}
	return operators.Place("table " + name + " " + index)
}

// secretPlace is the place of a secret by its name or ARN.
func secretPlace(id string) operators.Place {
	if strings.HasPrefix(id[strings.LastIndex(id, ":")+1:], rolesStack+"-") {
		return operators.Secrets
	}
	return operators.Place("secret " + id)
}

// does has commands run as a role, and holds what they ask to what it may: what is missing,
// and what nothing needs. wanted is what AWS asks for by itself.
func (w *watched) does(name string, wanted []string, commands func(env map[string]string)) {
	w.t.Helper()
	all := operators.Roles()
	w.as, w.asked = all[slices.IndexFunc(all, func(r operators.Role) bool { return r.Name == name })], map[string]bool{}
	env := w.direct.Settings(rolesTable)
	env["STACK_NAME"] = rolesStack
	for _, service := range []string{"CLOUDWATCH", "DYNAMODB", "SECRETS_MANAGER", "SNS", "STS"} {
		env["AWS_ENDPOINT_URL_"+service] = w.url
	}
	env["PAY_TO"], env["CALLED_BY"] = boot.LocalPayTo, "make"
	commands(env)
	var may []string
	for _, p := range w.as.May {
		for _, action := range p.Actions {
			for _, place := range p.On {
				for _, form := range append([]string{""}, p.Keys...) {
					if (form == "") == (p.Keys == nil) {
						may = append(may, permitted(action, place, form))
					}
				}
			}
		}
	}
	for _, p := range wanted {
		w.asked[p] = true
	}
	slices.Sort(may)
	if d := cmp.Diff(may, slices.Sorted(maps.Keys(w.asked))); d != "" {
		w.t.Errorf("%s (-may +asks):\n%s", name, d)
	}
}

// runs runs a program of the repository.
func (w *watched) runs(program string, env map[string]string, fails bool, arguments ...string) string {
	w.t.Helper()
	cmd := testbed.Command(w.t, testbed.Program(w.t, program), arguments...)
	cmd.Env = testbed.Environment(env)
	out, err := cmd.CombinedOutput()
	if (err != nil) != fails {
		w.t.Errorf("%q: %v\n%s", arguments, err, out)
	}
	return string(out)
}

// asksForStack asks CloudFormation about the stack, of which there is none.
func (w *watched) asksForStack(commands ...string) {
	w.t.Helper()
	for _, command := range commands {
		script := fmt.Sprintf("aws cloudformation %s --stack-name %s", command, rolesStack)
		if out, err := deployed.CLI(w.t, w.url, script).CombinedOutput(); err == nil || !strings.Contains(string(out), "does not exist") {
			w.t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}

// debts are a ledger with a payment in every case that an operator's command looks at, and the
// chain that they are on.
type debts struct {
	payer                            *x402test.Wallet
	owed, other, doubt, dead, origin string
	node                             string
	moved                            []x402test.Transfer
}

func newDebts(t *testing.T, server cloud.Dynamo) *debts {
	t.Helper()
	d := &debts{payer: testbed.Must(x402test.NewWallet(rand.Reader))}
	store := server.Open(rolesTable)
	long := time.Now().Add(-25 * time.Hour)
	pays := func() (key, transaction string) {
		nonce := strings.ToLower(testbed.Must(x402test.NewWallet(rand.Reader)).Address().String()[2:])
		key = ledger.Key(x402.Base, strings.ToLower(testbed.BaseUSDC), d.payer.Address().String(), "0x"+strings.Repeat("0", 24)+nonce)
		transaction = "0x" + nonce + strings.Repeat("1", 24)
		d.moved = append(d.moved, x402test.Transfer{Key: key, Transaction: transaction, Payee: boot.LocalPayTo, Value: "5000", At: long})
		return key, transaction
	}
	l := ledger.New(store, func() time.Time { return long }, rand.Text)
	for _, key := range []*string{&d.owed, &d.other} {
		var transaction string
		*key, transaction = pays()
		h := held(t, l, *key, long)
		check(t, h.Settled(t.Context(), ledger.Receipt{Transaction: transaction}, true))
		check(t, h.Release(t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	}
	d.doubt, _ = pays()
	check(t, held(t, l, d.doubt, long).End(t.Context(), ledger.EventUncertain, "timeout", ""))
	d.dead, _ = pays()
	d.moved = d.moved[:len(d.moved)-1]
	held(t, l, d.dead, long)
	abandon(t, store, d.dead)
	pays() // without a record
	// A former payee, to whom nothing can come any more.
	former := ledger.New(store, func() time.Time { return long.Add(-2 * 24 * time.Hour) }, rand.Text)
	check(t, ledger.NewPayees(former).Note(t.Context(), x402.Base, strings.ToLower(testbed.BaseUSDC), strings.ToLower(testbed.Account(7)), "5000"))
	node := testbed.PlayNode{ChainID: 8453, Now: time.Now, Moved: func() []x402test.Transfer { return d.moved }}
	d.node = testbed.Serve(t, node)
	d.origin = serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"checks":{}}`)) })
	return d
}

// back is a transfer to the payer.
func (d *debts) back() string {
	const hash = "0x00000000000000000000000000000000000000000000000000000000000000bb"
	d.moved = append(d.moved, x402test.Transfer{
		Key: ledger.Key(x402.Base, strings.ToLower(testbed.BaseUSDC), testbed.Account(5), ""), Transaction: hash,
		Payee: d.payer.Address().String(), Value: "5000", At: time.Now(),
	})
	return hash
}

// TestRolesOfTheLedger: those who read, and those who refund, may do what their commands do
// and nothing else. A refund names who has made it.
func TestRolesOfTheLedger(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	api := dynamo.NewClient(w.direct.Config())
	check(t, dynamo.Create(t.Context(), api, rolesTable))
	d := newDebts(t, w.direct)
	protects(t, w.direct, rolesTable)
	const operate = "./infra/local/operate"
	reads := func(env map[string]string) {
		env["RPC_URL"] = d.node
		w.runs(operate, env, false, "owed")
		w.runs(operate, env, false, "payer", d.payer.Address().String())
		w.runs(operate, env, false, "smoke", d.origin)
		w.asksForStack("describe-stacks", "get-template")                                              // as make smoke does of a stack with a file
		w.runs(operate, env, true, "books", time.Now().Add(-25*time.Hour).UTC().Format(time.DateOnly)) // there are differences
	}
	w.does("Read", nil, reads)
	w.does("Refund", nil, func(env map[string]string) {
		reads(env)
		w.runs(operate, env, false, "reconcile")
		w.runs(operate, env, false, "refund", d.owed)
		w.runs(operate, env, false, "refund", d.owed, d.back())
		w.runs(operate, env, true, "refund", d.other, d.moved[len(d.moved)-1].Transaction) // which has closed another record
		w.runs(operate, env, false, "answered", d.other, d.moved[1].Transaction)
		if said := w.runs(operate, env, false, "payer", d.payer.Address().String()); !strings.Contains(said, ", closed by arn:aws:sts::") {
			t.Errorf("who has closed the refund is not said:\n%s", said)
		}
	})
}

// TestRunbookRoles: the runbook names every role, and the setting of who may assume it.
func TestRunbookRoles(t *testing.T) {
	t.Parallel()
	text := string(testbed.Must(os.ReadFile("RUNBOOK.md")))
	for _, r := range operators.Roles() {
		named := regexp.MustCompile("`" + r.Name + "Role`\\s\\(`" + r.Setting + "`\\)")
		if !named.MatchString(text) {
			t.Errorf("the runbook does not say %s", named)
		}
	}
}

// TestRoleThatRestores: it may make, finish and compare a copy, and delete a drill's.
func TestRoleThatRestores(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	check(t, dynamo.Create(t.Context(), dynamo.NewClient(w.direct.Config()), rolesTable))
	pays(t, ledgerOf(w.direct.Open(rolesTable)))
	protects(t, w.direct, rolesTable)
	// As the developer guide of DynamoDB has it: read and write permissions on the target.
	var wanted []string
	for _, place := range []operators.Place{operators.Copies, operators.Drills} {
		for _, action := range []string{"BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"} {
			wanted = append(wanted, permitted("dynamodb:"+action, place, ""))
		}
	}
	w.does("Restore", wanted, func(env map[string]string) {
		for _, arguments := range []string{"restore", "restore", "restore -drill", "restore -to " + rolesTable + "-copy-2"} {
			w.runs("./infra/local/operate", env, false, strings.Fields(arguments)...)
		}
	})
}

// TestRoleThatDeploys: it may make and change the stack's secret, and ask for the stack. What
// the CDK CLI needs is held to what the CDK app says, in its folder.
func TestRoleThatDeploys(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	token := filepath.Join(t.TempDir(), "token")
	check(t, os.WriteFile(token, []byte("a-token-of-the-facilitator"), 0o600))
	nodes := filepath.Join(t.TempDir(), "nodes")
	check(t, os.WriteFile(nodes, []byte("https://node.example"), 0o600))
	check(t, dynamo.Create(t.Context(), dynamo.NewClient(w.direct.Config()), rolesTable))
	programs.Run(t, deployed.CLI(t, w.direct.URL, `
		topic=$(aws sns create-topic --name shop-Alarms --query TopicArn --output text)
		aws sns subscribe --topic-arn $topic --protocol email --notification-endpoint you@example.com
		for alarm in shop-errors shop-reconcile-failing; do
			aws cloudwatch put-metric-alarm --alarm-name $alarm --alarm-actions $topic --namespace n --metric-name m --statistic Sum \
				--period 60 --evaluation-periods 1 --threshold 0 --comparison-operator GreaterThanThreshold
		done`))
	w.does("Deploy", []string{permitted("sts:AssumeRole", operators.Bootstrap, "")}, func(env map[string]string) {
		w.runs("./infra/local/secret", env, false, "-yes", "-name", rolesStack+"-facilitator", "-set", "token", "-file", token)
		w.runs("./infra/local/secret", env, false, "-yes", "-name", rolesStack+"-facilitator", "-set", "rpc_urls", "-file", nodes)
		w.runs("./infra/local/operate", env, false, "mark-ledger")
		w.runs("./infra/local/operate", env, false, "try-page")
		w.asksForStack("describe-stacks", "get-template", "cancel-update-stack")
	})
}
