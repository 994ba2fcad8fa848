package runbook

import (
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
	"github.com/hostfacts/hostfacts/infra/testbed/payments"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
)

// The names of the stack and of its table in these tests.
const (
	rolesTable = "shop-Ledger-1ABCDEFGHIJKL"
	rolesStack = "shop"
)

// watched is an emulator of AWS behind a relay. The relay records which permissions the
// requests need.
type watched struct {
	t      testing.TB
	direct cloud.Dynamo
	url    string // the URL of the relay

	mu    sync.Mutex
	as    operators.Role
	asked map[string]bool // the permissions that requests have needed so far, as text
}

func newWatched(t testing.TB, server cloud.Dynamo) *watched {
	t.Helper()
	w := &watched{t: t, direct: server}
	w.url = testbed.Serve(t, testbed.Relay{To: testbed.ProxyTo(t, w.direct.URL), Do: func(r *testbed.Relayed) {
		w.note(r)
		if !strings.Contains(string(r.Sent), "Version="+versionOfStacks) {
			r.Pass()
			return
		}
		// The emulator's CloudFormation has a bug in its answer about a stack that does not
		// exist, so the relay answers in its place.
		r.ResponseWriter.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(r.ResponseWriter, "<ErrorResponse><Error><Code>ValidationError</Code><Message>it does not exist</Message></Error></ErrorResponse>")
	}})
	return w
}

// note records the permission that a request needs.
func (w *watched) note(r *testbed.Relayed) {
	service, action, _ := strings.Cut(r.Request.Header.Get("X-Amz-Target"), ".")
	service, _, _ = strings.Cut(strings.ToLower(service), "_") // without the version
	var body struct {
		TableName, IndexName, SourceTableName, TargetTableName, SecretId, Name string
		Key, Item                                                              map[string]struct{ S string }
	}
	if service != "" {
		testbed.Check(json.Unmarshal(r.Sent, &body))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch key := body.Key[dynamo.AttrKey].S + body.Item[dynamo.AttrKey].S; {
	case service == "": // requests to CloudFormation and some other services are forms
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

// The API versions of the services whose requests are forms. The version in such a request
// shows which service it is for.
const (
	versionOfStacks = "2010-05-15"
	versionOfAlarms = "2010-08-01"
	versionOfTopics = "2010-03-31"
)

// form records the permission that a form needs. Requests to CloudFormation, CloudWatch, SNS
// and STS are forms. GetCallerIdentity needs no permission.
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

// add records that a request needs an action on a place. If the request is for one item, key
// is the key of that item. If the role may do the action on every item, add records no key. If
// the role may do it only on items whose keys match a pattern, add records the pattern instead
// of the key.
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

// permitted returns a permission as text: the action, the place and, if key is not empty, the
// key or the pattern of keys.
func permitted(action string, place operators.Place, key string) string {
	if key == "" {
		return action + " on " + string(place)
	}
	return action + " on " + string(place) + ", " + key
}

// tablePlace returns the Place of a table or, if index is not empty, of that index of the table.
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

// secretPlace returns the Place of a secret. id is the secret's name or ARN.
func secretPlace(id string) operators.Place {
	if strings.HasPrefix(id[strings.LastIndex(id, ":")+1:], rolesStack+"-") {
		return operators.Secrets
	}
	return operators.Place("secret " + id)
}

// become sets the role with which the next requests are sent, and forgets the permissions
// recorded so far.
func (w *watched) become(name string) {
	all := operators.Roles()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.as = all[slices.IndexFunc(all, func(r operators.Role) bool { return r.Name == name })]
	w.asked = map[string]bool{}
}

// does runs commands as a role, and records the permissions that the commands need. It fails
// the test if the role lacks such a permission, or has a permission that no command needs. The
// list wanted has permissions that AWS requires although no recorded request shows them.
func (w *watched) does(name string, wanted []string, commands func(env map[string]string)) {
	w.t.Helper()
	w.become(name)
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
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range wanted {
		w.asked[p] = true
	}
	slices.Sort(may)
	if d := cmp.Diff(may, slices.Sorted(maps.Keys(w.asked))); d != "" {
		w.t.Errorf("%s (-may +asks):\n%s", name, d)
	}
}

// runs runs a program of this repository, and returns what the program prints. The argument
// fails says whether the program must fail.
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

// asksForStack runs AWS CLI commands for the stack. The emulator has no such stack, so each
// command must fail and say that the stack does not exist.
func (w *watched) asksForStack(commands ...string) {
	w.t.Helper()
	for _, command := range commands {
		script := fmt.Sprintf("aws cloudformation %s --stack-name %s", command, rolesStack)
		if out, err := deployed.CLI(w.t, w.url, script).CombinedOutput(); err == nil || !strings.Contains(string(out), "does not exist") {
			w.t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}

// TestRolesOfTheLedger checks that the roles Read and Refund have the permissions that their
// commands need, and no others. After a refund, its record must name the person who closed it.
func TestRolesOfTheLedger(t *testing.T) {
	t.Parallel()
	onEmulator(t, readAndRefund)
}

func readAndRefund(t testing.TB, server cloud.Dynamo) {
	w := newWatched(t, server)
	api := dynamo.NewClient(w.direct.Config())
	testbed.Check(dynamo.Create(t.Context(), api, rolesTable))
	d := newDebts(t, w.direct)
	protect(t, w.direct, rolesTable)
	reads := func(env map[string]string) {
		env["RPC_URL"] = d.node
		w.runs(operate, env, false, "owed")
		w.runs(operate, env, false, "payer", d.payer.Address().String())
		w.runs(operate, env, false, "smoke", d.origin)
		w.asksForStack("describe-stacks", "get-template")                                              // make smoke sends these requests for a stack with a file in infra/stacks
		w.runs(operate, env, true, "books", time.Now().Add(-25*time.Hour).UTC().Format(time.DateOnly)) // this command fails because the books show differences
	}
	w.does("Read", nil, reads)
	w.does("Refund", nil, func(env map[string]string) {
		reads(env)
		w.runs(operate, env, false, "reconcile")
		w.runs(operate, env, false, "refund", d.owed)
		w.runs(operate, env, false, "refund", d.owed, d.back())
		w.runs(operate, env, true, "refund", d.other, d.moved[len(d.moved)-1].Transaction) // this command fails because the transaction has already closed another record
		w.runs(operate, env, false, "answered", d.other, d.moved[1].Transaction)
		if said := w.runs(operate, env, false, "payer", d.payer.Address().String()); !strings.Contains(said, ", closed by arn:aws:sts::") {
			t.Errorf("the record does not say who closed the refund:\n%s", said)
		}
	})
}

// TestRunbookRoles checks that the runbook names every role, and the setting that says who may
// assume it.
func TestRunbookRoles(t *testing.T) {
	t.Parallel()
	text := runbook()
	for _, r := range operators.Roles() {
		named := regexp.MustCompile("`" + r.Name + "Role`\\s\\(`" + r.Setting + "`\\)")
		if !named.MatchString(text) {
			t.Errorf("the runbook does not match %s", named)
		}
	}
}

// TestRoleThatRestores checks that the role Restore may make, finish and compare a copy, and
// delete the copy of a drill, and may do nothing else.
func TestRoleThatRestores(t *testing.T) {
	t.Parallel()
	onEmulator(t, restoreAsRole)
}

func restoreAsRole(t testing.TB, server cloud.Dynamo) {
	w := newWatched(t, server)
	testbed.Check(dynamo.Create(t.Context(), dynamo.NewClient(w.direct.Config()), rolesTable))
	payments.Owe(t, payments.Ledger(w.direct.Open(rolesTable)))
	protect(t, w.direct, rolesTable)
	// According to the developer guide of DynamoDB, a restore requires read and write
	// permissions for the target table. The role must have these permissions, although no
	// request to the emulator shows that they are needed.
	var wanted []string
	for _, place := range []operators.Place{operators.Copies, operators.Drills} {
		for _, action := range []string{"BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"} {
			wanted = append(wanted, permitted("dynamodb:"+action, place, ""))
		}
	}
	w.does("Restore", wanted, func(env map[string]string) {
		for _, arguments := range []string{"restore", "restore", "restore -drill", "restore -to " + rolesTable + "-copy-2"} {
			w.runs(operate, env, false, strings.Fields(arguments)...)
		}
	})
}

// TestRoleThatDeploys checks that the role Deploy may create and change the secret of the
// stack, mark the stack's ledger, try the stack's alarms, and read the stack, and may do
// nothing else. The tests of infra/cdk check the permissions that the CDK CLI needs.
func TestRoleThatDeploys(t *testing.T) {
	t.Parallel()
	onEmulator(t, deployAsRole)
}

func deployAsRole(t testing.TB, server cloud.Dynamo) {
	w := newWatched(t, server)
	token := filepath.Join(t.TempDir(), "token")
	testbed.Check(os.WriteFile(token, []byte("a-token-of-the-facilitator"), 0o600))
	nodes := filepath.Join(t.TempDir(), "nodes")
	testbed.Check(os.WriteFile(nodes, []byte("https://node.example"), 0o600))
	testbed.Check(dynamo.Create(t.Context(), dynamo.NewClient(w.direct.Config()), rolesTable))
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
		w.runs(operate, env, false, "mark-ledger")
		w.runs(operate, env, false, "try-page")
		w.asksForStack("describe-stacks", "get-template", "cancel-update-stack")
	})
}
