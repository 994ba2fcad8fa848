package e2e

import (
	"encoding/hex"
	"math/big"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/sha3"

	"github.com/hostfacts/hostfacts/infra/chaintest"
	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// payer is somebody with an account on the node who pays for one lookup.
type payer struct {
	*chainWorld
	client  *x402test.Client
	account x402.Address // of the key, or of a contract
	funds   int64        // what was minted for the account
	name    string       // the lab name that is looked up
	path    string
	signed  chaintest.Signed
	header  string // PAYMENT-SIGNATURE
	first   exchange
	answers int    // that were not replays
	earlier int    // transfers before this payment was signed
	prefix  []byte // of a contract wallet's signatures
}

// dnsPrice is what one lookup costs, in atomic units.
func dnsPrice(tb testing.TB) int64 {
	n, err := strconv.ParseInt(catalog.DNS().Amount, 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// payer makes one, with ten lookups' worth of money.
func (w *chainWorld) payer() *payer {
	w.Helper()
	p := w.pauper()
	p.mint(10 * dnsPrice(w))
	return p
}

// pauper is a payer without money.
func (w *chainWorld) pauper() *payer {
	w.Helper()
	p := &payer{chainWorld: w, client: testbed.NewClient(w, w.pace.client())}
	p.account = p.client.Wallet.Address()
	p.name = w.id + "-" + p.account.String()[2:10] + "." + modeHealthy + strings.TrimSuffix(labDomain, ".")
	p.path = lookup(p.name, "A")
	w.Cleanup(p.client.HTTP.CloseIdleConnections)
	return p
}

// contract is a payer whose account is a contract that is owned by the key. The
// contract is deployed.
func (w *chainWorld) contract() *payer {
	w.Helper()
	p := w.pauper()
	var code struct{ Creation string }
	if err := testbed.ReadJSON(filepath.Join("testdata", "contracts", "wallet.json"), &code); err != nil {
		w.Fatal(err)
	}
	owner := p.account
	var receipt struct{ ContractAddress, Status string }
	w.ask(&receipt, "eth_sendTransactionSync", map[string]string{
		"from": chaintest.Account(8), "gas": "0x100000",
		"data": code.Creation + strings.Repeat("0", 24) + hex.EncodeToString(owner[:]),
	})
	if receipt.Status != "0x1" {
		w.Fatalf("deploy the wallet: %+v", receipt)
	}
	p.account, p.prefix = parseAddress(w, receipt.ContractAddress), []byte{1}
	p.mint(10 * dnsPrice(w))
	return p
}

func (p *payer) mint(value int64) {
	p.Helper()
	p.node.Mint(p, p.account, value)
	p.funds += value
}

// sign asks for the offer and signs it, to be used within a time; 0 is as long
// as the offer says.
func (p *payer) sign(window time.Duration) {
	p.Helper()
	required, err := p.client.Challenge(p.Context(), p.d.base+p.path)
	if err != nil {
		p.Fatal(err)
	}
	draft, err := p.client.Wallet.Draft(required, time.Now())
	if err != nil {
		p.Fatal(err)
	}
	a := &draft.Payload.Payload.Authorization
	a.From = p.account.Checksum()
	if window > 0 {
		a.ValidBefore = strconv.FormatInt(time.Now().Add(window).Unix(), 10)
	}
	digest, err := x402test.Digest(*a, draft.Terms)
	if err != nil {
		p.Fatal(err)
	}
	signature := append(append([]byte{}, p.prefix...), p.client.Wallet.Sign(digest)...)
	draft.Payload.Payload.Signature = "0x" + hex.EncodeToString(signature)
	if p.header, err = x402.EncodeHeader(draft.Payload); err != nil {
		p.Fatal(err)
	}
	p.lab.secret(p.header)
	p.signed = chaintest.Signed{Authorization: *a, Signature: signature}
	p.first, p.earlier = exchange{}, len(p.transfers())
}

// buy signs the offer, and gets the answer at once.
func (p *payer) buy() {
	p.Helper()
	p.sign(0)
	p.send(p.answer())
}

// get sends the payment. It may be called from any goroutine.
func (p *payer) get() (exchange, error) {
	r, err := p.client.Get(p.Context(), p.d.base+p.path, p.header)
	return exchange{method: http.MethodGet, path: p.path, status: r.Status, header: r.Header, body: r.Body}, err
}

// send sends the payment and holds the answer to w.
func (p *payer) send(w want) exchange {
	p.Helper()
	e, err := p.get()
	if err != nil {
		p.Fatalf("GET %s: %v", p.path, err)
	}
	p.check(e, w)
	return e
}

// begin sends the payment, and does not wait for the answer.
func (p *payer) begin() *sending {
	s := &sending{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.e, s.err = p.get()
	}()
	return s
}

// check holds an answer to w: code, what it says was charged, Retry-After,
// receipt with the hash that is on the chain.
func (p *payer) check(e exchange, w want) {
	p.Helper()
	s := subject{op: catalog.DNS(), origin: p.d.origin, terms: p.lab.terms, payer: p.account.Checksum(), before: p.first}
	if w.receipt && w.kind == aResult {
		s.hash = p.transfer()
	}
	check(p, e, w, s)
	if w.kind == aResult && !w.replay {
		p.first = e
		p.answers++
	}
}

// answer is the lookup's result.
func (p *payer) answer() want { return result(strings.ReplaceAll(healthy().body, "{name}", p.name)) }

// sendTwice sends the payment and wants a 402 whose reason comes from the chain, and
// whose PAYMENT-RESPONSE has the facilitator's own. Sent again it is refused from the
// record, and nobody is asked.
func (p *payer) sendTwice(reason, facilitators string) {
	p.Helper()
	for _, said := range []string{facilitators, reason} {
		e, err := p.get()
		if err != nil {
			p.Fatal(err)
		}
		w := refused(reason)
		s := subject{op: catalog.DNS(), origin: p.d.origin, terms: p.lab.terms}
		if e.status != http.StatusPaymentRequired {
			p.Errorf("status %d, want 402 (%s)\n%s", e.status, reason, e)
			return
		}
		checkEveryAnswer(p, e, w)
		checkOffer(p, e, w, s)
		var got x402.SettleResponse
		if err := decodeHeader(e.header.Get(x402.HeaderResponse), &got); err != nil {
			p.Errorf("PAYMENT-RESPONSE: %v", err)
		}
		want := x402.SettleResponse{ErrorReason: said, Network: chaintest.Network, Payer: p.account.Checksum()}
		if d := cmp.Diff(want, got); d != "" {
			p.Errorf("PAYMENT-RESPONSE: %s", d)
		}
	}
}

// wait waits as long as an answer asked for, which is not longer than a person
// would.
func (p *payer) wait(e exchange) {
	p.Helper()
	after := e.retryAfter()
	if after < time.Second || after > 10*time.Second {
		p.Fatalf("Retry-After is %s", after)
	}
	if err := rest(p.Context(), e); err != nil {
		p.Fatal(err)
	}
}

// books checks what has happened on the chain: how often the price went from
// the payer to the payee, and that nothing else did.
func (p *payer) books(transfers int) {
	p.Helper()
	moved := int64(transfers) * dnsPrice(p)
	if list := p.transfers(); len(list) != transfers {
		p.Errorf("%d transfers from the payer to the payee, want %d: %v", len(list), transfers, list)
	}
	if got := p.node.Balance(p, p.account); got.Cmp(big.NewInt(p.funds-moved)) != 0 {
		p.Errorf("the payer has %d, want %d", got, p.funds-moved)
	}
	if got := p.node.Balance(p, p.payee); got.Cmp(big.NewInt(moved)) != 0 {
		p.Errorf("the payee has %d, want %d", got, moved)
	}
}

// transfer is the hash of the one transfer since the payment was signed.
func (p *payer) transfer() string {
	p.Helper()
	list := p.transfers()[p.earlier:]
	if len(list) != 1 {
		p.Errorf("%d transfers from the payer to the payee, want 1: %v", len(list), list)
		return ""
	}
	return list[0]
}

// transfers are the transactions in which the token went from the payer to the
// payee, by its events.
func (p *payer) transfers() []string {
	p.Helper()
	topic := func(a x402.Address) string { return "0x" + strings.Repeat("0", 24) + a.String()[2:] }
	h := sha3.NewLegacyKeccak256()
	h.Write([]byte("Transfer(address,address,uint256)"))
	var logs []struct{ TransactionHash string }
	p.ask(&logs, "eth_getLogs", map[string]any{
		"fromBlock": "0x0", "toBlock": "latest", "address": chaintest.USDC,
		"topics": []string{"0x" + hex.EncodeToString(h.Sum(nil)), topic(p.account), topic(p.payee)},
	})
	hashes := make([]string, len(logs))
	for i, l := range logs {
		hashes[i] = l.TransactionHash
	}
	return hashes
}
