package gameday

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// world is everything that one scenario has to itself.
type world struct {
	testing.TB
	facilitator *facilitator
	chain       *door // to a node
	untold      atomic.Bool
	table       *table
	name        string // of the table
	db          testbed.Dynamo
	resolvers   *resolvers
	receiptKey  atomic.Pointer[string] // what the secret of the facilitator holds
	host        *testbed.Host
	url         string // of the gateway
	opened      time.Time
	series      *measured
	http        *http.Client

	turnstile *turnstile

	mu     sync.Mutex
	payers map[string]*payer             // by address, those who pay while it is broken
	procs  map[string]*testbed.Execution // PAYMENT-SIGNATURE -> who has it
	// crashes kills a process that is handed an event, by function.
	crashes map[string]bool
}

type stage struct {
	db      testbed.Dynamo
	ca      *testbed.Authority
	n       atomic.Int32 // worlds
	gateway gatewayLog
	// turnstile is for the payers of all worlds: the cores are the same.
	turnstile *turnstile
}

// open makes a world. The configuration is production's, but for who is asked.
func (s *stage) open(t testing.TB) *world {
	t.Helper()
	n := byte(s.n.Add(1))
	own := func(last byte, port int) string { return fmt.Sprintf("127.1.%d.%d:%d", n, last, port) }
	web, rdap := net.IPv4(93, 184, n, 34), net.IPv4(93, 184, n, 35)
	w := &world{
		TB: t, opened: time.Now(), db: s.db, name: s.db.Table(t), series: &measured{gateway: s.gateway},
		turnstile: s.turnstile, payers: map[string]*payer{}, procs: map[string]*testbed.Execution{}, crashes: map[string]bool{},
		http: &http.Client{Timeout: 2 * patience, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}},
	}
	w.facilitator = newFacilitator(t, own(9, 8080))
	w.chain = serve(t, own(6, 8545), untelling(w.facilitator.node(time.Minute, time.Now), &w.untold), nil)
	w.table = newTable(t, own(8, 8000), s.db.URL, s.turnstile.passed)
	w.resolvers = newResolvers(t, []string{own(1, 53), own(2, 53), own(3, 53)}, web, rdap)
	secure := &tls.Config{GetCertificate: s.ca.For}
	serve(t, net.JoinHostPort(web.String(), "443"), http.HandlerFunc(origin), secure)
	serve(t, net.JoinHostPort(rdap.String(), "443"), http.HandlerFunc(registry), secure)
	file := serve(t, own(7, 80), http.HandlerFunc(bootstrap), nil)
	w.sign(receiptKey())
	secrets := serve(t, own(10, 80), http.HandlerFunc(w.secret), nil)
	w.host = testbed.Deployment{
		Functions: builtIn("functions"),
		Parameters: map[string]string{
			"AWS::StackName": stack, "Ledger": w.name, "RpcUrl": "http://" + w.chain.addr, "DnsResolvers": w.resolvers.addr,
			"FacilitatorUrl": "http://" + w.facilitator.addr, "RdapBootstrapUrl": "http://" + file.addr + "/dns.json",
			"FacilitatorSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:gameday-AbCdEf", "ReceiptPublicKeys": receipt.FormatPublic(receiptKey().Public().(ed25519.PublicKey)),
		},
		Environment: map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://" + w.table.addr, "AWS_ENDPOINT_URL_SECRETS_MANAGER": "http://" + secrets.addr, "SSL_CERT_FILE": s.ca.File},
		Logs:        w.series, OnEnd: w.series.ended, OnEvent: w.handed,
	}.Open(t)
	w.url = w.host.URL
	return w
}

// receiptKey is a private key whose public half is published, and otherKey one whose
// is not.
func receiptKey() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

func otherKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
}

// sign gives the functions that start from now on a key to sign receipts with.
func (w *world) sign(key ed25519.PrivateKey) {
	text := receipt.FormatKey(key)
	w.receiptKey.Store(&text)
}

// secret answers for Secrets Manager.
func (w *world) secret(out http.ResponseWriter, _ *http.Request) {
	doc, err := json.Marshal(map[string]string{"token": "gameday", "receipt_key": *w.receiptKey.Load()})
	if err == nil {
		err = json.NewEncoder(out).Encode(map[string]string{"SecretString": string(doc)})
	}
	if err != nil {
		w.Error(err)
	}
}

// handed notes which process an event goes to, and kills it if it is to crash.
func (w *world) handed(p *testbed.Execution, event []byte) {
	var e struct{ Headers map[string]string }
	_ = json.Unmarshal(event, &e) // a schedule's has none
	w.mu.Lock()
	if s := e.Headers[strings.ToLower(x402.HeaderSignature)]; s != "" {
		w.procs[s] = p
	}
	crash := w.crashes[p.Of]
	w.mu.Unlock()
	if crash {
		p.Kill()
	}
}

// pays is the process that has a payment of who pays from an address while it is
// broken, and nil for anybody else.
func (w *world) pays(address string) (p *payer, at *testbed.Execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p = w.payers[address]; p != nil {
		at = w.procs[p.signature]
	}
	return p, at
}

func (w *world) newcomer(op catalog.Operation, n int) *payer {
	w.Helper()
	p := w.newPayer(op, n)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.payers[p.address] = p
	return p
}

func (w *world) crash(yes bool, functions ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range functions {
		w.crashes[f] = yes
	}
}

// restart ends every process, as a deployment does.
func (w *world) restart() {
	for _, f := range w.host.Names() {
		w.host.Kill(f)
	}
}

// reconcileFunction is the one that a schedule calls.
const reconcileFunction = "ReconcileFunction"

func (w *world) reconcile() error {
	event, err := os.ReadFile(filepath.Join(root, "events", "reconcile.json"))
	must(w, err)
	_, _, err = w.host.Call(reconcileFunction, event)
	return err
}

func (w *world) get(path string) (int, []byte) {
	w.Helper()
	q, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+path, nil)
	must(w, err)
	res, err := w.http.Do(q)
	must(w, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(w, err)
	return res.StatusCode, body
}

type debt struct {
	Key, Payer, Amount, Standing string
	RefundDue                    bool `json:"refund_due"`
}

// owed is what make owed lists of the world's table, by payer.
func (w *world) owed() map[string]debt {
	w.Helper()
	var list []debt
	w.operate(&list, nil, "owed")
	debts := map[string]debt{}
	for _, d := range list {
		if d.Standing != "in_doubt" { // no debt yet
			debts[strings.ToLower(d.Payer)] = d
		}
	}
	return debts
}

// operate runs the operator's command over the world's table, past its door, and
// decodes what it prints. A machine so busy that nothing answers in time is not what
// this is about.
func (w *world) operate(into any, env []string, arguments ...string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for {
		cmd := exec.CommandContext(ctx, builtIn("operate"), append([]string{arguments[0], "-json"}, arguments[1:]...)...)
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
	w.Helper()
	if crash := testbed.Crash(w.series.log()); crash != "" {
		w.Errorf("the functions' log says: %s", crash)
	}
	for _, err := range w.series.faults {
		w.Error(err)
	}
}

// settleDown is how long to wait before a payer who was not told comes back.
const settleDown = 100 * time.Millisecond

// ledgerRepeats is longer than the first spacing of refusals and lookups.
const ledgerRepeats = 1100 * time.Millisecond
