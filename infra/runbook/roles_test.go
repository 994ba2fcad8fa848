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

// recordingEmulator is an emulator of AWS behind a relay. The relay records which permissions
// the requests need.
type recordingEmulator struct {
	t        testing.TB
	emulator cloud.Dynamo
	url      string // the URL of the relay

	mu                sync.Mutex
	role              operators.Role
	neededPermissions map[string]bool // the permissions that requests have needed so far, as text
}

func newRecordingEmulator(t testing.TB, server cloud.Dynamo) *recordingEmulator {
	t.Helper()
	w := &recordingEmulator{t: t, emulator: server}
	w.url = testbed.Serve(t, testbed.Relay{To: testbed.ProxyTo(t, w.emulator.URL), Do: func(r *testbed.Relayed) {
		w.recordRequest(r)
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

// recordRequest records the permission that a request needs.
func (w *recordingEmulator) recordRequest(r *testbed.Relayed) {
	service, action, _ := strings.Cut(r.Request.Header.Get("X-Amz-Target"), ".")
	service, _, _ = strings.Cut(strings.ToLower(service), "_") // without the version, as in DynamoDB_20120810
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
		w.recordForm(string(r.Sent))
	case service == "secretsmanager":
		w.recordPermission(service+":"+action, secretPlace(body.SecretId+body.Name), "")
	case action == "RestoreTableToPointInTime":
		w.recordPermission(service+":"+action, tablePlace(body.SourceTableName, ""), "")
		w.recordPermission(service+":"+action, tablePlace(body.TargetTableName, ""), "")
	default:
		w.recordPermission(service+":"+action, tablePlace(body.TableName, body.IndexName), key)
	}
}

// The API versions of the services whose requests are forms. The version in such a request
// shows which service it is for.
const (
	versionOfStacks = "2010-05-15"
	versionOfAlarms = "2010-08-01"
	versionOfTopics = "2010-03-31"
)

// recordForm records the permission that a form needs. Requests to CloudFormation, CloudWatch,
// SNS and STS are forms. GetCallerIdentity needs no permission.
func (w *recordingEmulator) recordForm(body string) {
	values := testbed.Must(url.ParseQuery(body))
	if values.Get("Action") == "GetCallerIdentity" {
		return
	}
	service := map[string]string{versionOfStacks: "cloudformation", versionOfAlarms: "cloudwatch", versionOfTopics: "sns"}[values.Get("Version")]
	place := operators.Place(body)
	switch alarm := values.Get("AlarmName") + values.Get("AlarmNames.member.1"); {
	case values.Get("StackName") == rolesStack:
		place = operators.Stack
	case strings.HasPrefix(alarm, rolesStack+"-"):
		place = operators.Alarms
	case strings.HasSuffix(values.Get("TopicArn"), ":"+rolesStack+"-Alarms"):
		place = operators.Topics
	}
	w.recordPermission(service+":"+values.Get("Action"), place, "")
}

// recordPermission records that a request needs an action on a place. If the request is for
// one item, key is the key of that item. The recorded permission depends on the role. If the
// role may do the action on every item, no key is recorded. If the role may do it only on
// items whose keys match a pattern, the pattern is recorded instead of the key.
func (w *recordingEmulator) recordPermission(action string, place operators.Place, key string) {
	for _, p := range w.role.May {
		for _, form := range p.Keys {
			start, open := strings.CutSuffix(form, "*")
			if slices.Contains(p.Actions, action) && slices.Contains(p.On, place) && open && strings.HasPrefix(key, start) {
				w.neededPermissions[permissionText(action, place, form)] = true
				return
			}
		}
		if p.Keys == nil && slices.Contains(p.Actions, action) && slices.Contains(p.On, place) {
			key = ""
		}
	}
	w.neededPermissions[permissionText(action, place, key)] = true
}

// permissionText returns a permission as text: the action, the place and, if key is not empty,
// the key or the pattern of keys.
func permissionText(action string, place operators.Place, key string) string {
	if key == "" {
		return action + " on " + string(place)
	}
	return action + " on " + string(place) + ", " + key
}

// tablePlace returns the Place of a table or, if index is not empty, of that index of the table.
func tablePlace(name, index string) operators.Place {
	places := []struct {
		hasName      bool
		table, index operators.Place
	}{
		{name == rolesTable, operators.Table, operators.TableIndex},
		{strings.HasPrefix(name, rolesTable+operators.CopySuffix), operators.Copies, operators.CopyIndex},
		{strings.HasPrefix(name, rolesTable+operators.DrillSuffix), operators.Drills, operators.DrillIndex},
	}
	for _, p := range places {
		switch {
		case p.hasName && index == dynamo.IndexName:
			return p.index
		case p.hasName && index == "":
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

// setRole sets the role with which the next requests are sent, and forgets the permissions
// recorded so far.
func (w *recordingEmulator) setRole(name string) {
	all := operators.Roles()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.role = all[slices.IndexFunc(all, func(r operators.Role) bool { return r.Name == name })]
	w.neededPermissions = map[string]bool{}
}

// checkRole runs commands as a role, and records the permissions that the commands need. It
// fails the test if the role lacks such a permission, or has a permission that no command
// needs. The argument unrecorded lists permissions that AWS also requires, although no request
// to the emulator shows them.
func (w *recordingEmulator) checkRole(name string, unrecorded []string, commands func(env map[string]string)) {
	w.t.Helper()
	w.setRole(name)
	env := w.emulator.Settings(rolesTable)
	env["STACK_NAME"] = rolesStack
	for _, service := range []string{"CLOUDWATCH", "DYNAMODB", "SECRETS_MANAGER", "SNS", "STS"} {
		env["AWS_ENDPOINT_URL_"+service] = w.url
	}
	env["PAY_TO"], env["CALLED_BY"] = boot.LocalPayTo, "make"
	commands(env)
	var may []string
	for _, p := range w.role.May {
		for _, action := range p.Actions {
			for _, place := range p.On {
				for _, form := range append([]string{""}, p.Keys...) {
					if (form == "") == (p.Keys == nil) {
						may = append(may, permissionText(action, place, form))
					}
				}
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range unrecorded {
		w.neededPermissions[p] = true
	}
	slices.Sort(may)
	if d := cmp.Diff(may, slices.Sorted(maps.Keys(w.neededPermissions))); d != "" {
		w.t.Errorf("%s (-may +asks):\n%s", name, d)
	}
}

// runProgram runs a program of this repository, and returns what the program prints. The
// program must fail if wantFailure is true, and must succeed otherwise.
func (w *recordingEmulator) runProgram(program string, env map[string]string, wantFailure bool, arguments ...string) string {
	w.t.Helper()
	cmd := testbed.Command(w.t, testbed.Program(w.t, program), arguments...)
	cmd.Env = testbed.Environment(env)
	out, err := cmd.CombinedOutput()
	if (err != nil) != wantFailure {
		w.t.Errorf("%q: %v\n%s", arguments, err, out)
	}
	return string(out)
}

// checkStackCommands runs AWS CLI commands for the stack. The emulator has no such stack, so
// each command must fail and say that the stack does not exist.
func (w *recordingEmulator) checkStackCommands(commands ...string) {
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
	runOnEmulator(t, readAndRefund)
}

func readAndRefund(t testing.TB, server cloud.Dynamo) {
	w := newRecordingEmulator(t, server)
	api := dynamo.NewClient(w.emulator.Config())
	testbed.Check(dynamo.Create(t.Context(), api, rolesTable))
	d := newDebts(t, w.emulator)
	protect(t, w.emulator, rolesTable)
	reads := func(env map[string]string) {
		env["RPC_URL"] = d.node
		w.runProgram(operateCommand, env, false, "owed")
		w.runProgram(operateCommand, env, false, "payer", d.payer.Address().String())
		w.runProgram(operateCommand, env, false, "smoke", d.origin)
		w.checkStackCommands("describe-stacks", "get-template")                                                     // "make smoke" sends these requests for a stack with a file in infra/stacks
		w.runProgram(operateCommand, env, true, "books", time.Now().Add(-25*time.Hour).UTC().Format(time.DateOnly)) // this command fails because the books show differences
	}
	w.checkRole("Read", nil, reads)
	w.checkRole("Refund", nil, func(env map[string]string) {
		reads(env)
		w.runProgram(operateCommand, env, false, "reconcile")
		w.runProgram(operateCommand, env, false, "refund", d.owedKey)
		w.runProgram(operateCommand, env, false, "refund", d.owedKey, d.addRefund())
		w.runProgram(operateCommand, env, true, "refund", d.otherOwedKey, d.transfers[len(d.transfers)-1].Transaction) // this command fails because the transaction has already closed another record
		w.runProgram(operateCommand, env, false, "answered", d.otherOwedKey, d.transfers[1].Transaction)
		if said := w.runProgram(operateCommand, env, false, "payer", d.payer.Address().String()); !strings.Contains(said, ", closed by arn:aws:sts::") {
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
	runOnEmulator(t, restoreAsRole)
}

func restoreAsRole(t testing.TB, server cloud.Dynamo) {
	w := newRecordingEmulator(t, server)
	testbed.Check(dynamo.Create(t.Context(), dynamo.NewClient(w.emulator.Config()), rolesTable))
	payments.Owe(t, payments.Ledger(w.emulator.Open(rolesTable)))
	protect(t, w.emulator, rolesTable)
	// According to the developer guide of DynamoDB, a restore requires read and write
	// permissions for the target table. The role must have these permissions, although no
	// request to the emulator shows that they are needed.
	var wanted []string
	for _, place := range []operators.Place{operators.Copies, operators.Drills} {
		for _, action := range []string{"BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"} {
			wanted = append(wanted, permissionText("dynamodb:"+action, place, ""))
		}
	}
	w.checkRole("Restore", wanted, func(env map[string]string) {
		for _, arguments := range []string{"restore", "restore", "restore -drill", "restore -to " + rolesTable + "-copy-2"} {
			w.runProgram(operateCommand, env, false, strings.Fields(arguments)...)
		}
	})
}

// TestRoleThatDeploys checks that the role Deploy may create and change the secret of the
// stack, mark the stack's ledger, try the stack's alarms, and read the stack, and may do
// nothing else. The tests of infra/cdk check the permissions that the CDK CLI needs.
func TestRoleThatDeploys(t *testing.T) {
	t.Parallel()
	runOnEmulator(t, deployAsRole)
}

func deployAsRole(t testing.TB, server cloud.Dynamo) {
	w := newRecordingEmulator(t, server)
	token := filepath.Join(t.TempDir(), "token")
	testbed.Check(os.WriteFile(token, []byte("a-token-of-the-facilitator"), 0o600))
	nodes := filepath.Join(t.TempDir(), "nodes")
	testbed.Check(os.WriteFile(nodes, []byte("https://node.example"), 0o600))
	testbed.Check(dynamo.Create(t.Context(), dynamo.NewClient(w.emulator.Config()), rolesTable))
	programs.Run(t, deployed.CLI(t, w.emulator.URL, `
		topic=$(aws sns create-topic --name shop-Alarms --query TopicArn --output text)
		aws sns subscribe --topic-arn $topic --protocol email --notification-endpoint you@example.com
		for alarm in shop-errors shop-reconcile-failing; do
			aws cloudwatch put-metric-alarm --alarm-name $alarm --alarm-actions $topic --namespace n --metric-name m --statistic Sum \
				--period 60 --evaluation-periods 1 --threshold 0 --comparison-operator GreaterThanThreshold
		done`))
	w.checkRole("Deploy", []string{permissionText("sts:AssumeRole", operators.Bootstrap, "")}, func(env map[string]string) {
		w.runProgram("./infra/local/secret", env, false, "-yes", "-name", rolesStack+"-facilitator", "-set", "token", "-file", token)
		w.runProgram("./infra/local/secret", env, false, "-yes", "-name", rolesStack+"-facilitator", "-set", "rpc_urls", "-file", nodes)
		w.runProgram(operateCommand, env, false, "mark-ledger")
		w.runProgram(operateCommand, env, false, "try-page")
		w.checkStackCommands("describe-stacks", "get-template", "cancel-update-stack", "continue-update-rollback", "rollback-stack") // "make deploy" names the last three in its errors
	})
}
