package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// The tests of the load_ files run by themselves, before the parallel ones, as
// TestCopies does.

// TestLoad has one fleet serve the two crowds, one after the other. The tool
// has no cap: TestLoadConcurrency is about that.
func TestLoad(t *testing.T) {
	verifyOnly(t, "needs Node for the DynamoDB server")
	l := newLab(t)
	s := l.setup()
	s.single, s.crowd = "0", true
	f := newFleet(t, l, s)
	t.Run("copies", func(t *testing.T) { sendCopiesOver(t, l, f, crowdSize(t, l, f.members)) })
	t.Run("signatures", func(t *testing.T) { sendSignaturesOver(t, l, f) })
	t.Run("payments", func(t *testing.T) { sendPaymentsOver(t, l, f, crowdSize(t, l, f.members)) })
}

// loadAtOnce is how many of those are under way at any moment who come again.
// The first time all come at once.
const loadAtOnce = 64

// sendCopiesOver spreads the copies of one payment over the processes of a
// fleet: one settlement, one lookup, and every copy gets the answer or is told
// to come back. Whoever comes back gets the stored answer.
func sendCopiesOver(t *testing.T, l *lab, f *fleet, n int) {
	r := &run{TB: t, lab: l, d: f.members[0], client: f.client, id: "fleetcopies"}
	r.wallet, r.payer = l.wallet(t)
	r.sign(r.fill(lookup("{healthy}", "A")), nil, nil)

	// The one that settles is held up until a tenth of the others is answered:
	// they did arrive while it was under way. On a busy machine all of them
	// take their time, and a settlement has only so much of it.
	g := l.hold(r.payer)
	endWait := openAfter(g, 8*time.Second)
	defer endWait()
	var answered, late atomic.Int64
	answers := make([]exchange, n)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	begun := time.Now()
	err := rush(t, f.members, n, func(i int, v visitor) (err error) {
		for {
			answers[i], err = v.visit(ctx, r.path, r.header)
			// A store that is too slow for a moment says nothing about the
			// copies, and neither does a lookup: they say when to come again.
			if e := answers[i]; err != nil || e.status == http.StatusConflict || e.header.Get("Retry-After") == "" {
				break
			}
			late.Add(1)
			if err := rest(ctx, answers[i]); err != nil {
				return err
			}
		}
		if answered.Add(1) == int64(n/10) {
			g.open()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	results, busy := tallyCopies(t, r, answers)
	if busy < 1 || results+busy != n {
		t.Errorf("%d results and %d times 409 for %d copies", results, busy, n)
	}
	repeatCopies(t, f, r, n)
	if err := l.books(r.payer, catalog.DNS().Amount, 1, 1); err != nil {
		t.Error(err)
	}
	checkLookups(t, l, r.name, r.header, f.log)
	t.Logf("%d copies over %d processes in %s: %d answers, %d times 409, %d times told to come again",
		n, fleetSize, took.Round(time.Millisecond), results, busy, late.Load())
}

// tallyCopies holds each answer to what a copy may get, all results being the
// same.
func tallyCopies(t *testing.T, r *run, answers []exchange) (results, busy int) {
	t.Helper()
	for _, e := range answers {
		switch e.status {
		case http.StatusOK:
			results++
			w := result(r.fill(healthy().body))
			if e.header.Get(x402.HeaderReplayed) != "" {
				w, r.first = w.replayed(), e // its receipt is held to the books
			}
			r.check(e, w)
		case http.StatusConflict:
			busy++
			w := fails(fault.PaymentInProgress)
			if e.header.Get(x402.HeaderResponse) != "" {
				w = w.charge(moved) // it came during the lookup
			}
			r.check(e, w)
		default:
			t.Errorf("a copy got %s", e)
		}
	}
	return results, busy
}

// repeatCopies sends every copy again: each gets the stored answer.
func repeatCopies(t *testing.T, f *fleet, r *run, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answers := make([]exchange, n)
	if err := crowd(n, loadAtOnce, func(i int) (err error) {
		answers[i], err = f.persist(ctx, r.path, r.header, func(exchange) {})
		return err
	}); err != nil {
		t.Fatalf("repeat: %v", err)
	}
	r.first = answers[0]
	for _, e := range answers {
		r.check(e, result(r.fill(healthy().body)).replayed())
	}
}

// sendPaymentsOver has many payments on their way at once: all are answered, each
// is charged once and looked up once, and each is used up in the ledger.
func sendPaymentsOver(t *testing.T, l *lab, f *fleet, n int) {
	b := newBasket(t, l, f, n, modeHealthy)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	begun := time.Now()
	if err := rush(t, f.members, len(b.payments), func(i int, v visitor) (err error) {
		p := &b.payments[i]
		if p.answer, err = v.visit(ctx, p.path, p.header); err != nil || p.answer.header.Get("Retry-After") == "" {
			return err
		}
		// Everything that they write goes through one server, which takes some
		// hundreds of calls a second: on a slow machine some are told so.
		b.note(p, p.answer)
		if err := rest(ctx, p.answer); err != nil {
			return err
		}
		return b.buy(ctx, f, i)
	}); err != nil {
		t.Fatalf("a payment was not answered: %v", err)
	}
	took := time.Since(begun)
	b.auditAnswers(t, f.members[0], f.log)
	// A store that is too slow to take the answer does not keep it from the
	// payer: the record may then be behind, and the log says so. It is made good
	// when the payer comes again.
	behind := b.unused(t, f)
	said := f.said("answer not recorded")
	if len(behind) > said {
		t.Fatalf("%d records are not redeemed, %d answers were served without", len(behind), said)
	}
	still := behind
	for deadline := time.Now().Add(2 * patience); len(still) > 0 && time.Now().Before(deadline); still = b.unused(t, f) {
		b.comeAgain(t, f, still)
	}
	if len(still) > 0 {
		t.Errorf("%d records are not redeemed although the payers came again: %v", len(still), still)
	}
	is(t, "transfers", len(l.facilitator.Moved(b.payer)), len(b.payments))
	t.Logf("%d payments over %d processes in %s: %s; %d answers served that the store was too late for, %d of them not in it until the payer came again",
		len(b.payments), fleetSize, took.Round(time.Millisecond), b.waits(), said, len(behind))
}

// comeAgain has payers send their payments once more, all at the same time: each
// gets what he got before, from the ledger or from another lookup.
func (b *basket) comeAgain(t *testing.T, f *fleet, who []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := crowd(len(who), loadAtOnce, func(n int) error {
		p := b.payments[who[n]]
		e, err := f.persist(ctx, p.path, p.header, func(exchange) {})
		if err == nil && (e.status != http.StatusOK || string(e.body) != string(p.answer.body)) {
			t.Errorf("%s was answered %s, and then %s", p.name, p.answer, e)
		}
		return err
	}); err != nil {
		t.Fatalf("a payment was not answered again: %v", err)
	}
}

// basket is many payments of one wallet, each for a name that nobody else asks
// about.
type basket struct {
	lab      *lab
	wallet   *x402test.Wallet
	payer    string
	payments []purchase

	mu   sync.Mutex
	told map[string]int // code -> how often somebody was told to come back
}

// purchase is one payment.
type purchase struct {
	name, path, header string
	answer             exchange
	doubts             int // answers that it may have been settled
}

// newBasket signs one offer many times.
func newBasket(tb testing.TB, l *lab, f *fleet, n int, mode string) *basket {
	tb.Helper()
	return newBasketAt(tb, l, f.members[0], n, mode)
}

// newBasketAt signs the offer of one service.
func newBasketAt(tb testing.TB, l *lab, d *deployment, n int, mode string) *basket {
	tb.Helper()
	b := &basket{lab: l, told: map[string]int{}}
	b.wallet, b.payer = l.wallet(tb)
	client := newClient()
	defer client.CloseIdleConnections()
	e := d.get(tb, client, lookup("example.com", "A"), "")
	required, err := x402test.Reply{Status: e.status, Header: e.header, Body: e.body}.Required()
	if err != nil {
		tb.Fatal(err)
	}
	id := caseIDs.Add(1)
	for i := range n {
		p := purchase{name: fmt.Sprintf("p%d-%d.%s%s", id, i, mode, strings.TrimSuffix(labDomain, "."))}
		p.path = lookup(p.name, "A")
		if p.header, err = b.wallet.Pay(required, time.Now()); err != nil {
			tb.Fatal(err)
		}
		l.secret(p.header)
		b.payments = append(b.payments, p)
	}
	return b
}

// buy sends a payment until it is answered.
func (b *basket) buy(ctx context.Context, f *fleet, i int) error {
	p := &b.payments[i]
	var err error
	p.answer, err = f.persist(ctx, p.path, p.header, func(e exchange) { b.note(p, e) })
	return err
}

// note remembers that a payer was told to come back.
func (b *basket) note(p *purchase, e exchange) {
	code := codeOf(e)
	if code == string(fault.SettlementUncertain) {
		p.doubts++
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told[code]++
}

func (b *basket) waits() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("told to come back: %v", b.told)
}

// audit holds every answer, the facilitator's books, the resolver's and the
// ledger to each other.
func (b *basket) audit(t testing.TB, f *fleet) {
	t.Helper()
	b.auditAnswers(t, f.members[0], f.log)
	if unused := len(b.unused(t, f)); unused > f.said("answer not recorded") {
		t.Errorf("%d records are not redeemed", unused)
	}
}

// unused are the payments that are not used up in the ledger.
func (b *basket) unused(t testing.TB, f *fleet) (which []int) {
	t.Helper()
	for i, p := range b.payments {
		record, err := f.store.Fetch(t.Context(), keyOf(t, b.lab, p.header))
		if err != nil || record == nil {
			t.Fatalf("record of %s: %v", p.name, err)
		}
		if record.State != ledger.Redeemed {
			which = append(which, i)
		}
	}
	return which
}

// auditAnswers holds every answer, the facilitator's books and the resolver's to
// each other. A payer who was told that his settlement is uncertain, as happens
// when it takes longer than it may, has had it asked for again.
func (b *basket) auditAnswers(t testing.TB, d *deployment, logs func() string) {
	t.Helper()
	r := &run{TB: t, lab: b.lab, d: d, wallet: b.wallet, payer: b.payer}
	hashes := map[string]string{} // ledger key -> transaction
	for _, m := range b.lab.facilitator.Moved(b.payer) {
		is(t, "value", m.Value, catalog.DNS().Amount)
		hashes[m.Key] = m.Transaction
	}
	is(t, "transfers", len(hashes), len(b.payments))
	doubts := 0
	for _, p := range b.payments {
		doubts += p.doubts
	}
	if n := b.lab.settles(b.payer); n < len(b.payments) || n > len(b.payments)+doubts {
		t.Errorf("%d calls to /settle for %d payments, %d times in doubt", n, len(b.payments), doubts)
	}
	if _, most := b.lab.facilitator.Settles(); doubts == 0 {
		is(t, "calls to /settle for one payment", most, 1)
	}
	for _, p := range b.payments {
		key := keyOf(t, b.lab, p.header)
		s := subject{op: catalog.DNS(), origin: d.origin, terms: b.lab.terms, payer: b.wallet.Address().Checksum(), hash: hashes[key]}
		r.name = p.name
		w := result(r.fill(healthy().body))
		if p.answer.header.Get(x402.HeaderReplayed) != "" {
			w, s.before = w.replayed(), p.answer
		}
		w.blind = p.doubts > 0 && transactionOf(p.answer) == ""
		check(t, p.answer, w, s)
		checkLookups(t, b.lab, p.name, p.header, logs)
	}
}

// transactionOf is what an answer's PAYMENT-RESPONSE says.
func transactionOf(e exchange) string {
	var receipt x402.SettleResponse
	_ = decodeHeader(e.header.Get(x402.HeaderResponse), &receipt) // check judges it
	return receipt.Transaction
}

// keyOf is the ledger's key of a payment.
func keyOf(tb testing.TB, l *lab, header string) string {
	tb.Helper()
	p, err := x402.DecodePayment(header)
	if err != nil {
		tb.Fatal(err)
	}
	return ledger.Key(l.terms.Network, strings.ToLower(l.terms.Asset), p.From.String(), fmt.Sprintf("0x%x", p.Nonce))
}
