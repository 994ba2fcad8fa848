package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/embedded"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// incident is a running service with everything that can go wrong beside it, and an
// operator who has the runbook and nothing else. go test -v prints what the operator
// typed and read.
type incident struct {
	*testing.T
	lab    *lab
	d      *deployment
	file   string // of the ledger
	chain  *httptest.Server
	broken string // a node that does not answer

	mu    sync.Mutex
	extra []x402test.Transfer // on the chain, made by others than the lab's payers
}

// newIncident starts the service. The lab's money moves on a chain whose clock is
// some seconds ahead, so that nothing is too young for the books.
func newIncident(t *testing.T, more func(*incident) map[string]string) *incident {
	t.Helper()
	verifyOnly(t, "runs make")
	if now := time.Now().UTC(); now.Add(5*time.Minute).Day() != now.Day() {
		t.Skip("the books are of one day, and this one is about to end")
	}
	i := &incident{T: t, lab: newLab(t), file: filepath.Join(t.TempDir(), "ledger.db")}
	i.chain = i.serves(chaintest.PlayNode{
		Moved: i.transfers, ChainID: 8453, Now: func() time.Time { return time.Now().Add(5 * time.Second) },
	}.ServeHTTP)
	i.broken = i.serves(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }).URL
	s := i.lab.setup()
	s.more = more(i)
	service := startLocal(t, i.lab, s, i.file)
	i.d = &deployment{base: service.URL, origin: service.URL}
	return i
}

// serves runs a server until the end of the test.
func (i *incident) serves(h http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(h)
	i.Cleanup(server.Close)
	return server
}

// transfers are all that is on the chain.
func (i *incident) transfers() []x402test.Transfer {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append(i.lab.facilitator.Transfers(), i.extra...)
}

func (i *incident) transferred(t x402test.Transfer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.extra = append(i.extra, t)
}

// runs has the operator run a command of the runbook, which succeeds and says some
// things.
func (i *incident) runs(env []string, command string, says ...string) {
	i.Helper()
	i.inRunbook(command)
	cmd := exec.CommandContext(i.Context(), "bash", "-c", strings.Replace(command, "make ", "make -s ", 1))
	cmd.Dir = root
	cmd.Env = append(newcomer("LEDGER_FILE="+i.file, "RPC_URL="+i.chain.URL), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		i.Errorf("%s: %v\n%s", command, err, out)
	}
	mentions(i.T, command, string(out), says...)
	i.Logf("$ %s\n%s", strings.Join(append(env, command), " "), out)
}

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
	mentions(i.T, "the runbook", string(text), command)
}

// ready asks /ready, and waits until it has a status: it remembers for some seconds
// what it was told.
func (i *incident) ready(want int) {
	i.Helper()
	client := newClient()
	defer client.CloseIdleConnections()
	poll(i.T, fmt.Sprintf("/ready to be %d", want), func() bool {
		e := i.d.get(i.T, client, catalog.PathReady, "")
		if e.status != want {
			<-time.After(time.Second)
			return false
		}
		i.Logf("$ curl …/ready\n%s", e.body)
		return true
	})
}

// balanced holds the books of today to no differences, and to what they come to.
func (i *incident) balanced(total string) {
	i.Helper()
	i.runs(nil, "make books DAY="+time.Now().UTC().Format(time.DateOnly), total)
}

// customer is somebody who has signed the offer of a lookup.
type customer struct{ *run }

func (i *incident) customer(name string, script ...x402test.Behaviour) customer {
	i.Helper()
	r := &run{TB: i.T, lab: i.lab, d: i.d, client: newClient(), id: fmt.Sprintf("customer%d", caseIDs.Add(1))}
	i.Cleanup(r.client.CloseIdleConnections)
	r.wallet, r.payer = i.lab.wallet(i.T, script...)
	r.sign(lookup(name, "A"), nil, nil)
	return customer{r}
}

// sends the payment, as often as he is told to come back, until it has an outcome:
// an error code, or empty for an answer.
func (c customer) sends(want fault.Code) {
	c.Helper()
	got := ""
	for begun := time.Now(); time.Since(begun) < 2*patience; {
		e := c.send(c.path)
		if got = codeOf(e); e.status == http.StatusOK {
			got = ""
		}
		if got == string(want) {
			c.Logf("(the payer gets %q)", got)
			return
		}
		c.pause(max((x402test.Reply{Header: e.header}).RetryAfter(), time.Second))
	}
	c.Fatalf("the payer got %q, want %q", got, want)
}

// TestIncidentCredentials: the facilitator refuses our credentials. The secret gets
// new ones, no deploy is needed, and the signatures that were turned away are paid
// once.
func TestIncidentCredentials(t *testing.T) {
	t.Parallel()
	var secret, accepted atomic.Value // tokens
	secret.Store("old")
	accepted.Store("old")
	i := newIncident(t, func(i *incident) map[string]string {
		front := i.serves(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != fmt.Sprint("Bearer ", accepted.Load()) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			i.lab.serveFacilitator(w, r)
		})
		manager := i.serves(func(w http.ResponseWriter, _ *http.Request) {
			text := fmt.Sprintf(`{"token":%q}`, secret.Load())
			_ = json.NewEncoder(w).Encode(map[string]string{"SecretString": text}) // the service may be gone
		})
		return map[string]string{
			"FACILITATOR_URL": front.URL, "FACILITATOR_TOKEN": "", "AWS_REGION": "eu-central-1",
			"AWS_ENDPOINT_URL_SECRETS_MANAGER": manager.URL, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s",
			"FACILITATOR_SECRET_ARN": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:facilitator-AbCdEf",
		}
	})
	i.customer("healthy.lab.example.com").sends("")
	accepted.Store("new")
	turned := i.customer("ok.healthy.lab.example.com")
	turned.sends(fault.FacilitatorUnauthorized)
	i.ready(http.StatusServiceUnavailable)
	i.runs(nil, "make owed", "nothing is owed, and nothing in doubt")
	i.Log("(the new value is written into the secret)")
	secret.Store("new")
	turned.sends("")
	i.ready(http.StatusOK)
	i.runs(nil, "make owed", "nothing is owed, and nothing in doubt")
	i.balanced("2 answers sold for $0.01, $0.01 received in 2 payments; no differences")
}

// TestIncidentDoubt: a payment stays in doubt, because the node cannot be asked. With
// another node it is found paid, and its payer gets the answer.
func TestIncidentDoubt(t *testing.T) {
	t.Parallel()
	i := newIncident(t, func(i *incident) map[string]string { return map[string]string{"RPC_URL": i.broken} })
	// Every resend is told that the nonce was used, which proves nothing.
	c := i.customer("healthy.lab.example.com", x402test.DropAfter)
	c.sends(fault.SettlementUncertain)
	i.runs(nil, "make owed", "IN DOUBT")
	i.runs([]string{"RPC_URL=" + i.broken}, "make reconcile", "1 no evidence", "node answered HTTP 502")
	i.runs(nil, "make reconcile", "1 found paid")
	i.runs(nil, "make payer WALLET="+c.payer, "is owed 1: GET /v1/tools/dns?domain=healthy.lab.example.com&type=A; the same signature, sent again, gets the answer until")
	c.sends("")
	i.runs(nil, "make owed", "nothing is owed, and nothing in doubt")
	i.balanced("1 answer sold for $0.005, $0.005 received in 1 payment; no differences")
}

// TestIncidentNoAnswer: two people say that they paid and got nothing. One can still
// have the answer, and the other is refunded.
func TestIncidentNoAnswer(t *testing.T) {
	t.Parallel()
	i := newIncident(t, func(i *incident) map[string]string { return map[string]string{"RPC_URL": i.chain.URL} })
	const name = "refused.lab.example.com" // the resolver refuses to answer
	c := i.customer(name)
	c.sends(fault.UpstreamUnavailable)
	i.runs(nil, "make payer WALLET="+c.payer, "the same signature, sent again, gets the answer until")
	i.lab.dns.heal(name)
	c.sends("")
	i.runs(nil, "make payer WALLET="+c.payer, "got 1 answer, and is owed nothing.")

	lost, key := i.unanswered()
	i.runs(nil, "make payer WALLET="+lost, "a refund of $0.005 is due")
	i.runs(nil, "make refund KEY='"+key+"'", "amount   0.005 USDC (5000 atomic units)")
	back := "0x" + strings.Repeat("ab", 32)
	i.transferred(x402test.Transfer{
		Key: ledger.Key(i.lab.terms.Network, strings.ToLower(i.lab.terms.Asset), "0x"+strings.Repeat("99", 20), ""), Transaction: back,
		Payee: lost, Value: "5000", At: time.Now(),
	})
	i.Log("(the transfer is made)")
	i.runs(nil, "make refund KEY='"+key+"' TRANSACTION="+back, "closed: $0.005 went back")
	i.runs(nil, "make payer WALLET="+lost, "was refunded 1 time ($0.005), and is owed nothing.")
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
	i.transferred(moved)
	terms, err := json.Marshal(t.Requirements(moved.Value))
	if err != nil {
		i.Fatal(err)
	}
	r := ledgertest.First(key)
	r.State, r.Terms, r.Request = ledger.Settled, terms, "GET /v1/tools/dns?domain=example.com&type=A"
	r.Lookups, r.CreatedAt, r.SettledAt, r.UpdatedAt, r.LeaseUntil, r.ExpiresAt = ledger.MaxLookups, now, now, now, time.Time{}, time.Time{}
	r.LastFault = &ledger.Failure{Code: "upstream_unavailable", Message: "No resolver answered."}
	r.Receipt = &ledger.Receipt{Transaction: moved.Transaction, Payer: payer, Network: t.Network}
	c, err := embedded.Dial(i.Context(), i.file)
	if err != nil {
		i.Fatal(err)
	}
	defer c.Close()
	if old, err := c.Create(i.Context(), r); old != nil || err != nil {
		i.Fatalf("Create = %v, %v", old, err)
	}
	return payer, key
}
