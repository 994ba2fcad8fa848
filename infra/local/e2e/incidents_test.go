package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/local/ledgersock"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// printIncidents prints what the operator of each incident typed and read.
var printIncidents = flag.Bool("incidents.print", false, "print the transcripts of the incidents")

// incident is a running service with everything that can go wrong beside it, and an
// operator who has the runbook and nothing else.
type incident struct {
	*testing.T
	lab     *lab
	service *testbed.Process
	file    string // of the ledger
	node    *playNode
	broken  *httptest.Server // a node that does not answer
	typed   strings.Builder
}

// playNode is a node of the chain that the lab's money moves on, with transfers that
// others have made beside it.
type playNode struct {
	*httptest.Server
	mu    sync.Mutex
	extra []x402test.Transfer
}

func (n *playNode) add(t x402test.Transfer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.extra = append(n.extra, t)
}

func newIncident(t *testing.T, more func(*incident) map[string]string) *incident {
	t.Helper()
	verifyOnly(t, "runs make")
	if now := time.Now().UTC(); now.Add(5*time.Minute).Day() != now.Day() {
		t.Skip("the books are of one day, and this one is about to end")
	}
	i := &incident{T: t, lab: newLab(t), file: filepath.Join(t.TempDir(), "ledger.db"), node: &playNode{}}
	// The node's clock is some seconds ahead, so that nothing is too young for the books.
	i.node.Server = httptest.NewServer(chaintest.PlayNode{
		Moved: func() []x402test.Transfer {
			i.node.mu.Lock()
			defer i.node.mu.Unlock()
			return append(i.lab.facilitator.Transfers(), i.node.extra...)
		}, ChainID: 8453, Now: func() time.Time { return time.Now().Add(5 * time.Second) },
	})
	t.Cleanup(i.node.Close)
	i.broken = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(i.broken.Close)
	s := i.lab.setup()
	s.more = more(i)
	i.service = startLocal(t, i.lab, s, i.file)
	t.Cleanup(func() {
		if *printIncidents {
			fmt.Printf("\n== %s\n%s", t.Name(), i.typed.String())
		}
	})
	return i
}

// runs has the operator run a command of the runbook, and returns what it prints.
// want is the exit status.
func (i *incident) runs(want int, env []string, command string) string {
	i.Helper()
	i.inRunbook(command)
	cmd := exec.CommandContext(i.Context(), "bash", "-c", strings.Replace(command, "make ", "make -s ", 1))
	cmd.Dir = root
	cmd.Env = append(newcomer("LEDGER_FILE="+i.file, "RPC_URL="+i.node.URL), env...)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != want {
		i.Errorf("%s: exit status %d, want %d: %v\n%s", command, got, want, err, out)
	}
	i.say("$ %s%s\n%s", strings.Join(append(shown(env), ""), " "), command, out)
	return string(out)
}

// shown are the variables of a command line, without this test's addresses.
func shown(env []string) (list []string) {
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		list = append(list, name+"=…")
	}
	return list
}

func (i *incident) say(format string, args ...any) { fmt.Fprintf(&i.typed, format, args...) }

// placeholders turn what an operator types into what the runbook prints.
var placeholders = []struct {
	typed   *regexp.Regexp
	printed string
}{
	{regexp.MustCompile(`KEY='[^']+' TRANSACTION=0x[0-9a-f]+`), "KEY='…' TRANSACTION=0x…"},
	{regexp.MustCompile(`KEY='[^']+'`), "KEY='eip155:8453|0x…|0x…|0x…'"},
	{regexp.MustCompile(`WALLET=0x\w+`), "WALLET=0x…"},
	{regexp.MustCompile(`DAY=\S+`), "DAY=2026-11-20"},
}

// inRunbook holds a command to the runbook.
func (i *incident) inRunbook(command string) {
	i.Helper()
	text, err := os.ReadFile(filepath.Join(root, "infra", "RUNBOOK.md"))
	if err != nil {
		i.Fatal(err)
	}
	for _, p := range placeholders {
		if p.typed.MatchString(command) {
			command = p.typed.ReplaceAllString(command, p.printed)
			break
		}
	}
	if !strings.Contains(string(text), command) {
		i.Errorf("the runbook has no %q", command)
	}
}

// reads has what was printed say something.
func (i *incident) reads(out, want string) {
	i.Helper()
	if !strings.Contains(out, want) {
		i.Errorf("it does not say %q:\n%s", want, out)
	}
}

// ready asks /ready, and waits until it has a status: it remembers for some seconds
// what it was told.
func (i *incident) ready(want int) {
	i.Helper()
	for begun := time.Now(); ; {
		res, err := newClient().Get(i.service.URL + catalog.PathReady)
		if err != nil {
			i.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode == want {
			i.say("$ curl …/ready\n%s\n", body)
			return
		}
		if time.Since(begun) > patience {
			i.Fatalf("/ready is %d, want %d: %s", res.StatusCode, want, body)
		}
		<-time.After(time.Second)
	}
}

// balanced holds the books of today to no differences, and to what they come to.
func (i *incident) balanced(total string) {
	i.Helper()
	day := time.Now().UTC().Format(time.DateOnly)
	i.reads(i.runs(0, nil, "make books DAY="+day), total)
}

// customer pays for a lookup.
type customer struct {
	*incident
	client    *x402test.Client
	wallet    string
	url       string
	signature string
}

func (i *incident) customer(name string, script ...x402test.Behaviour) *customer {
	i.Helper()
	wallet, payer := i.lab.wallet(i.T, script...)
	c := &customer{incident: i, client: &x402test.Client{HTTP: newClient(), Wallet: wallet, Now: time.Now}, wallet: payer}
	c.url = i.service.URL + catalog.DNS().Path + "?" + url.Values{"domain": {name}}.Encode()
	var err error
	if c.signature, err = c.client.Sign(i.Context(), c.url); err != nil {
		i.Fatal(err)
	}
	i.lab.secret(c.signature)
	return c
}

// sends the payment, as often as it is told to come back, until it has an outcome:
// an error code, or empty for an answer.
func (c *customer) sends(want string) {
	c.Helper()
	got := ""
	for begun := time.Now(); time.Since(begun) < 2*patience; {
		reply, err := c.client.Get(c.Context(), c.url, c.signature)
		if err != nil {
			c.Fatal(err)
		}
		var body struct{ Error struct{ Code string } }
		got = ""
		if reply.Status != http.StatusOK {
			_ = json.Unmarshal(reply.Body, &body) // the code is what counts
			got = body.Error.Code
		}
		if got == want {
			c.say("(the payer gets %s)\n", map[bool]string{true: "the answer", false: got}[got == ""])
			return
		}
		<-time.After(max(reply.RetryAfter(), time.Second))
	}
	c.Fatalf("the payer got %q, want %q", got, want)
}

// TestIncidentCredentials: the facilitator refuses our credentials. The secret gets
// new ones, no deploy is needed, and the signatures that were turned away are paid
// once.
func TestIncidentCredentials(t *testing.T) {
	t.Parallel()
	v := &safe{token: "old"}
	secrets := httptest.NewServer(v)
	t.Cleanup(secrets.Close)
	i := newIncident(t, func(i *incident) map[string]string {
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+v.accepted() {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			i.lab.serveFacilitator(w, r)
		}))
		t.Cleanup(front.Close)
		return map[string]string{
			"FACILITATOR_URL": front.URL, "FACILITATOR_TOKEN": "", "AWS_ENDPOINT_URL_SECRETS_MANAGER": secrets.URL, "AWS_REGION": "eu-central-1",
			"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s",
			"FACILITATOR_SECRET_ARN": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:facilitator-AbCdEf",
		}
	})
	i.customer("healthy.lab.example.com").sends("")
	v.revoke("new")
	turned := i.customer("ok.healthy.lab.example.com")
	turned.sends("facilitator_unauthorized")
	i.ready(http.StatusServiceUnavailable)
	i.reads(i.runs(0, nil, "make owed"), "nothing is owed, and nothing in doubt")
	i.say("(the new value is written into the secret)\n")
	v.write("new")
	turned.sends("")
	i.ready(http.StatusOK)
	i.reads(i.runs(0, nil, "make owed"), "nothing is owed, and nothing in doubt")
	i.balanced("2 answers sold for $0.01, $0.01 received in 2 payments; no differences")
}

// safe is a Secrets Manager with one secret, and the token that the facilitator
// takes.
type safe struct {
	mu          sync.Mutex
	token, want string
}

func (v *safe) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	doc, _ := json.Marshal(map[string]string{"token": v.token}) // a map of texts
	_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": string(doc)})
}

func (v *safe) accepted() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.want == "" {
		return v.token
	}
	return v.want
}

func (v *safe) revoke(next string) { v.mu.Lock(); defer v.mu.Unlock(); v.want = next }
func (v *safe) write(token string) { v.mu.Lock(); defer v.mu.Unlock(); v.token = token }

// TestIncidentDoubt: a payment stays in doubt, because the node cannot be asked. With
// another node it is found paid, and its payer gets the answer.
func TestIncidentDoubt(t *testing.T) {
	t.Parallel()
	i := newIncident(t, func(i *incident) map[string]string { return map[string]string{"RPC_URL": i.broken.URL} })
	// Every resend is told that the nonce was used, which proves nothing.
	c := i.customer("healthy.lab.example.com", x402test.DropAfter)
	c.sends("settlement_uncertain")
	i.reads(i.runs(0, nil, "make owed"), "IN DOUBT")
	out := i.runs(0, []string{"RPC_URL=" + i.broken.URL}, "make reconcile")
	i.reads(out, "1 no evidence")
	i.reads(out, "node answered HTTP 502")
	i.reads(i.runs(0, nil, "make reconcile"), "1 found paid")
	i.reads(i.runs(0, nil, "make payer WALLET="+c.wallet), "is owed 1: GET /v1/tools/dns?domain=healthy.lab.example.com&type=A; the same signature, sent again, gets the answer until")
	c.sends("")
	i.reads(i.runs(0, nil, "make owed"), "nothing is owed, and nothing in doubt")
	i.balanced("1 answer sold for $0.005, $0.005 received in 1 payment; no differences")
}

// TestIncidentNoAnswer: two people say that they paid and got nothing. One can still
// have the answer, and the other is refunded.
func TestIncidentNoAnswer(t *testing.T) {
	t.Parallel()
	i := newIncident(t, func(i *incident) map[string]string { return map[string]string{"RPC_URL": i.node.URL} })
	const name = "refused.lab.example.com" // the resolver refuses to answer
	c := i.customer(name)
	c.sends("upstream_unavailable")
	i.reads(i.runs(0, nil, "make payer WALLET="+c.wallet), "the same signature, sent again, gets the answer until")
	i.lab.dns.heal(name)
	c.sends("")
	i.reads(i.runs(0, nil, "make payer WALLET="+c.wallet), "got 1 answer, and is owed nothing.")

	lost, key := i.unanswered()
	i.reads(i.runs(0, nil, "make payer WALLET="+lost), "a refund of $0.005 is due")
	i.reads(i.runs(0, nil, "make refund KEY='"+key+"'"), "amount   0.005 USDC (5000 atomic units)")
	back := "0x" + strings.Repeat("ab", 32)
	i.node.add(x402test.Transfer{
		Key: ledger.Key(i.lab.terms.Network, strings.ToLower(i.lab.terms.Asset), "0x"+strings.Repeat("99", 20), ""), Transaction: back,
		Payee: lost, Value: "5000", At: time.Now(),
	})
	i.say("(the transfer is made)\n")
	i.reads(i.runs(0, nil, "make refund KEY='"+key+"' TRANSACTION="+back), "closed: $0.005 went back")
	i.reads(i.runs(0, nil, "make payer WALLET="+lost), "was refunded 1 time ($0.005), and is owed nothing.")
	i.balanced("1 answer sold for $0.005, $0.01 received in 2 payments; no differences")
}

// unanswered is a payer of a payment whose lookups are used up.
func (i *incident) unanswered() (wallet, key string) {
	i.Helper()
	_, payer := i.lab.wallet(i.T)
	now := time.Now().UTC()
	t := i.lab.terms
	key = ledger.Key(t.Network, strings.ToLower(t.Asset), strings.ToLower(payer), fmt.Sprintf("0x%064x", 7))
	moved := x402test.Transfer{Key: key, Transaction: fmt.Sprintf("0x%064x", 7), Payee: t.PayTo, Value: "5000", At: now}
	i.node.add(moved)
	terms, err := json.Marshal(t.Requirements(moved.Value))
	if err != nil {
		i.Fatal(err)
	}
	r := ledgertest.First(key)
	r.State, r.Terms, r.Request = ledger.Settled, terms, "GET /v1/tools/dns?domain=example.com&type=A"
	r.Lookups, r.CreatedAt, r.SettledAt, r.UpdatedAt, r.LeaseUntil, r.ExpiresAt = ledger.MaxLookups, now, now, now, time.Time{}, time.Time{}
	r.LastFault = &ledger.Failure{Code: "upstream_unavailable", Message: "No resolver answered."}
	r.Receipt = &ledger.Receipt{Transaction: moved.Transaction, Payer: payer, Network: t.Network}
	c, err := ledgersock.Dial(i.Context(), i.file)
	if err != nil {
		i.Fatal(err)
	}
	defer c.Close()
	if old, err := c.Create(i.Context(), r); old != nil || err != nil {
		i.Fatalf("Create = %v, %v", old, err)
	}
	return payer, key
}
