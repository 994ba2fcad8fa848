package x402http_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/ledgertest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// withEvidence returns a change of a seller's settings. The change sets Evidence to the
// transfers of the market's facilitator.
func withEvidence(m *market) func(*x402http.Config) {
	return func(c *x402http.Config) { c.Evidence, c.NoNode = m.books.Evidence(), false }
}

// TestNetworkAndNode checks the settings Network and NoNode. If Network is a known network, no
// setting about its token is needed. A seller without a node must set NoNode.
func TestNetworkAndNode(t *testing.T) {
	t.Parallel()
	const token = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	books := books().Evidence()
	for _, c := range []struct {
		change  x402http.Config
		want    x402.Requirements // without the fields that are the same in all cases
		wantErr string            // the error; "" means none
	}{
		{change: x402http.Config{}, want: x402.Requirements{Network: x402.Base, Asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", Extra: x402.Extra{Name: "USD Coin", Version: "2"}}},
		{change: x402http.Config{Network: x402.BaseSepolia}, want: x402.Requirements{Network: x402.BaseSepolia, Asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", Extra: x402.Extra{Name: "USDC", Version: "2"}}},
		{change: x402http.Config{Asset: token, AssetName: "Coin", AssetVersion: "1"}, want: x402.Requirements{Network: x402.Base, Asset: token, Extra: x402.Extra{Name: "Coin", Version: "1"}}},
		{change: x402http.Config{Asset: token}, wantErr: "x402http: Asset, AssetName and AssetVersion are all needed for a token that is not the USDC of eip155:8453"},
		{change: x402http.Config{Network: "eip155:1", NoNode: true}, wantErr: "x402http: Asset, AssetName and AssetVersion are all needed on eip155:1"},
		{change: x402http.Config{Asset: "0x12", AssetName: "Coin", AssetVersion: "1"}, wantErr: "x402http: Asset, AssetName and AssetVersion"},
		{
			change:  x402http.Config{Network: "eip155:1", Asset: token, AssetName: "Coin", AssetVersion: "1"},
			wantErr: "x402http: Evidence is missing, and no public node of eip155:1 is known: set Evidence to one of your own (chain.New), or set NoNode",
		},
		{
			change: x402http.Config{Network: "eip155:1", Asset: token, AssetName: "Coin", AssetVersion: "1", NoNode: true},
			want:   x402.Requirements{Network: "eip155:1", Asset: token, Extra: x402.Extra{Name: "Coin", Version: "1"}},
		},
		{
			change: x402http.Config{Network: "eip155:1", Asset: token, AssetName: "Coin", AssetVersion: "1", Evidence: books},
			want:   x402.Requirements{Network: "eip155:1", Asset: token, Extra: x402.Extra{Name: "Coin", Version: "1"}},
		},
		{change: x402http.Config{NoNode: true, Evidence: books}, wantErr: "x402http: Evidence and NoNode are both set"},
	} {
		config := c.change
		config.PayTo, config.Facilitator, config.Ledger, config.Log = payTo, "http://127.0.0.1:1", &ledgertest.Memory{}, quiet()
		config.Origin = "https://shop.example"
		seller, err := x402http.New(config)
		if c.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%+v: %v, want %q", c.change, err, c.wantErr)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c.change, err)
			continue
		}
		m := &market{T: t, shop: seller.Sell("0.01", newStock("sold"))}
		m.client = m.payer()
		got := must(m.client.Challenge(t.Context(), "https://shop.example/")).Accepts[0]
		c.want.Scheme, c.want.Amount, c.want.PayTo = x402.Scheme, "10000", payTo
		c.want.MaxTimeoutSeconds, c.want.Extra.PaymentFlow = x402.MaxTimeoutSeconds, x402.PaymentFlow
		if got != c.want {
			t.Errorf("%+v: offered %+v, want %+v", c.change, got, c.want)
		}
	}
}

// nameServer is a name server that answers no question, and records the questions that it
// gets.
type nameServer struct {
	mu    sync.Mutex
	asked []string
}

func (n *nameServer) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		question := make([]byte, 512)
		read, _ := io.ReadAtLeast(server, question, 16)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.asked = append(n.asked, string(question[:read]))
	}()
	return client, nil
}

func (n *nameServer) questions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// TestPublicNode checks that the public node of the network is asked about the chain if the
// settings name no other node. The node is not asked before a payment is in doubt. The test
// recognizes the node by the host name that the process looks up.
func TestPublicNode(t *testing.T) { //nolint:paralleltest // it replaces the resolver of the process
	asked := new(nameServer)
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: asked.dial}
	t.Cleanup(func() { net.DefaultResolver = before })
	if _, err := x402http.New(x402http.Config{
		PayTo: payTo, Network: x402.BaseSepolia, Ledger: &ledgertest.Memory{}, Origin: "https://shop.example", Log: quiet(),
	}); err != nil {
		t.Errorf("on a test network without Facilitator: %v", err)
	}
	for network, node := range map[string]string{"": "\x07mainnet\x04base\x03org", x402.BaseSepolia: "\x07sepolia\x04base\x03org"} {
		m := &market{T: t}
		terms := x402.Network(cmp.Or(network, x402.Base)).USDC
		terms.PayTo = payTo
		m.books = must(x402test.NewFacilitator(x402test.FacilitatorConfig{Terms: terms, Now: time.Now, Behave: func(int, string) x402test.Behaviour { return m.behaviour }}))
		m.client = m.payer()
		seller := m.seller(func(c *x402http.Config) { c.Network, c.NoNode = network, false })
		m.shop = seller.Sell("0.01", newStock("sold"))
		signature := m.sign("https://shop.example/")
		if len(asked.questions()) > 0 {
			t.Errorf("%q is asked for before a payment", asked.questions())
		}
		m.behaviour = x402test.FailBefore
		if r := m.get("https://shop.example/", signature); r.Status != http.StatusServiceUnavailable {
			t.Errorf("in doubt: %d %s", r.Status, r.Body)
		}
		if all := asked.questions(); len(all) == 0 || !strings.Contains(all[0], node) {
			t.Errorf("asked for %q, want %q", all, node)
		}
		asked.mu.Lock()
		asked.asked = nil
		asked.mu.Unlock()
	}
}

// TestLyingRefusal checks a facilitator that moves the money of a payment and yet says that it
// refuses the payment. The client buys again with the same Idempotency-Key 16 minutes later.
// With a node the client is charged once. Without a node the client is charged twice, and the
// first charge is counted among the refusals that could not be disproved.
func TestLyingRefusal(t *testing.T) {
	t.Parallel()
	for _, node := range []bool{true, false} {
		t.Run(fmt.Sprint("node ", node), func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				var changes []func(*x402http.Config)
				if node {
					changes = append(changes, withEvidence(m))
				}
				seller, sold := m.seller(changes...), newStock("sold")
				m.shop, m.key, m.behaviour = seller.Sell("0.01", sold), "0123456789abcdef", x402test.RefuseAfter
				first, _ := m.buy("https://shop.example/")
				m.behaviour = x402test.Honest
				time.Sleep(16 * time.Minute)
				second, _ := m.buy("https://shop.example/")
				found := must(seller.Reconcile(m.Context()))
				m.checkRefused("at once", first, "insufficient", false)
				m.checkAnswer("16 minutes later", second, "sold", false)
				if node {
					m.checkTransfers("10000")
				} else {
					m.checkTransfers("10000", "10000")
				}
				if lost := len(m.books.Transfers()) - 1; found.Unproven != lost || found.Failed+found.Uncounted+found.Open > 0 {
					t.Errorf("%+v, want %d unproven", found, lost)
				}
				sold.checkRuns(t, 1)
			})
		})
	}
}

// TestReconcilePlayMoney plays two payments, with the evidence of play money. The facilitator
// refuses the first payment, but moves its money. The second payment is in doubt, and never
// moves money. Reconcile must find the money of the first payment, whose payer then gets the
// answer. Once the second payment can no longer move money, Reconcile must decide that it is
// unpaid for good.
func TestReconcilePlayMoney(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		seller, sold := m.seller(withEvidence(m)), newStock("sold")
		m.shop = seller.Sell("0.01", sold)
		signatures := map[x402test.Behaviour]string{}
		for _, how := range []x402test.Behaviour{x402test.RefuseAfter, x402test.FailBefore} {
			m.behaviour, m.client = how, m.payer()
			_, signatures[how] = m.buy("https://shop.example/")
		}
		if found := must(seller.Reconcile(m.Context())); found.Open != 1 || found.StillOpen != 1 {
			t.Errorf("at once: %+v", found)
		}
		time.Sleep(6 * time.Minute)
		found := must(seller.Reconcile(m.Context()))
		if found.Found != 1 || found.Received != 1 || found.RefusedLate != 1 || found.Owed != 1 || found.Unread {
			t.Errorf("6 minutes later: %+v", found)
		}
		sold.checkRuns(t, 0)
		m.checkAnswer("what was refused and paid", m.get("https://shop.example/", signatures[x402test.RefuseAfter]), "sold", false)
		m.checkTransfers("10000")
	})
}

// TestCancelled checks a payer who cancels a refused payment. The facilitator then says that
// the authorization of the payment was used. With a node the payer gets no answer. Without a
// node the payer gets an answer, as the comment of NoNode says, and the log says that a used
// authorization counted as paid.
func TestCancelled(t *testing.T) {
	t.Parallel()
	for _, node := range []bool{true, false} {
		t.Run(fmt.Sprint("node ", node), func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				var changes []func(*x402http.Config)
				if node {
					changes = append(changes, withEvidence(m))
				}
				store, sold := &m.store, newStock("sold")
				m.shop, m.behaviour = m.seller(changes...).Sell("0.01", sold), x402test.Refuse
				refused, signature := m.buy("https://shop.example/")
				m.checkRefused("refused", refused, "insufficient", false)
				time.Sleep(3 * time.Second)
				changes = append(changes, func(c *x402http.Config) { c.Ledger, c.Settler = store, x402.One(saysNonceUsed{}) })
				m.shop = m.seller(changes...).Sell("0.01", sold)
				again := m.get("https://shop.example/", signature)
				m.checkTransfers()
				if node {
					sold.checkRuns(t, 0)
					if again.Status == http.StatusOK {
						t.Errorf("answered, and nothing has moved: %s", again.Body)
					}
					return
				}
				m.checkAnswer("cancelled", again, "sold", false)
				if m.countLogged("used_as_paid=true") != 1 {
					t.Error("the log does not say that a used authorization counted as paid")
				}
			})
		})
	}
}

// saysNonceUsed is a facilitator that says of every authorization that it was used.
type saysNonceUsed struct{ x402.Facilitator }

// Settle implements x402.Facilitator.
func (saysNonceUsed) Settle(context.Context, x402.Payload, x402.Requirements) x402.Settlement {
	return x402.Settlement{Class: x402.Refused, Reason: x402.ReasonNonceUsed, NonceUsed: true}
}
