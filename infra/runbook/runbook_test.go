package runbook

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/deployed"
	"github.com/hostfacts/hostfacts/infra/testbed/payments"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// chapters returns the commands of the runbook by chapter. In the runbook, a command is
// indented by four spaces.
func chapters(t testing.TB) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	title := ""
	for line := range strings.Lines(runbook()) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			title = strings.TrimSpace(name)
			all[title] = nil
		} else if command, ok := strings.CutPrefix(line, "    "); ok && title != "" {
			all[title] = append(all[title], strings.Join(strings.Fields(command), " "))
		}
	}
	return all
}

// step says how to play one command of a chapter.
type step struct {
	command     string   // a part of the printed command that no other command in the chapter has
	before      func()   // called before the command runs; may be nil
	wantFailure bool     // whether the command must fail
	wantTexts   []string // texts that the command must print
}

// operator plays the commands of the runbook's chapters in the checkout.
type operator struct {
	env          map[string]string // the environment; a variable that one command sets stays set for later commands
	placeholders map[string]string // the values of the placeholders in the printed commands
}

// fillPlaceholders returns a printed text with values in place of its placeholders. It
// replaces the longest placeholder first, because one placeholder may begin with another,
// shorter one.
func (o *operator) fillPlaceholders(printed string) string {
	for _, word := range slices.SortedFunc(maps.Keys(o.placeholders), func(a, b string) int { return cmp.Compare(len(b), len(a)) }) {
		printed = strings.ReplaceAll(printed, word, o.placeholders[word])
	}
	return printed
}

// run runs a printed command, and returns what the command prints. When the test ends, run
// removes the signatures that "make pay" has kept in the checkout.
func (o *operator) run(t testing.TB, printed string) (string, error) {
	t.Helper()
	command := o.fillPlaceholders(printed)
	for {
		m := regexp.MustCompile(`^([A-Z_]+)=(\S*) `).FindStringSubmatch(command)
		if m == nil {
			break
		}
		o.env[m[1]], command = m[2], command[len(m[0]):]
	}
	if strings.ContainsAny(command, "<…") {
		t.Fatalf("a word of %q has no meaning here: %q", printed, command)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = testbed.Root()
	cmd.Env = append(testbed.Environment(o.env), "HOME="+os.Getenv("HOME"), "GOFLAGS="+os.Getenv("GOFLAGS"), "GOCACHE="+os.Getenv("GOCACHE"))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	for _, kept := range regexp.MustCompile(`(?m)^kept: +(\S+) `).FindAllStringSubmatch(string(out), -1) {
		t.Cleanup(func() { testbed.Check(os.Remove(filepath.Join(testbed.Root(), kept[1]))) })
	}
	return string(out), err
}

// mustRun runs a command that the runbook does not print, and that must succeed.
func (o *operator) mustRun(t testing.TB, command string) {
	t.Helper()
	if out, err := o.run(t, command); err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
}

// playChapter runs all commands of a chapter in their order. There must be a step for each
// command, in the same order. Two steps in a row may run the same command.
func (o *operator) playChapter(t testing.TB, printed []string, steps []step) {
	t.Helper()
	i := 0
	for _, s := range steps {
		again := i > 0 && strings.Contains(printed[i-1], s.command) && (i == len(printed) || !strings.Contains(printed[i], s.command))
		if again {
			i--
		}
		if i == len(printed) || !strings.Contains(printed[i], s.command) {
			t.Fatalf("command %d is not %q in %q", i, s.command, printed)
		}
		if s.before != nil {
			s.before()
		}
		out, err := o.run(t, printed[i])
		if (err != nil) != s.wantFailure {
			t.Fatalf("%s: %v\n%s", printed[i], err, out)
		}
		for _, part := range s.wantTexts {
			if part = o.fillPlaceholders(part); !strings.Contains(out, part) {
				t.Fatalf("%s does not say %q:\n%s", printed[i], part, out)
			}
		}
		i++
	}
	if i != len(printed) {
		t.Errorf("not played: %q", printed[i:])
	}
}

// world is a ledger in an emulated table, with its payer and its chain.
type world struct {
	t         testing.TB
	api       *dynamodb.Client
	store     ledger.Store
	payer     *x402test.Wallet
	safeAge   atomic.Int64 // the age of the newest safe block of the chain, in nanoseconds
	mu        sync.Mutex
	transfers []x402test.Transfer
}

// addPayment adds a payment to the chain: a transfer to the payee. It returns the key of the
// payment and the hash of the transaction.
func (w *world) addPayment(at time.Time) (key, transaction string) {
	nonce := strings.ToLower(testbed.Must(x402test.NewWallet(rand.Reader)).Address().String()[2:])
	key = ledger.Key("eip155:8453", strings.ToLower(testbed.BaseUSDC), w.payer.Address().String(), "0x"+strings.Repeat("0", 24)+nonce)
	w.addTransfer(key, "0x"+nonce+strings.Repeat("1", 24), boot.LocalPayTo, at)
	return key, "0x" + nonce + strings.Repeat("1", 24)
}

// addTransfer adds a transfer to the chain.
func (w *world) addTransfer(key, transaction, to string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.transfers = append(w.transfers, x402test.Transfer{Key: key, Transaction: transaction, Payee: to, Value: "5000", At: at})
}

// claimPayment adds a payment to the ledger, as if the payment had been claimed at the given
// time.
func (w *world) claimPayment(key string, at time.Time) *ledger.Hold {
	return payments.Claim(w.t, ledger.New(w.store, func() time.Time { return at }, rand.Text), key, at)
}

// stackTemplate is the template of a stack that the test creates only to delete it.
const stackTemplate = `{"Resources":{"Topic":{"Type":"AWS::SNS::Topic"}}}`

// TestRunbookIsPlayed runs the commands of the runbook as they are printed, against an
// emulator of AWS that can restore a table. Other tests run some of the commands: playRunbook
// lists those. A command that is neither run here nor in that list fails the test.
func TestRunbookIsPlayed(t *testing.T) {
	t.Parallel()
	runOnEmulator(t, playRunbook)
}

func playRunbook(t testing.TB, emulator cloud.Dynamo) {
	var expired atomic.Int32 // how many of the next DescribeTable calls fail as if the session had expired
	server := testbed.Serve(t, testbed.Relay{To: testbed.ProxyTo(t, emulator.URL), Do: func(r *testbed.Relayed) {
		if !strings.HasSuffix(r.Request.Header.Get("X-Amz-Target"), ".DescribeTable") || expired.Add(-1) < 0 {
			r.Pass()
			return
		}
		r.ResponseWriter.Header().Set("Content-Type", "application/x-amz-json-1.0")
		r.WriteHeader(http.StatusBadRequest)
		const token = "com.amazonaws.dynamodb.v20120810#ExpiredTokenException"
		_, _ = io.WriteString(r.ResponseWriter, `{"__type":"`+token+`","message":"The security token included in the request is expired"}`)
	}})
	facilitator := testbed.StartFacilitator(t)
	w := &world{t: t, api: dynamo.NewClient(emulator.Config()), payer: testbed.Must(x402test.NewWallet(rand.Reader))}
	testbed.Check(dynamo.Create(t.Context(), w.api, "ledger"))
	w.store = emulator.Open("ledger")
	node := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		testbed.PlayNode{ChainID: 8453, Now: time.Now, Safe: time.Duration(w.safeAge.Load()), Moved: func() []x402test.Transfer {
			w.mu.Lock()
			defer w.mu.Unlock()
			return append(slices.Clone(w.transfers), facilitator.Transfers()...)
		}}.ServeHTTP(rw, r)
	})
	names := testbed.Resolver(t, testbed.ReadZone(t, "com. 30 NS a.gtld-servers.net."))
	o := &operator{env: deployed.CLIVariables(t, emulator.URL), placeholders: map[string]string{
		"<Ledger>": "ledger", "<table>": "ledger", "<the payee>": boot.LocalPayTo,
		"AWS_REGION=…": "AWS_REGION=" + cloud.DynamoRegion, "RPC_URL=…": "RPC_URL=" + node, "https://mainnet.base.org": node,
		" KEY_FILE=…": "", "<the list so far>": "", "WALLET=0x…": "WALLET=" + w.payer.Address().String(),
	}}
	maps.Copy(o.env, map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB": server, "AWS_ENDPOINT_URL_SECRETS_MANAGER": emulator.URL,
		"AWS_ACCESS_KEY_ID": cloud.DynamoKeyID, "AWS_SECRET_ACCESS_KEY": cloud.DynamoSecret,
	})
	// startService starts the service with a table as its ledger.
	startService := func(table string) {
		p := testbed.Must(programs.Start(testbed.Local(testbed.Program(t, testbed.LocalRunner), t.TempDir(), o.env, map[string]string{
			"LEDGER_TABLE": table, "AWS_REGION": cloud.DynamoRegion, "FACILITATOR_URL": facilitator.URL, "RPC_URL": node, "DNS_RESOLVERS": names,
		})))
		t.Cleanup(func() { p.End(t) })
		testbed.Check(p.Ready())
		o.placeholders["https://api.example.com"] = p.URL
	}

	// A day ago somebody paid and got no answer. An hour ago a payment was left in doubt.
	// Below, two more payments are made after the time to which the table is restored: the
	// payer of one gets an answer, and the payer of the other gets none.
	now := time.Now()
	long, ago := now.Add(-25*time.Hour), now.Add(-time.Hour)
	owed, owedIn := w.addPayment(long)
	h := w.claimPayment(owed, long)
	testbed.Check(h.Settled(t.Context(), ledger.Receipt{Transaction: owedIn}, true))
	testbed.Check(h.Release(t.Context(), ledger.Failure{Code: "dns_timeout", Message: "m"}))
	doubt, _ := w.addPayment(ago)
	testbed.Check(w.claimPayment(doubt, ago).End(t.Context(), ledger.EventUncertain, "timeout", ""))
	w.safeAge.Store(int64(50 * time.Minute))
	backFor := map[string]string{}
	back := func(key string) func() {
		return func() {
			backFor[key] = "0x" + strings.Repeat("b", 40) + strings.Repeat("2", 24-len(backFor)) + strings.Repeat("3", len(backFor))
			w.addTransfer(ledger.Key("eip155:8453", strings.ToLower(testbed.BaseUSDC), testbed.Account(5), ""), backFor[key], w.payer.Address().String(), time.Now())
			o.placeholders["KEY='…' TRANSACTION=0x…"] = "KEY='" + key + "' TRANSACTION=" + backFor[key]
			o.placeholders["<its refund>"] = backFor[key]
		}
	}
	o.placeholders["eip155:8453|0x…|0x…|0x…"] = owed
	var answered, unanswered, answeredIn string

	playedSteps := map[string][]step{
		"Payments that are owed": {
			{"make owed", nil, true, []string{"table ledger has no point-in-time recovery and no protection from deletion", "aws dynamodb update-continuous-backups --table-name ledger"}},
			{"make owed", func() { protect(t, emulator, "ledger") }, false, []string{"1 owed in DynamoDB table ledger, 1 of them for more than an hour, refunds due: 1, in doubt: 1", "make refund KEY='" + owed + "'"}},
			{"make refund KEY='eip155", nil, false, []string{"a refund has begun: the payer can no longer get the answer\namount   0.005 USDC"}},
			{"TRANSACTION=0x…", back(owed), false, []string{"closed: $0.005 went back to"}},
		},
		"In doubt for hours":       {{"make reconcile", nil, false, []string{"1 found paid"}}},
		`"I paid and got nothing"`: {{"make payer", nil, false, []string{"was refunded 1 time ($0.005), and is owed 1", "the same request, sent again, can get the answer"}}},
		"Changes while payments are in flight": {
			{"make secret", func() {
				token := filepath.Join(t.TempDir(), "token")
				testbed.Check(os.WriteFile(token, []byte("a-token-of-the-facilitator"), 0o600))
				o.placeholders["SET=token"] = "SET=token YES=1 FILE=" + token
			}, false, []string{"+ token (sha256 ", "FacilitatorSecretArn=arn:aws:secretsmanager:"}},
			{"make receipt-key", nil, false, []string{"RECEIPT_KEY", "RECEIPT_PUBLIC_KEYS"}},
		},
		"The books of a day": {{"make books", func() {
			o.placeholders["DAY=2026-11-20"] = "DAY=" + long.UTC().Format(time.DateOnly)
		}, false, []string{"no differences"}}},
		"Restoring the table": {
			{"DRILL=1", nil, false, []string{"ledger-drill is deleted: the drill is over"}},
			{"AT=2026", func() { expired.Store(1) }, true, []string{"ExpiredTokenException", "The same command continues where this one stopped"}},
			{"AT=2026", func() {
				o.env["LEDGER_TABLE"] = "ledger-copy"
				out, err := o.run(t, "make owed")
				if err == nil || !strings.Contains(out, "finish it: make restore TO=ledger-copy, with LEDGER_TABLE naming the original") {
					t.Errorf("a copy that is not finished: %v\n%s", err, out)
				}
				o.placeholders[" AT=2026-11-20T08:00:00Z"] = "" // the emulator can restore only the present state, so the command must run without AT
			}, false, []string{"ledger-copy is there already", "deploy with LedgerTableName=ledger-copy"}},
			{"make reconcile", func() {
				recent := now.Add(-30 * time.Minute)
				answered, answeredIn = w.addPayment(recent)
				unanswered, _ = w.addPayment(recent)
				w.safeAge.Store(int64(time.Second))
			}, false, []string{"2 without a request: a refund is due"}},
			{"make smoke", func() { startService("ledger-copy") }, false, []string{"ledger           ok", `"ok": true`}},
			{"make owed", func() {
				maps.Copy(o.placeholders, map[string]string{"<answered>": answered, "<its payment>": answeredIn, "<unanswered>": unanswered, "<that day>": now.Add(-30 * time.Minute).UTC().Format(time.DateOnly)})
			}, false, []string{"make refund KEY='<answered>'", "make refund KEY='<unanswered>'"}},
			{"make answered", nil, false, []string{"closed: $0.005 of " + w.payer.Address().Checksum() + " was answered"}},
			{"make refund KEY='<unanswered>'", nil, false, []string{"a refund has begun"}},
			{"TRANSACTION=<its refund>", func() { back(unanswered)() }, false, []string{"closed: $0.005 went back to"}},
			{"make books", func() {
				out, err := o.run(t, "make owed")
				if err != nil || !strings.Contains(out, "\n1 owed in DynamoDB table ledger-copy, 0 of them for more than an hour, refunds due: 0, in doubt: 0\n") {
					t.Errorf("at the end: %v\n%s", err, out)
				}
			}, false, []string{"no differences"}},
		},
		"The end of the service": {
			{"make owed", func() {
				o.placeholders["<Ledger>"], o.placeholders["<did.json>"] = "ledger-copy", filepath.Join(t.TempDir(), "did.json")
				o.placeholders["<secret>"] = "hostfacts-production-facilitator"
				back(doubt)()
				o.mustRun(t, "make refund KEY='"+doubt+"' TRANSACTION="+backFor[doubt])
				o.mustRun(t, "aws cloudformation create-stack --stack-name hostfacts-production --template-body '"+stackTemplate+"'")
			}, false, []string{"nothing is owed and nothing is in doubt"}},
			{"make books", nil, false, []string{"no differences"}},
			{"curl ", nil, false, nil},
			{"aws cloudformation delete-stack", func() { o.mustRun(t, "grep did:web: <did.json>") }, false, nil},
			{"aws cloudformation wait", nil, false, nil},
			{"aws secretsmanager delete-secret", nil, false, []string{"DeletionDate"}},
			{"aws dynamodb update-table", nil, false, []string{`"DeletionProtectionEnabled": false`}},
			{"aws dynamodb delete-table", nil, false, []string{`"TableName": "ledger-copy"`}},
		},
	}
	// commandsElsewhere lists, for each chapter, the commands that this test does not run. The
	// comment on a line names the test that runs them. If a line lists no commands, its
	// comment names the test that checks the chapter in another way.
	commandsElsewhere := map[string][]string{
		"Releases":               {"make smoke STACK=<name> KEY_FILE=…"}, // TestMake of infra/deploy
		"Rollback":               {"make rollback STACK=<name>"},         // TestRollback of infra/deploy
		"Configuration":          nil,                                    // TestRunbookSettings, TestRunbookContext
		"Alarms":                 {"make mark-ledger"},                   // TestRunbook, TestGameDay; TestMarkLedger of infra/local/operate
		"Where to look first":    nil,                                    // TestDashboard of infra/cdk
		"How much it sells":      nil,                                    // TestCapacity
		"What a year costs":      nil,                                    // TestReadmeCosts
		"What an attack costs":   nil,                                    // no test: it is a table of prices
		"Payments that are owed": {"make backup TO=/backups/ledger.db"},  // TestBackup of infra/local/operate
		// TestFormerTerms of pkg/boot covers the next line.
		"Changes while payments are in flight":     {"sam deploy --parameter-overrides FormerTerms=2026-11-20T08:15:00Z,dns=5000,ping=1000"},
		"What is lost with a region or an account": nil, // no test: there is nothing to run
		"Deploy for production": {
			"make deploy STACK=<name>",       // TestMake of infra/deploy
			"make try-page",                  // TestTryPage of infra/local/operate
			"sam local invoke DnsFunction",   // this needs Docker; TestColdStartAsksNobody sends the same event
			"make local-invoke FN=dns",       // TestTrial
			"make local-invoke FN=dns SAM=1", // TestTrial
		},
	}
	all := chapters(t)
	checkAllCommands(t, all, playedSteps, commandsElsewhere)
	for _, title := range []string{"Payments that are owed", "In doubt for hours", `"I paid and got nothing"`, "The books of a day", "Changes while payments are in flight", "Restoring the table", "The end of the service"} {
		here := slices.DeleteFunc(slices.Clone(all[title]), func(c string) bool {
			return slices.ContainsFunc(commandsElsewhere[title], func(known string) bool { return strings.Contains(c, known) })
		})
		o.playChapter(t, here, playedSteps[title])
		delete(playedSteps, title)
	}
	if len(playedSteps) > 0 {
		t.Errorf("not played: %v", slices.Collect(maps.Keys(playedSteps)))
	}
}

// checkAllCommands checks that each chapter of the runbook is played here, or that other tests
// run all of its commands. Each command in commandsElsewhere must be a command of its chapter.
func checkAllCommands(t testing.TB, all map[string][]string, playedSteps map[string][]step, commandsElsewhere map[string][]string) {
	t.Helper()
	for title, printed := range all {
		for _, known := range commandsElsewhere[title] {
			if !slices.ContainsFunc(printed, func(c string) bool { return strings.Contains(c, known) }) {
				t.Errorf("%s: no command %q", title, known)
			}
		}
		if known, ok := commandsElsewhere[title]; playedSteps[title] == nil && (!ok || len(printed) != len(known)) {
			t.Errorf("%s: no test runs %q", title, printed)
		}
	}
}
