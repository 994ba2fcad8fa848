package gameday

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/dynamo"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/limit"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// world holds everything that belongs to one scenario.
type world struct {
	testing.TB
	facilitator    *facilitator
	chain          *door // the door in front of a chain node
	paymentsHidden atomic.Bool
	table          *table
	name           string // name of the table
	db             cloud.Dynamo
	resolver       *resolver
	front          *front
	receiptKey     atomic.Pointer[string] // the key for receipts, which is in the facilitator's secret
	host           *cloud.Host
	url            string // URL of the gateway
	openTime       time.Time
	series         *measurements
	http           *http.Client

	turnstile *turnstile

	mu    sync.Mutex
	procs map[string]*cloud.Execution // the process that handles the payment, by payer
	// crashes names the functions whose processes are killed when they get an event.
	crashes map[string]bool
}

type stage struct {
	db      cloud.Dynamo
	ca      *testbed.Authority
	n       atomic.Int32 // how many worlds have been opened so far
	gateway gatewayLog
	// turnstile is shared by the payers of all worlds, because the worlds share the processors.
	turnstile *turnstile
}

// open returns a new world. Its configuration is that of production, except for the addresses of
// the servers around it.
func (s *stage) open(t testing.TB) *world {
	n := byte(s.n.Add(1))
	own := func(last byte, port int) string { return fmt.Sprintf("127.1.%d.%d:%d", n, last, port) }
	web := net.IPv4(93, 184, n, 34)
	rdap := net.IPv4(93, 184, n, 35)
	public := net.IPv4(93, 184, n, 36)
	w := &world{
		TB: t, openTime: time.Now(), db: s.db, name: s.db.Table(t), series: &measurements{gateway: s.gateway},
		turnstile: s.turnstile, procs: map[string]*cloud.Execution{}, crashes: map[string]bool{},
		http: &http.Client{Timeout: 2 * patience, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}},
	}
	w.facilitator = newFacilitator(t, own(9, 8080))
	w.chain = serve(t, own(6, 8545), hidePayments(w.facilitator.node(time.Minute, time.Now), &w.paymentsHidden), nil)
	w.table = newTable(t, own(8, 8000), s.db.URL, s.turnstile.makeRoom)
	w.resolver = newResolver(t, own(1, 53), web, rdap, public)
	w.front = newFront(t, s.ca, public)
	secure := &tls.Config{GetCertificate: s.ca.For}
	serve(t, net.JoinHostPort(web.String(), "443"), http.HandlerFunc(serveOrigin), secure)
	serve(t, net.JoinHostPort(rdap.String(), "443"), http.HandlerFunc(serveRegistry), secure)
	file := serve(t, own(7, 80), http.HandlerFunc(serveBootstrap), nil)
	w.setReceiptKey(0)
	secrets := serve(t, own(10, 80), http.HandlerFunc(w.serveSecret), nil)
	w.host = cloud.Deployment{
		Functions: testbed.Functions(t),
		Parameters: map[string]string{
			"AWS::StackName": stack, "Ledger": w.name, "RpcUrl": "http://" + w.chain.addr, "DnsResolvers": w.resolver.addr,
			"FacilitatorUrl": "http://" + w.facilitator.addr, "RdapBootstrapUrl": "http://" + file.addr + "/dns.json",
			"FacilitatorSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:gameday-AbCdEf", "ReceiptPublicKeys": receipt.FormatPublic(receiptKey(0).Public().(ed25519.PublicKey)),
		},
		Environment: map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://" + w.table.addr, "AWS_ENDPOINT_URL_SECRETS_MANAGER": "http://" + secrets.addr, "SSL_CERT_FILE": s.ca.File},
		Logs:        w.series, OnEnd: w.series.recordEnd, OnEvent: w.recordPayment,
	}.Open(t)
	w.url = w.host.URL
	w.front.gateway = testbed.ProxyTo(t, w.url)
	w.markTable(stack, boot.LocalPayTo)
	return w
}

// markTable marks the ledger as belonging to a stack and a payee.
func (w *world) markTable(name, payee string) {
	table := boot.Table{Name: w.name, AWS: w.db.Config()}
	if _, err := table.SetMark(w.Context(), boot.Mark{Stack: name, Payee: payee, Origin: "https://" + frontName, Written: w.openTime, By: "gameday"}, true); err != nil {
		w.Fatal(err)
	}
}

// receiptKey returns a key that signs receipts. The key for seed 0 is published.
func receiptKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

// setReceiptKey puts the key for receipts into the facilitator's secret. Functions that start
// from now on get that key.
func (w *world) setReceiptKey(seed byte) {
	text := receipt.FormatKey(receiptKey(seed))
	w.receiptKey.Store(&text)
}

// serveSecret answers requests to Secrets Manager.
func (w *world) serveSecret(out http.ResponseWriter, _ *http.Request) {
	doc, err := json.Marshal(map[string]string{"token": "gameday", "receipt_key": *w.receiptKey.Load()})
	if err == nil {
		err = json.NewEncoder(out).Encode(map[string]string{"SecretString": string(doc)})
	}
	if err != nil {
		w.Error(err)
	}
}

// recordPayment records which process gets a payment. If the function of the process must crash,
// recordPayment kills the process.
func (w *world) recordPayment(p *cloud.Execution, event []byte) {
	w.series.recordBegin()
	var e struct{ Headers map[string]string }
	_ = json.Unmarshal(event, &e) // the event of a schedule has no headers
	w.mu.Lock()
	if paid, err := x402.DecodePayment(e.Headers[strings.ToLower(x402.HeaderSignature)]); err == nil {
		w.procs[paid.From.String()] = p
	}
	crash := w.crashes[p.Of]
	w.mu.Unlock()
	if crash {
		p.Kill()
	}
}

// processOf returns the process that got the payment of a payer, or nil if no process has got
// it.
func (w *world) processOf(payer string) *cloud.Execution {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.procs[payer]
}

// setCrashing sets whether the processes of some functions are killed when they get an event.
func (w *world) setCrashing(yes bool, functions ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range functions {
		w.crashes[f] = yes
	}
}

// restart kills every process, as a deployment does. The next events start new ones.
func (w *world) restart() {
	for _, f := range w.host.Names() {
		w.host.Kill(f)
	}
}

// reconcileFunction is the function that a schedule calls.
const reconcileFunction = "ReconcileFunction"

func (w *world) reconcile() error {
	event, err := os.ReadFile(filepath.Join(testbed.Root(), "events", "reconcile.json"))
	must(w, err)
	_, _, err = w.host.Call(reconcileFunction, event)
	return err
}

func (w *world) get(path string) (int, []byte) {
	r, err := testbed.Ask(w.Context(), w.http, http.MethodGet, w.url+path)
	must(w, err)
	return r.Status, r.Body
}

type debt struct {
	Key, Payer, Amount, Standing string
	RefundDue                    bool `json:"refund_due"`
}

// listDebts returns the debts that "make owed" lists for the world's table, by payer.
func (w *world) listDebts() map[string]debt {
	var list []debt
	w.operate(&list, nil, "owed")
	debts := map[string]debt{}
	for _, d := range list {
		if d.Standing != "in_doubt" { // a payment in doubt is no debt yet
			debts[strings.ToLower(d.Payer)] = d
		}
	}
	return debts
}

// operate runs the operator's command on the world's table and decodes its output. It does not
// use the table's door, which may be shut.
func (w *world) operate(into any, env []string, arguments ...string) {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for {
		cmd := exec.CommandContext(ctx, testbed.Program(w, operatorCommand), append([]string{arguments[0], "-json"}, arguments[1:]...)...)
		cmd.Env = append(env, testbed.Environment(w.db.Settings(w.name))...)
		var notes bytes.Buffer
		cmd.Stderr = &notes
		out, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 3 { // the ledger and the chain differ
			err = nil
		}
		if err == nil {
			err = json.Unmarshal(out, into)
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			w.Fatalf("%v: %v\n%s", arguments, err, notes.String())
		}
	}
}

func (w *world) logFaults() {
	if crash := programs.Crash(w.series.log()); crash != "" {
		w.Errorf("the functions' log says: %s", crash)
	}
	for _, err := range w.series.faults {
		w.Error(err)
	}
}

// settleDelay is the shortest time that a payer waits before coming back. Retry-After may ask for
// more.
const settleDelay = 100 * time.Millisecond

// repeatDelay is longer than the time for which the ledger repeats a first refusal or failure.
const repeatDelay = 1100 * time.Millisecond

// node returns a node of the play-money chain. A block is safe once it has reached the given
// age.
func (f *facilitator) node(safe time.Duration, now func() time.Time) http.Handler {
	return testbed.PlayNode{Moved: f.books.Transfers, ChainID: 8453, Now: now, Safe: safe}
}

type tally struct{ Count int }

// checkBooks checks the output of "make books". The output must have no differences, count
// every transfer, and count the debts that "make owed" lists. Because "make books" leaves out
// transfers that are too recent, checkBooks gives it a node whose blocks are safe at once and
// whose clock is ahead.
func (c scenario) checkBooks(w *world, out *outcome) {
	node := httptest.NewServer(w.facilitator.node(0, func() time.Time { return time.Now().Add(5 * time.Second) }))
	defer node.Close()
	received := 0
	answered := 0
	owed := 0
	now := time.Now().UTC()
	for day := w.openTime.UTC().Truncate(24 * time.Hour); !day.After(now); day = day.AddDate(0, 0, 1) {
		var b struct { // some fields of the output of make books
			Received, Answered tally
			AnswerOwed         tally `json:"answer_owed"`
			RefundDue          tally `json:"refund_due"`
			InDoubt            tally `json:"in_doubt"`
			Unchecked          int
			Count              int `json:"difference_count"`
		}
		w.operate(&b, []string{"RPC_URL=" + node.URL, "PAY_TO=" + boot.LocalPayTo}, "books", day.Format(time.DateOnly))
		received = received + b.Received.Count
		answered = answered + b.Answered.Count
		owed = owed + b.AnswerOwed.Count + b.RefundDue.Count
		if b.Count != 0 || b.Unchecked != 0 || b.InDoubt.Count != 0 {
			w.Errorf("make books names differences, or doubts, in the end: %+v", b)
		}
	}
	// On a busy machine, an answer may be too late to be recorded. The command "make books"
	// counts that answer as owed at once. The command "make owed" lists the answer only when the
	// payment's lease has ended. So "make books" may count more debts than "make owed" lists.
	moved := len(w.facilitator.books.Transfers())
	late := strings.Count(w.series.log(), `"unrecorded":true`)
	if received != moved || answered != moved-owed || owed < len(out.owedAtEnd) || owed > len(out.owedAtEnd)+late {
		w.Errorf("%d transfers, %d debts, %d answers unrecorded; make books says: %d received, %d answered, %d owed", moved, len(out.owedAtEnd), late, received, answered, owed)
	}
}

// The functions below reach the world's table without its door, which may be shut.

func (w *world) store() *dynamo.Table { return w.db.Open(w.name) }

// bundlePlaces is the template's default for the number of bundle requests that may run at
// once.
const bundlePlaces = 20

// takePlaces returns a breakage in which all n places for concurrent requests of an operation
// are taken.
func takePlaces(operation string, n int) breakage {
	var leases []limit.Lease
	for i := range n {
		leases = append(leases, limit.Lease{ID: fmt.Sprintf("%04d-elsewhere", i), Until: time.Unix(4_000_000_000, 0)})
	}
	return breakage{
		beginFault: func(w *world) {
			for _, l := range leases {
				if _, ok, err := w.store().Acquire(w.Context(), operation, l, n); err != nil || !ok {
					w.Fatalf("a place is not free: %v", err)
				}
			}
		},
		repairFault: func(w *world) { must(w, w.store().Remove(w.Context(), operation, leases...)) },
	}
}

// strangeRecord returns a breakage with a record that reconcile cannot deal with: a payment in
// doubt with an unreadable key. The repair marks the payment as refused.
func strangeRecord() breakage {
	puts := func(version int64, state ledger.State) func(w *world) {
		return func(w *world) {
			past := time.Now().Add(-time.Hour)
			ledgertest.MustPut(w, w.store(), ledger.Payment{
				Row: ledger.Row{Key: "eip155:1|strange|strange|strange", Version: version, WriteID: rand.Text(), CreatedAt: past, UpdatedAt: past}, State: state, AuthDigest: "a", SigDigest: "s",
				Request: "GET /", Terms: json.RawMessage("{}"), ValidBefore: past.Add(time.Minute),
			})
		}
	}
	return breakage{beginFault: puts(1, ledger.Uncertain), repairFault: puts(2, ledger.Refused)}
}

// exhaustLookups changes the record of each payment so that no lookup is left for the payment.
func exhaustLookups(w *world, payers []*payer) {
	debts := w.listDebts()
	for _, p := range payers {
		r := ledgertest.Payment(w, w.store(), debts[p.address].Key)
		if r == nil || r.State != ledger.Settled || r.Lookups != 1 || r.LastFault == nil {
			w.Fatalf("the record of a payer who is owed is %+v", r)
		}
		r.MostLookups = r.Lookups
		r.Version = r.Version + 1
		r.WriteID = rand.Text()
		ledgertest.MustPut(w, w.store(), *r)
	}
}
