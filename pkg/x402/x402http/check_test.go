package x402http_test

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/mcptest"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// ticketShop sells tickets at /ticket, over HTTP and as a tool. Its check refuses every
// request unless hasTickets is true, and panics if isCheckBroken is true.
type ticketShop struct {
	*market
	tickets       *stock
	hasTickets    bool
	isCheckBroken bool
	url           string
}

func (m *market) openTicketShop() *ticketShop {
	b := &ticketShop{market: m, tickets: newStock("row 7"), hasTickets: true, url: "http://shop.example/ticket"}
	s, mux := m.seller(), http.NewServeMux()
	sold := s.Sell("0.01", b.tickets, x402http.Check(b.check))
	mux.Handle("GET /ticket", sold)
	mux.Handle("POST /mcp", s.MCP("box", "1.0", mux, x402http.Tool{Endpoint: sold, Path: "/ticket", Name: "ticket", Description: "A ticket."}))
	m.shop = mux
	return b
}

func (b *ticketShop) check(w http.ResponseWriter, _ *http.Request) {
	if b.isCheckBroken {
		panic("the check is broken")
	}
	if !b.hasTickets {
		x402http.Refuse(w, http.StatusGone, "sold out")
	}
}

// checkSoldOut checks that an answer is the refusal of the check, and that nothing was
// charged.
func (b *ticketShop) checkSoldOut(what string, r x402test.Reply) {
	b.Helper()
	if receipt, _ := r.Receipt(); r.Status != http.StatusGone || string(r.Body) != "sold out" || receipt.Success {
		b.Errorf("%s: %d %v %s", what, r.Status, r.Header, r.Body)
	}
}

// TestLastTicket checks a buyer who has bought the last ticket. The buyer gets that ticket
// again, with the same signature and with a new one, although all tickets are sold. Another
// payer is refused, and not charged.
func TestLastTicket(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		b := m.openTicketShop()
		r, signature := b.buy(b.url)
		b.checkAnswer("the last ticket", r, "row 7", false)
		anew := b.sign(b.url)
		b.hasTickets = false
		b.checkAnswer("the same signature", b.get(b.url, signature), "row 7", true)
		b.checkAnswer("a new signature", b.get(b.url, anew), "row 7", true)
		b.client.Wallet = must(x402test.NewWallet(rand.Reader))
		r, _ = b.buy(b.url)
		b.checkSoldOut("somebody else", r)
		b.checkTransfers("10000")
		b.tickets.checkRuns(b, 1)
	})
}

// TestTicketOwed checks that a payer gets a ticket that was paid for and is still owed, even
// when the check refuses other buyers.
func TestTicketOwed(t *testing.T) {
	t.Parallel()
	for name, anew := range map[string]bool{"the same signature": false, "a new signature": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInMarket(t, func(m *market) {
				b := m.openTicketShop()
				b.tickets.isEmpty = true
				_, signature := b.buy(b.url)
				if anew {
					signature = b.sign(b.url)
				}
				b.hasTickets, b.tickets.isEmpty = false, false
				time.Sleep(2 * time.Second)
				b.checkAnswer("paid before", b.get(b.url, signature), "row 7", false)
				b.checkTransfers("10000")
			})
		})
	}
}

// TestWalletFilledTooLate plays a payment that the facilitator refuses, because the wallet is
// empty. Then the wallet is filled, but the tickets are sold out. If the payer now repeats the
// payment, it must not be sent again: the payer would be charged for nothing. Once there are
// tickets again, the same payment buys one.
func TestWalletFilledTooLate(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		b := m.openTicketShop()
		b.behaviour = x402test.Refuse
		r, signature := b.buy(b.url)
		b.checkRefused("an empty wallet", r, "insufficient_balance", false)
		b.hasTickets, b.behaviour = false, x402test.Honest
		for range 3 {
			time.Sleep(15 * time.Second)
			b.checkSoldOut("the wallet is filled", b.get(b.url, signature))
			r, _ = b.buy(b.url)
			b.checkSoldOut("signed again", r)
		}
		b.checkTransfers()
		if all, _ := b.books.Settles(); all != 1 {
			b.Errorf("%d settlements were asked for, want 1", all)
		}
		b.hasTickets = true
		b.checkAnswer("there are tickets again", b.get(b.url, signature), "row 7", false)
		b.checkTransfers("10000")
	})
}

// TestBrokenCheck checks that a panic of the check is an internal error: no money moves, and
// the same payment buys a ticket once the check works again.
func TestBrokenCheck(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		b := m.openTicketShop()
		b.isCheckBroken = true
		signature := b.sign(b.url)
		r := b.get(b.url, signature)
		if receipt, _ := r.Receipt(); r.Status != http.StatusInternalServerError || !strings.Contains(string(r.Body), `"charged":false`) || receipt.Success {
			b.Errorf("%d %v %s", r.Status, r.Header, r.Body)
		}
		called := must(mcptest.Call(b.Context(), b.client, "http://shop.example/mcp", "ticket", nil, "", ""))
		if !called.IsError || !strings.Contains(called.Text(), "internal_error") {
			b.Errorf("as a tool: %s", called.Raw)
		}
		b.checkTransfers()
		b.isCheckBroken = false
		b.checkAnswer("mended", b.get(b.url, signature), "row 7", false)
		b.checkTransfers("10000")
	})
}

// TestCheckBeforeThePrice checks that a tool call without a payment gets the check's refusal
// before it gets a price. Over HTTP every request without a payment gets the price.
func TestCheckBeforeThePrice(t *testing.T) {
	t.Parallel()
	runInMarket(t, func(m *market) {
		b := m.openTicketShop()
		call := func(signature string) mcptest.ToolResult {
			return must(mcptest.Call(b.Context(), b.client, "http://shop.example/mcp", "ticket", nil, signature, ""))
		}
		bought := must(mcptest.SignCall(b.Context(), b.client, "http://shop.example/mcp", "ticket", nil))
		if r := call(bought); r.IsError || r.Text() != "row 7" {
			b.Errorf("bought: %s", r.Raw)
		}
		b.hasTickets = false
		r := call("")
		if _, err := r.Required(); !r.IsError || err == nil || !strings.Contains(r.Text(), "sold out") || !strings.Contains(r.Text(), `"charged":false`) {
			b.Errorf("without a payment: %s", r.Raw)
		}
		if r := call(bought); r.IsError || r.Text() != "row 7" || r.Meta.Receipt == nil {
			b.Errorf("the buyer calls again: %s", r.Raw)
		}
		b.checkRefused("over HTTP", b.get(b.url, ""), "Payment required", false)
		b.checkTransfers("10000")
	})
}
