package storm_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// place says how the seller accounts for the money of a transfer after the storm.
type place string

const (
	placeAnswered place = "answered"
	placeOwed     place = "owed, and listed"
	placeRefund   place = "refund due, and listed"
	placeDoubt    place = "in doubt, and listed (no node)"
	placeUnproven place = "refused by the facilitator, and listed (no node)"
	placeNowhere  place = "unlisted"
)

// audit checks the transfers and answers of a storm.
type audit struct {
	s              *storm
	books          *ledger.Ledger
	listedPayments map[string]ledger.Payment
	unprovenKeys   map[string]bool
	now            func() time.Time

	summary      reconcile.Summary
	places       map[place]int
	rightCharges []string       // why purchases were rightly charged again, one text for each charge
	answers      map[string]int // how many answers the clients have received, by method and transport
	findings     []string       // one text for each error that the audit has found
}

// auditOffset is how far the clocks of the audit and of its node are ahead of the machine's
// clock. By these clocks, all leases and all authorizations have expired, and a payment that a
// killed process left unfinished counts as in doubt.
const auditOffset = x402.MaxTimeoutSeconds*time.Second + ledger.ClockSlack + 2*time.Minute

// newAudit runs Reconcile, reads the lists that an operator reads, and checks the storm.
func newAudit(ctx context.Context, s *storm) (*audit, error) {
	a := &audit{
		s: s, listedPayments: map[string]ledger.Payment{}, unprovenKeys: map[string]bool{},
		now:    func() time.Time { return time.Now().Add(auditOffset) },
		places: map[place]int{}, answers: map[string]int{},
	}
	shop, err := newShop(s.settings(0), a.now, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer shop.store.Close()
	s.bank.setClockOffset(auditOffset)
	if a.summary, err = shop.seller.Reconcile(ctx); err != nil {
		return nil, err
	}
	a.books = ledger.New(shop.store, a.now, rand.Text)
	lists := reconcile.Reconciler{Ledger: a.books, Index: shop.store, Terms: x402.USDC(), Now: a.now, Log: slog.New(slog.DiscardHandler)}
	missed, err := lists.Outstanding(ctx, func(r ledger.Payment) { a.listedPayments[r.Key] = r })
	if err != nil || missed > 0 {
		return nil, fmt.Errorf("%d records could not be read: %w", missed, err)
	}
	if _, err := lists.Unproven(ctx, int(^uint(0)>>1), func(r ledger.Payment) { a.unprovenKeys[r.Key] = true }); err != nil {
		return nil, err
	}
	return a, a.judge(ctx)
}

func (a *audit) addFinding(p *purchase, format string, args ...any) {
	a.findings = append(a.findings, fmt.Sprintf("%s: %s\n\t%s", p, fmt.Sprintf(format, args...), strings.Join(p.trail, "\n\t")))
}

// judge checks every transfer of money, every answer and every record of the ledger.
func (a *audit) judge(ctx context.Context) error {
	of := map[string]*purchase{}
	for _, p := range a.s.purchases {
		for key := range p.signedKeys {
			of[key] = p
		}
	}
	transfers := map[*purchase][]x402test.Transfer{}
	for _, t := range a.s.bank.money.Transfers() {
		if p := of[t.Key]; p != nil {
			transfers[p] = append(transfers[p], t)
		} else {
			a.findings = append(a.findings, "money moved that nobody has signed for: "+t.Key)
		}
	}
	for _, p := range a.s.purchases {
		moved := transfers[p]
		slices.SortFunc(moved, func(x, y x402test.Transfer) int { return x.At.Compare(y.At) })
		if err := a.judgeMoney(ctx, p, moved); err != nil {
			return err
		}
		a.judgeAnswers(p, moved)
		if err := a.judgeRecords(ctx, p, moved); err != nil {
			return err
		}
	}
	return nil
}

// judgeMoney checks the transfers of a purchase, oldest first.
func (a *audit) judgeMoney(ctx context.Context, p *purchase, moved []x402test.Transfer) error {
	var before *ledger.Payment
	for i, t := range moved {
		r, err := a.books.Fetch(ctx, t.Key)
		if err != nil {
			return err
		}
		where := a.placeOf(t.Key, r)
		a.places[where]++
		switch {
		case where == placeNowhere:
			a.addFinding(p, "paid and unlisted: %s, %s", t.Key, describe(r))
		case where == placeDoubt && a.s.conditions.hasNode:
			a.addFinding(p, "paid, and in doubt although the node knows: %s", t.Key)
		}
		if i > 0 && !a.mayChargeAgain(p, before, t) {
			a.addFinding(p, "charged again while the first payment counts: %s, %s, then %s, %s, %v later",
				moved[i-1].Key, describe(before), t.Key, describe(r), t.At.Sub(moved[i-1].At))
		}
		before = r
	}
	return nil
}

// placeOf returns how the seller accounts for the money of a payment.
func (a *audit) placeOf(key string, r *ledger.Payment) place {
	listed, ok := a.listedPayments[key]
	switch {
	case r == nil:
		return placeNowhere
	case r.State == ledger.Redeemed:
		return placeAnswered
	case a.unprovenKeys[key]:
		return placeUnproven
	case !ok:
		return placeNowhere
	case listed.InDoubt():
		return placeDoubt
	}
	switch ledger.Stand(&listed, ledger.View{Now: a.now()}).Meaning().Case {
	case ledger.CaseAnswerOwed:
		return placeOwed
	case ledger.CaseRefundDue:
		return placeRefund
	default:
		return placeNowhere
	}
}

// mayChargeAgain reports whether a purchase may be charged again. A purchase with an
// Idempotency-Key may be charged only once. Without a key, a second charge is allowed if the
// previous payment was answered, and that answer was no longer valid when the next payment was
// sent. The time comes from the clock of the process that sent the next payment.
func (a *audit) mayChargeAgain(p *purchase, before *ledger.Payment, t x402test.Transfer) bool {
	if p.key != "" || before == nil || before.State != ledger.Redeemed {
		return false
	}
	sent := a.s.bank.arrivalOf(t.Key)
	at := sent.time.Add(a.s.conditions.skews[sent.shop])
	if at.Before(before.AnswerValidUntil) {
		return false
	}
	a.rightCharges = append(a.rightCharges, fmt.Sprintf("%s: the answer of %s stood until %s, and the next payment was sent at %s",
		p, before.AnsweredAt.Format(time.TimeOnly), before.AnswerValidUntil.Format(time.TimeOnly), at.UTC().Format(time.TimeOnly)))
	return true
}

// judgeAnswers checks the answers that the clients of a purchase have received. Each must
// belong to the purchase and must have been paid. All answers for one payment must come from
// the same run of the handler.
func (a *audit) judgeAnswers(p *purchase, moved []x402test.Transfer) {
	runs := map[string]string{}
	for _, got := range p.answers {
		a.answers[got.via]++
		c, err := got.content()
		if err != nil || c.City != p.city || !strings.EqualFold(c.Payer, p.wallet.Address().String()) {
			a.addFinding(p, "an answer that is not its own (%v): %s", err, got.body)
			continue
		}
		paid := slices.ContainsFunc(moved, func(t x402test.Transfer) bool {
			// Without a node, the shop may count a payment as paid without knowing its
			// transaction. The answer then names no transaction.
			return t.Transaction == c.Transaction || c.Transaction == "" && !a.s.conditions.hasNode
		})
		if !paid {
			a.addFinding(p, "answered without money: %s", got.body)
		}
		if run, other := runs[c.Transaction]; other && run != c.Run {
			a.addFinding(p, "two runs have answered one payment: %s and %s", run, c.Run)
		}
		runs[c.Transaction] = c.Run
	}
}

// judgeRecords checks that every payment that the ledger counts as paid has moved money.
func (a *audit) judgeRecords(ctx context.Context, p *purchase, moved []x402test.Transfer) error {
	for key := range p.signedKeys {
		r, err := a.books.Fetch(ctx, key)
		if err != nil {
			return err
		}
		if r != nil && r.Paid() && !slices.ContainsFunc(moved, func(t x402test.Transfer) bool { return t.Key == key }) {
			a.addFinding(p, "it counts as paid, and has moved nothing: %s, %s", key, describe(r))
		}
	}
	return nil
}

// describe returns what the ledger says about a payment, as a text for a message.
func describe(r *ledger.Payment) string {
	if r == nil {
		return "not on record"
	}
	return fmt.Sprintf("%s (sent %t, doubt %t, owner %q, refusals %d, reason %q, created %s, answered %s, stands until %s)",
		r.State, r.Sent, r.Doubt, r.Owner, r.Refusals, r.Reason,
		r.CreatedAt.Format(time.TimeOnly), r.AnsweredAt.Format(time.TimeOnly), r.AnswerValidUntil.Format(time.TimeOnly))
}
