package testbed

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// LocalTerms returns the terms of the local runner, for a facilitator that must accept the
// payments to that runner. The payee is an account of the development mnemonic
// (boot.LocalPayTo).
func LocalTerms(tb testing.TB) x402.Terms {
	return Terms(Address(tb, Account(1)))
}

// Facilitator is the play-money facilitator. It counts the settlements of each payer. A test
// can plan how each settlement ends.
type Facilitator struct {
	*x402test.Facilitator
	URL string // the URL for FACILITATOR_URL; empty if the facilitator does not listen

	mu    sync.Mutex
	plans map[string][]x402test.Behaviour // how the next settlements of each payer end; see Plan
	calls map[string]int
}

// NewFacilitator returns a facilitator with the local runner's terms and this machine's clock. It
// does not listen.
func NewFacilitator(tb testing.TB) *Facilitator { return newFacilitator(LocalTerms(tb)) }

func newFacilitator(terms x402.Terms) *Facilitator {
	f := &Facilitator{
		plans: map[string][]x402test.Behaviour{},
		calls: map[string]int{},
	}
	config := x402test.FacilitatorConfig{
		Terms:  terms,
		Now:    time.Now,
		Behave: f.behave,
	}
	f.Facilitator = Must(x402test.NewFacilitator(config))
	return f
}

// StartFacilitator is like NewFacilitator, but the facilitator listens until the test ends.
func StartFacilitator(tb testing.TB) *Facilitator {
	f := NewFacilitator(tb)
	f.URL = Serve(tb, f)
	return f
}

// StartFacilitatorOn is like StartFacilitator, but the token is the USDC of the given network.
// Package x402 must know this network.
func StartFacilitatorOn(tb testing.TB, network string) *Facilitator {
	terms := x402.Network(network).USDC
	terms.PayTo = LocalTerms(tb).PayTo
	f := newFacilitator(terms)
	f.URL = Serve(tb, f)
	return f
}

// Plan sets how the next settlements of a payer end. The payer "" stands for every payer who
// has no plan. Settlements that are not planned are honest.
func (f *Facilitator) Plan(payer string, next ...x402test.Behaviour) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plans[strings.ToLower(payer)] = next
}

func (f *Facilitator) behave(_ int, key string) x402test.Behaviour {
	f.mu.Lock()
	defer f.mu.Unlock()
	payer := keyPayer(key)
	f.calls[payer]++
	for _, p := range []string{payer, ""} {
		if next := f.plans[p]; len(next) > 0 {
			f.plans[p] = next[1:]
			return next[0]
		}
	}
	return x402test.Honest
}

// Asked returns how many settlements were requested for a payer.
func (f *Facilitator) Asked(payer string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[strings.ToLower(payer)]
}

// Moved returns the transfers that a payer has made.
func (f *Facilitator) Moved(payer string) []x402test.Transfer {
	var list []x402test.Transfer
	for _, t := range f.Transfers() {
		if keyPayer(t.Key) == strings.ToLower(payer) {
			list = append(list, t)
		}
	}
	return list
}

// keyPayer returns the payer from a ledger key, in lower case.
func keyPayer(key string) string {
	return strings.Split(key+"||", "|")[2] // a key has the network, asset, payer and nonce
}

// CallPayer returns the payer that the body of a call to a facilitator names, in lower case. It
// returns "" if the body names none.
func CallPayer(body []byte) string {
	var q struct {
		PaymentPayload x402.Payload `json:"paymentPayload"`
	}
	_ = json.Unmarshal(body, &q) // the facilitator reports an invalid body
	return strings.ToLower(q.PaymentPayload.Payload.Authorization.From)
}

// NewClient returns a paying client that has a new wallet and sends its requests with the
// given HTTP client.
func NewClient(tb testing.TB, client *http.Client) *x402test.Client {
	wallet := Must(x402test.NewWallet(rand.Reader))
	return &x402test.Client{HTTP: client, Wallet: wallet, Now: time.Now}
}
