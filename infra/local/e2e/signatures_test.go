package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/cloud"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/discovery"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// undeployedWallet is a wallet whose contract is not deployed yet. Its signatures begin with
// the data that deploys the contract, and end with the marker of ERC-6492.
type undeployedWallet struct {
	*run
	bank *deployer
}

// deployer is a facilitator that accepts the payments of undeployed wallets, as if it had
// deployed the contract and moved the money.
type deployer struct {
	network           string
	mu                sync.Mutex
	settledSignatures []string // the signatures of the payments
}

// answer accepts every payment, whatever its signature.
func (d *deployer) answer(r *testbed.Relayed) {
	var call struct {
		PaymentPayload x402.Payload `json:"paymentPayload"`
	}
	if r.Method == http.MethodPost {
		testbed.Check(json.Unmarshal(r.Sent, &call))
	}
	payment := call.PaymentPayload.Payload
	var reply any
	switch r.URL.Path {
	case "/verify":
		reply = map[string]any{"isValid": true, "payer": payment.Authorization.From}
	case "/settle":
		d.mu.Lock()
		d.settledSignatures = append(d.settledSignatures, payment.Signature)
		d.mu.Unlock()
		reply = x402.SettleResponse{Success: true, Transaction: "0x" + strings.Repeat("d", 64), Network: d.network, Payer: payment.Authorization.From}
	default:
		r.Pass()
		return
	}
	r.ResponseWriter.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(r.ResponseWriter).Encode(reply) // an error means that the service has ended
}

// signatures returns the signatures of the payments that the facilitator was asked to settle.
func (d *deployer) signatures() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.settledSignatures)
}

// signWithLength returns a payment for a path, with a signature of the given length in bytes.
// It also returns that signature.
func (u undeployedWallet) signWithLength(path string, length int) (header, signature string) {
	const mark = "6492649264926492649264926492649264926492649264926492649264926492"
	e := u.ask(http.MethodGet, path)
	header = testbed.Must(u.wallet.Seal(testbed.Must(u.wallet.Draft(testbed.Must(e.Required()), time.Now()))))
	p, _ := signedBy(header)
	signature = "0x" + strings.Repeat("5a", length-len(mark)/2) + mark
	p.Payload.Signature = signature
	header = testbed.Must(x402.EncodeHeader(p))
	u.lab.secrets.Add(header)
	return header, signature
}

// statusTooLong is the status of the gateway's answer to a request whose headers are too long.
var statusTooLong = http.StatusRequestHeaderFieldsTooLarge

// checkPreflights sends a preflight request for every operation, with the longest signature
// that the service's documents allow in a header. The request also has the headers of a
// browser, the longest idempotency key and the longest domain name. The gateway must let every
// such request pass.
func (u undeployedWallet) checkPreflights() {
	name := strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 57) + ".com"
	for _, op := range catalog.All() {
		path := strings.Replace(op.ExampleURL(""), "domain=example.com", "domain="+name, 1)
		header, _ := u.signWithLength(path, discovery.LongestInHeader)
		browser := strings.Repeat("x", 900)
		e := u.ask(http.MethodOptions, path, x402.HeaderSignature, header, x402.HeaderKey, strings.Repeat("k", 255), "User-Agent", browser)
		checkEqual(u, "status of a preflight of "+op.Slug, e.Status, http.StatusNoContent)
	}
}

// checkHTTP sends a signature that is longer than the service's documents allow in a header. A
// gateway must refuse the request. Without a gateway, the service must answer the request. It
// must refuse only a signature of more than x402.MaxSignature bytes.
func (u undeployedWallet) checkHTTP() {
	path := lookUp(u.domain, "A")
	long, signature := u.signWithLength(path, 2600)
	if u.deployment.host != nil {
		e := u.ask(http.MethodGet, path, x402.HeaderSignature, long)
		checkEqual(u, "status", e.Status, statusTooLong)
		checkEqual(u, "our code", testbed.FaultOf(e.Reply).Code, "")
		checkEqual(u, "payments that arrived", len(u.bank.signatures()), 0)
		return
	}
	e := u.ask(http.MethodGet, path, x402.HeaderSignature, long)
	checkEqual(u, "status", e.Status, http.StatusOK)
	checkEqual(u, "the signatures that arrived", strings.Join(u.bank.signatures(), " "), signature)
	tooLong, _ := u.signWithLength(path, x402.MaxSignature+1)
	e = u.ask(http.MethodGet, path, x402.HeaderSignature, tooLong, x402.HeaderKey, "another")
	checkEqual(u, "code", testbed.FaultOf(e.Reply).Code, string(fault.PaymentRequired))
	checkContains(u, "the refusal", string(e.Body), "payload.signature: must be 65 to 4096 bytes of hex")
	checkEqual(u, "payments that arrived", len(u.bank.signatures()), 1)
}

// checkTool checks that a signature of x402.MaxSignature bytes reaches the facilitator
// unchanged and is answered, and that a longer one is refused.
func (u undeployedWallet) checkTool() {
	before := len(u.bank.signatures())
	call := func(length int) (mcptest.ToolResult, string) {
		header, signature := u.signWithLength(catalog.DNS().Path, length)
		client := &x402test.Client{HTTP: u.client}
		return testbed.Must(mcptest.Call(u.Context(), client, u.deployment.base+catalog.PathMCP, catalog.DNS().Tool, map[string]any{"domain": "tool." + u.domain}, header, "")), signature
	}
	a, _ := call(x402.MaxSignature + 1)
	checkEqual(u, "is an error", a.IsError, true)
	checkContains(u, "the refusal", a.Text(), "payload.signature: must be 65 to 4096 bytes of hex")
	a, signature := call(x402.MaxSignature)
	if a.IsError || a.Text() != answerTo("tool."+u.domain) {
		u.Errorf("by the tool: %s", a.Raw)
	}
	checkEqual(u, "the signatures that arrived", strings.Join(u.bank.signatures()[before:], " "), signature)
}

// TestLongSignatures checks wallets with long signatures. The service's documents say which
// signatures are too long for HTTP. Wallets with such signatures can pay over MCP. All other
// wallets can pay over HTTP, even through a gateway.
func TestLongSignatures(t *testing.T) {
	t.Parallel()
	for world, open := range map[string]func(*testing.T, *lab, setup) *deployment{
		"local": func(t *testing.T, l *lab, s setup) *deployment { return openLocal(t, l, s) },
		"lambda": func(t *testing.T, l *lab, s setup) *deployment {
			db := cloud.StartDynamo(t)
			s.table, s.endpoint = db.Table(t), db.URL
			return openFunctions(t, l, s, nil)
		},
	} {
		t.Run(world, func(t *testing.T) {
			l := newLab(t)
			bank := &deployer{network: l.terms.Network}
			l.facilitator.URL = testbed.Serve(t, testbed.Relay{Do: bank.answer, To: l.facilitator})
			u := undeployedWallet{newRun(t, l, open(t, l, l.setup()), new(testbed.Pace)), bank}
			u.checkPreflights()
			u.checkHTTP()
			u.checkTool()
		})
	}
}
