package e2e

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/hostfacts/hostfacts/infra/dynamotest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/dynamotable"
	"github.com/hostfacts/hostfacts/pkg/fault"
	limitdynamo "github.com/hostfacts/hostfacts/pkg/limit/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// patientCall bounds a call of the store, and patientAttempt an attempt at it.
// They are longer than those in use, of which a call whose first reply is late
// has half a second left for all that follows: a machine that is busy with
// something else takes that for nothing.
const patientCall, patientAttempt = 4 * dynamotable.DefaultTimeout, 3 * dynamotable.DefaultAttemptTimeout

func patientClient(db dynamotest.Server) *dynamodb.Client {
	c := db.ClientConfig()
	c.AttemptTimeout = patientAttempt
	return dynamotable.NewClient(c)
}

// openOnTable runs the handlers in this process as package boot wires them for
// a table. The clock is the test's, and the time-outs of the store are.
func openOnTable(tb testing.TB, l *lab, s setup, db dynamotest.Server, table string) *deployment {
	tb.Helper()
	server := httptest.NewUnstartedServer(nil)
	env := map[string]string{"BASE_URL": "http://" + server.Listener.Addr().String()}
	for _, line := range tableEnvironment(s, db, table) {
		name, value, _ := strings.Cut(line, "=")
		env[name] = value
	}
	config, err := boot.ReadLocal(func(name string) string { return env[name] })
	if err != nil {
		tb.Fatal(err)
	}
	var log testbed.Output
	client := patientClient(db)
	stores := boot.Stores{
		Ledger: dynamo.New(dynamo.Config{API: client, Table: table, Timeout: patientCall}),
		Limits: limitdynamo.New(limitdynamo.Config{API: client, Table: table, Timeout: patientCall}),
	}
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	parts, err := config.Parts(stores, slog.New(slog.NewJSONHandler(&log, nil)), now)
	if err != nil {
		tb.Fatal(err)
	}
	server.Config.Handler = whole(tb, parts)
	server.Start()
	tb.Cleanup(func() {
		server.Close()
		l.checkLog(tb, log.String())
	})
	return &deployment{base: server.URL, origin: server.URL, skip: func(d time.Duration) { ahead.Add(int64(d)) }}
}

// accident is a way in which one write can go wrong.
type accident struct {
	name    string
	mishaps []mishap
	// lasting: the write's fate stays unknown for as long as a call of the
	// store may take, so that whoever began it cannot finish it.
	lasting bool
}

func accidents() []accident {
	return []accident{
		{"reply dropped", []mishap{dropped}, false},
		{"reply late", []mishap{late}, false},
		{"request reset", []mishap{reset}, false},
		{"request forgotten", []mishap{forgotten}, false},
		{"reply dropped twice", []mishap{dropped, dropped}, false},
		{"request reset twice", []mishap{reset, reset}, true},
		{"reply late twice", []mishap{late, late}, true},
		{"reset, then dropped", []mishap{reset, dropped}, false},
		{"dropped, then reset", []mishap{dropped, reset}, false},
	}
}

func paidWrites() []string {
	return []string{writeClaim, writeOpen, writeFirst, writePlace, writeSettled, writeRelease, writeRedeem}
}

// TestLostReply lets each write of a paid request go wrong in each way. The one
// client, who is alone, gets the answer; money moves once; nothing that was
// learnt is forgotten.
func TestLostReply(t *testing.T) {
	t.Parallel()
	verifyOnly(t, "needs Node for the DynamoDB server")
	db := dynamotest.Start(t)
	l := newLab(t)
	store := func(table string) *dynamo.Store {
		return dynamo.New(dynamo.Config{API: dynamotable.NewClient(db.ClientConfig()), Table: table, Timeout: patience})
	}
	for _, write := range paidWrites() {
		for _, a := range accidents() {
			t.Run(write+": "+a.name, func(t *testing.T) {
				t.Parallel()
				fairly(t, func(tb testing.TB, p *pace) {
					table := db.Table(tb)
					at, url := newTap(tb, db)
					d := openOnTable(tb, l, l.setup(), dynamotest.Server{URL: url}, table)
					loseReply(tb, p, l, d, at, store(table), write, a)
				})
			})
		}
	}
}

// loseReply plays one accident. Without a lasting one nobody is told to wait for
// the stored answer after he has got the first.
func loseReply(t testing.TB, pc *pace, l *lab, d *deployment, p *tap, store *dynamo.Store, write string, a accident) {
	t.Helper()
	r := &run{TB: t, lab: l, d: d, client: pc.client(), id: fmt.Sprint("lost", caseIDs.Add(1), strings.ReplaceAll(write+a.name, " ", ""))}
	r.id = strings.ReplaceAll(r.id, ",", "")
	defer r.client.CloseIdleConnections()
	if write != writeFirst { // the operation has had a lease before
		r.wallet, r.payer = l.wallet(t)
		r.sign(lookup("example.com", "A"), nil, nil)
		r.check(r.send(r.path), result(""))
	}
	r.wallet, r.payer = l.wallet(t)
	r.sign(r.fill(lookup("{healthy}", "A")), named, nil)
	p.arm(write, a.mishaps...)
	begun := time.Now()
	told := persistAlone(r, a)
	took := time.Since(begun)
	if suffered, seen := p.harm(); suffered != len(a.mishaps) {
		t.Errorf("%d attempts met with a mishap, want %d; seen %v", suffered, len(a.mishaps), seen)
	}
	// Whatever the store missed is made good when the client comes again.
	again := untilReplayed(r)
	if again > 0 && !a.lasting {
		t.Errorf("the stored answer had to be waited for %d times", again)
	}
	record, err := store.Fetch(t.Context(), keyOf(t, l, r.header))
	if err != nil || record == nil {
		t.Fatalf("record: %v", err)
	}
	is(t, "state", record.State, ledger.Redeemed)
	if record.Receipt == nil || record.Receipt.Transaction != l.facilitator.Moved(r.payer)[0].Transaction {
		t.Errorf("receipt %+v", record.Receipt)
	}
	if err := l.books(r.payer, "5000", 1, 1); err != nil {
		t.Error(err)
	}
	lookups := 1
	if again > 0 {
		lookups = 2 // the first answer was served and never written down
	}
	is(t, "lookups", l.dns.lookups(r.name), lookups)
	t.Logf("answered in %s after %v; then %d times 409 until the stored answer", took.Round(time.Millisecond), told, again)
}

// persistAlone sends the payment until it is answered, with the clock set
// forward instead of waiting. It returns what the client was told on the way.
func persistAlone(r *run, a accident) (told []string) {
	r.Helper()
	for range 20 {
		e := r.send(r.path)
		if e.status == http.StatusOK {
			w := result(r.fill(healthy().body))
			if e.header.Get(x402.HeaderReplayed) != "" {
				w, r.first = w.replayed(), e
			}
			r.check(e, w)
			return told
		}
		code := codeOf(e)
		told = append(told, code)
		switch {
		case code == string(fault.LedgerUnavailable):
		case code == string(fault.PaymentInProgress) && a.lasting:
		default:
			r.Errorf("the client is told %s", e)
		}
		if !a.lasting && len(told) > 1 {
			r.Errorf("the client was told to come back %v", told)
		}
		r.d.skip((x402test.Reply{Header: e.header}).RetryAfter())
	}
	r.Fatalf("no answer: %v", told)
	return nil
}

// untilReplayed asks again until the stored answer comes, and returns how often
// it was told that the payment is in progress.
func untilReplayed(r *run) (busy int) {
	r.Helper()
	answered := result(r.fill(healthy().body))
	for range 20 {
		e := r.send(r.path)
		switch {
		case e.header.Get(x402.HeaderReplayed) != "":
			r.check(e, answered.replayed())
			return busy
		case e.status == http.StatusOK && busy > 0:
			r.check(e, answered)
		case e.status == http.StatusConflict:
			busy++
			r.check(e, fails(fault.PaymentInProgress).charge(moved))
			r.d.skip((x402test.Reply{Header: e.header}).RetryAfter())
		default:
			r.Fatalf("an answered payment gets %s", e)
		}
	}
	r.Fatal("the answer is not stored")
	return 0
}
