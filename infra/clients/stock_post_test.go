package clients

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const (
	// longReport is the size, in bytes, of a large report that the shop accepts, and
	// tooLongReport is the size of a report that it refuses (see maxReport in the main.go of
	// the shop).
	longReport    = 1 << 20
	tooLongReport = 2<<20 + 1
)

// postings are the reports that a client posts to the shop in one format. The client pays for
// some of them; the shop refuses one.
type postings struct {
	shop    service
	client  stockClient
	paid    []posting
	refused posting
}

// posting is one report and its payer.
type posting struct {
	sold  goods
	order purchase
	payer string
}

// TestStockClientsPost checks that unmodified clients can pay for a POST, without a gateway in
// front of the shop. In every format, posting the same report twice must be one purchase,
// although each call makes a new body, and a multipart body has a random boundary. Another
// report of the same payer, a megabyte long, must be another purchase. A report that is too
// large for the shop must be refused and not charged. charged.md has a row for this test.
func TestStockClientsPost(t *testing.T) {
	t.Parallel()
	clients, programs := stockClients(), startAll(t)
	var all []postings
	for _, kind := range reportKinds() {
		s := startShop(t, reportGoods(kind, "sunny"), wideWindow)
		for i, c := range clients {
			p := newPostings(t, s, c, kind)
			for _, item := range append(slices.Clone(p.paid), p.refused) {
				programs[i].orders = append(programs[i].orders, item.order)
			}
			all = append(all, p)
		}
	}
	results := playLoops(t, programs)
	for _, p := range all {
		t.Run(p.client.title+", "+p.refused.sold.name, func(t *testing.T) { p.check(t, results) })
	}
	checkRow(t, "a report of 1 MB is posted to the shop twice, as JSON, as a form, or as a multipart form", len(clients))
}

// newPostings returns the reports that a client posts in one format.
func newPostings(t *testing.T, s service, c stockClient, kind string) postings {
	p := postings{shop: s, client: c}
	post := func(size int) posting {
		sold := reportGoods(kind, strings.Repeat("x", size))
		order, payer := orderOf(t, s.url, sold, c.keyed)
		order.Timeout = patientClient
		return posting{sold, order, payer}
	}
	first, second := post(len("sunny")), post(longReport)
	second.order.Key, second.payer = first.order.Key, first.payer
	p.paid, p.refused = []posting{first, second}, post(tooLongReport)
	p.refused.order.Calls = 1
	return p
}

// check checks that each report that the shop accepts was charged once, and that the report
// that it refuses was not charged.
func (p postings) check(t *testing.T, results map[string]loopResult) {
	for _, paidPosting := range p.paid {
		r := results[paidPosting.order.ID]
		for _, fault := range r.check(paidPosting.sold.answer) {
			t.Errorf("%s: the client was told %v", fault, r.Told)
		}
		if moved := p.shop.books.Moved(paidPosting.payer); len(moved) != len(p.paid) {
			t.Errorf("%d reports were paid for %d times", len(p.paid), len(moved))
		}
	}
	r := results[p.refused.order.ID]
	if fmt.Sprint(r.Told) != fmt.Sprint([]int{http.StatusRequestEntityTooLarge}) || !strings.Contains(r.Answer.Body, `"charged":false`) {
		t.Errorf("a report that is too long: %v %.200s", r.Told, r.Answer.Body)
	}
	if moved := p.shop.books.Moved(p.refused.payer); len(moved) != 0 {
		t.Errorf("a report that is too long was paid for: %+v", moved)
	}
}
