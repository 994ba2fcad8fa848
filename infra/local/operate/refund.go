package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/reconcile"
)

// debtKey is a record's key, split into its parts.
type debtKey struct {
	// authorization is the key without the transaction: network|asset|payer|nonce.
	key, authorization, network string
	asset, payer                x402.Address
	// paymentTx is the transaction that moved the money. It is part of the key only if another
	// record has the same nonce. Otherwise it is empty.
	paymentTx string
}

// parseKey parses a record's key.
func parseKey(key string) (d debtKey, ok bool) {
	parts := strings.Split(key, "|")
	if len(parts) == 5 && x402.IsHash(parts[4]) {
		d.paymentTx = parts[4]
		parts = parts[:4]
	}
	if len(parts) != 4 || !x402.IsHash(parts[3]) {
		return d, false
	}
	var errs [3]error
	_, errs[0] = x402.ChainID(parts[0])
	d.asset, errs[1] = x402.ParseAddress(parts[1])
	d.payer, errs[2] = x402.ParseAddress(parts[2])
	d.key = key
	d.authorization = strings.Join(parts, "|")
	d.network = parts[0]
	return d, errors.Join(errs[:]...) == nil
}

// debt is a debt that an operator wants to close. The command refund closes it with a refund.
// The command answered closes it because the payment was answered after all.
type debt struct {
	debtKey
	transaction string // the transaction that closes the debt; empty if none was given
	asAnswered  bool   // close the debt as answered; the given transaction is then the payment's
	force       bool   // FORCE=1 or -force was given; forceWord says what it permits
	record      ledger.Payment
	terms       x402.Requirements
	amount      *big.Int
}

// refund executes the commands refund and answered. The command refund prints what to
// transfer. With a TRANSACTION, it closes the record as refunded by that transaction. The
// command answered closes the record as answered. KEY and TRANSACTION may be in any letter
// case.
func refund(ctx context.Context, o order, asAnswered bool) error {
	key, ok := parseKey(strings.ToLower(strings.Trim(o.args[0], " \t\n'\"")))
	if !ok {
		return fmt.Errorf("KEY %.300q is not the key of a payment: give network|asset|payer|nonce, in quotes, as %s and %s print it", o.args[0], o.invocation.Command("owed"), o.invocation.Command("payer"))
	}
	d := debt{debtKey: key, asAnswered: asAnswered, force: o.force}
	if len(o.args) > 1 {
		if d.transaction = strings.ToLower(strings.TrimSpace(o.args[1])); !x402.IsHash(d.transaction) {
			return fmt.Errorf("TRANSACTION %.80q is not a transaction: give 0x and 64 hexadecimal digits", o.args[1])
		}
	}
	return o.withLedger(false, func(l ledgerSession) error { return l.repay(ctx, d) })
}

func (l ledgerSession) repay(ctx context.Context, d debt) error {
	r, err := l.Ledger.Fetch(ctx, d.key)
	isPayment := r != nil && r.Receipt != nil && strings.EqualFold(r.Receipt.Transaction, d.transaction) // whether d.transaction is the payment itself, not a refund
	switch {
	case err != nil:
		return fmt.Errorf("read the record: %w", err)
	case r == nil:
		return fmt.Errorf("there is no such record in %s.\n%s lists the records of that payer", l.name,
			l.invocation.Command("payer", called.Word{Name: "WALLET", Value: d.payer.Checksum()}))
	case d.transaction != "" && (r.State == ledger.Refunded && r.Refund == d.transaction || r.Attested() && isPayment):
		fmt.Fprintf(l.out, "This record is closed with that transaction already: nothing is left to do.\n")
		return nil
	}
	if err := l.checkRefundDue(ctx, *r); err != nil {
		return err
	}
	d.record = *r
	if err := d.parseTerms(); err != nil {
		return fmt.Errorf("the record contradicts itself (%w): inspect it before you pay anything", err)
	}
	switch {
	case d.transaction == "" && d.force && r.SendingBack != nil:
		return l.withdrawRefund(ctx, d)
	case d.transaction == "":
		return l.beginRefund(ctx, d)
	case d.asAnswered && !isPayment:
		return fmt.Errorf("the record stays open: its payment was made in transaction %s, not in that one", cellText(r.Receipt.Transaction))
	case isPayment && !d.asAnswered && !d.force:
		return fmt.Errorf("the record stays open: that transaction is the payment, not a refund of it.\n"+
			"If the log says that the payment was answered, close it with %s", l.invocation.Command("answered", keyWord(d.key), transactionWord(d.transaction)))
	case isPayment:
		return l.closeAnswered(ctx, d)
	}
	return l.closeDebt(ctx, d)
}

// closeAnswered closes the record of a payment that was answered before the ledger was
// restored. The operator must know the payment's transaction, which is in the log line of the
// answer.
func (l ledgerSession) closeAnswered(ctx context.Context, d debt) error {
	if b := d.record.SendingBack; b != nil && !d.force {
		return fmt.Errorf("the record stays open: a refund of it was begun at %s, by %s. Ask whether it is on its way; if it is not, %s closes the record as answered",
			formatMinute(b.At), cellText(b.By), l.invocation.Text(forceWord()))
	}
	who, err := l.operator(ctx)
	if err != nil {
		return err
	}
	change := ledger.Change{Reason: "answered before the ledger was restored, says " + who, Operator: who}
	if err := l.applyEvent(ctx, d, ledger.EventAttest, change, closeUnknownMessage); err != nil {
		return err
	}
	fmt.Fprintf(l.out, "closed: %s of %s was answered, says %s. Nothing is due.\n"+
		"A payer who repeats the payment is told that it was used.\n", formatDollars(d.amount.String()), d.payer.Checksum(), who)
	return nil
}

// closeUnknownMessage is the error message if it is unknown whether the record was closed.
const closeUnknownMessage = "the record may or may not be closed: run the same command again"

// applyEvent applies an event to the record. message is the error message if it is unknown
// whether the event was applied.
func (l ledgerSession) applyEvent(ctx context.Context, d debt, e ledger.Event, c ledger.Change, message string) error {
	switch _, err := l.Ledger.Apply(ctx, d.record, e, c); {
	case errors.Is(err, ledger.ErrConflict) || errors.Is(err, ledger.ErrIllegal):
		return fmt.Errorf("the record has changed meanwhile (%w): look at it again with %s", err, l.invocation.Command("refund", keyWord(d.key)))
	case err != nil:
		return fmt.Errorf("%s (%w)", message, err)
	}
	return nil
}

// beginRefund records that the refund has begun, and prints what to transfer. If the refund
// had begun already, beginRefund prints when it began and who began it.
func (l ledgerSession) beginRefund(ctx context.Context, d debt) error {
	if b := d.record.SendingBack; b != nil {
		fmt.Fprintf(l.out, "this refund was begun at %s, by %s: ask whether it is on its way before you transfer anything.\n"+
			"%s withdraws it, so that the payer can get the answer again.\n\n", formatMinute(b.At), cellText(b.By), l.invocation.Text(forceWord()))
	} else if err := l.recordRefundBegun(ctx, d); err != nil {
		return err
	}
	fmt.Fprintln(l.out, "a refund has begun: the payer can no longer get the answer")
	printFacts(l.out, "amount", fmt.Sprintf("%s USDC (%s atomic units)", strings.TrimPrefix(formatDollars(d.amount.String()), "$"), d.amount),
		"token", d.asset.Checksum(), "network", d.network, "to", d.payer.Checksum(),
		"paid", formatMinute(d.record.SettledAt)+", transaction "+cellText(d.record.Receipt.Transaction),
		"for", payment{Request: d.record.Request}.request(), "why", refundReason(d.record))
	fmt.Fprintf(l.out, `
Transfer exactly that, from any account of yours. Then close the record:
  %s
`, l.invocation.Command("refund", keyWord(d.key), transactionWord("0x...")))
	return nil
}

// recordRefundBegun records the operator who begins the refund.
func (l ledgerSession) recordRefundBegun(ctx context.Context, d debt) error {
	who, err := l.operator(ctx)
	if err != nil {
		return err
	}
	return l.applyEvent(ctx, d, ledger.EventSendBack, ledger.Change{Operator: who},
		"could not record that you begin this refund: run the same command again before you transfer anything")
}

// withdrawRefund records that a refund that has begun will not be sent.
func (l ledgerSession) withdrawRefund(ctx context.Context, d debt) error {
	b := d.record.SendingBack
	err := l.applyEvent(ctx, d, ledger.EventWithdraw, ledger.Change{}, "the refund may or may not be withdrawn: run the same command again")
	if err != nil {
		return err
	}
	fmt.Fprintf(l.out, "the refund that was begun at %s, by %s, is withdrawn: the payer can get the answer again.\n"+
		"If the money is on its way after all, begin the refund again at once: %s\n", formatMinute(b.At), cellText(b.By), l.invocation.Command("refund", keyWord(d.key)))
	return nil
}

// refundReason returns the reason for the refund of a payment.
func refundReason(r ledger.Payment) string {
	switch f := r.LastFault; {
	case r.DueBack == ledger.DueUnasked:
		return "it came without a known request"
	case r.DueBack == ledger.DueElsewhere:
		return "its purchase was answered with another payment"
	case r.DueBack == ledger.DueLate:
		return "it was found after its payer had been told that nothing was charged"
	case f != nil:
		return fmt.Sprintf("%s gave no answer, the last: %s, %s", formatCount(r.Lookups, "lookup"), cellText(f.Code), cellText(f.Message))
	}
	return "no lookup gave an answer"
}

// checkRefundDue returns nil if a refund of the payment can begin. Otherwise it returns an
// error that says why not, and what to do next.
func (l ledgerSession) checkRefundDue(ctx context.Context, r ledger.Payment) error {
	switch l.standingOf(ctx, r) {
	case refundDue:
		return nil
	case refunded:
		return fmt.Errorf("nothing is due: this payment was refunded already, by transaction %s.\nDo not send it again. "+
			"A payer who repeats the payment is told that transaction", cellText(r.Refund)+untrusted.Text(closedBy(r.ClosedBy)))
	case answered:
		if r.Attested() {
			return fmt.Errorf("nothing is due: this payment was closed as %s, at %s", cellText(r.Reason), formatMinute(r.UpdatedAt))
		}
		return fmt.Errorf("nothing is due: this payment was answered at %s. For a day after that, the same signature gets the answer again", formatMinute(r.UpdatedAt))
	case answerOwed:
		if l.Ledger.Unclaimed(r) {
			return nil // a refund may begin before it is due
		}
		return fmt.Errorf("a lookup for this payment is running, until %s at the latest: look again then", formatMinute(r.LeaseUntil))
	case inDoubt:
		return fmt.Errorf("it is not known whether this payment was made, so nothing can be paid back yet.\n"+
			"%s with RPC_URL set asks the chain; if the payment was made, the answer is owed first, and a refund only if no answer comes", l.invocation.Command("reconcile"))
	case underWay:
		if l.Ledger.Sleeping(r) {
			return fmt.Errorf("the attempt to make this payment has ended, and it is too early to tell whether it was made: look again after %s", formatMinute(decidedAfter(r)))
		}
		return fmt.Errorf("this payment is being made right now, until %s at the latest: look again then", formatMinute(r.LeaseUntil))
	case refused:
		return fmt.Errorf("nothing is known to be due: the facilitator refused this payment (%s), but that does not prove that nothing was paid.\n"+
			"If the payer nevertheless shows a transfer to us, %s with RPC_URL set finds it", cellText(r.Reason), l.invocation.Command("reconcile"))
	case notCharged:
		return fmt.Errorf("nothing is due: this payment was not charged (%s)", cellText(r.Reason))
	case superseded:
		return fmt.Errorf("nothing is due: nothing was charged for this payment, because another one answers the same purchase:\n%s", cellText(r.Owner))
	case unknown:
	}
	return fmt.Errorf("this record is in state %q, in which no refund can be due", cellText(string(r.State)))
}

// parseTerms sets the terms and the amount from the record. It returns an error if the record
// contradicts itself.
func (d *debt) parseTerms() error {
	r := d.record
	if err := json.Unmarshal(r.Terms, &d.terms); err != nil {
		return errors.New("its terms cannot be read")
	}
	var ok bool
	d.amount, ok = parseAtomic(d.terms.Amount)
	switch {
	case !ok:
		return errors.New("its amount is not one")
	case !strings.EqualFold(d.terms.Network, d.network) || !strings.EqualFold(d.terms.Asset, d.asset.String()):
		return errors.New("its terms are for another network or token than its key")
	case r.Receipt == nil:
		return errors.New("it is paid and has no receipt")
	case r.Receipt.Payer != "" && !strings.EqualFold(r.Receipt.Payer, d.payer.String()):
		return errors.New("its receipt names another payer than its key")
	}
	return nil
}

// errUnchecked means that the chain could not be queried.
var errUnchecked = errors.New("could not check that the transaction is the refund")

// closeDebt closes a record after checking that the transaction sent the amount back. If the
// chain cannot be queried, closeDebt closes the record only with -force.
func (l ledgerSession) closeDebt(ctx context.Context, d debt) error {
	transfers, how, err := l.verifyRefund(ctx, d)
	switch unchecked := errors.Is(err, errUnchecked); {
	case unchecked && d.force:
		transfers = 1
		how = "the chain was not asked"
	case unchecked:
		return fmt.Errorf("%w.\nThe record stays open. %s closes it without that check", err, l.invocation.Text(forceWord()))
	case err != nil:
		return fmt.Errorf("the record stays open: %w", err)
	}
	who, err := l.operator(ctx)
	if err != nil {
		return err
	}
	if err := l.reserveTransfer(ctx, d, transfers); err != nil {
		return err
	}
	if err := l.applyEvent(ctx, d, ledger.EventRefund, ledger.Change{Transaction: d.transaction, Operator: who}, closeUnknownMessage); err != nil {
		return err
	}
	fmt.Fprintf(l.out, "closed: %s went back to %s in %s (%s).\nA payer who repeats the payment is told that transaction.\n",
		formatDollars(d.amount.String()), d.payer.Checksum(), d.transaction, how)
	return nil
}

// verifyRefund looks the transaction up on the chain. It counts the transfers in the
// transaction that send exactly the amount to the payer from another account. There must be at
// least one. The transaction must be later than the payment.
func (l ledgerSession) verifyRefund(ctx context.Context, d debt) (transfers int, how string, err error) {
	switch {
	case l.Chain == nil:
		return 0, "", fmt.Errorf("%w: RPC_URL names no node", errUnchecked)
	case !strings.EqualFold(d.network, l.Terms.Network) || !strings.EqualFold(d.asset.String(), l.Terms.Asset):
		return 0, "", fmt.Errorf("%w: NETWORK and USDC_ASSET are %s and %s here, but the record has another network or token", errUnchecked, l.Terms.Network, l.Terms.Asset)
	}
	list, err := l.Chain.Received(ctx, d.transaction, d.payer)
	switch {
	case errors.Is(err, chain.ErrUnknownTransaction) || errors.Is(err, chain.ErrFailedTransaction):
		return 0, "", err
	case err != nil:
		return 0, "", fmt.Errorf("%w: %w", errUnchecked, err)
	}
	otherTransfers := []string{}
	for _, t := range list {
		if t.From != d.payer && t.Value.Cmp(d.amount) == 0 {
			transfers++
		} else if len(otherTransfers) < 5 {
			otherTransfers = append(otherTransfers, fmt.Sprintf("%s from %s", formatDollars(t.Value.String()), t.From.Checksum()))
		}
	}
	if transfers == 0 {
		return 0, "", fmt.Errorf("that transaction is not a transfer of exactly %s of the token to %s, who got %s in it",
			formatDollars(d.amount.String()), d.payer.Checksum(), cmp.Or(joinWithAnd(otherTransfers), "nothing"))
	}
	// A refund must be later than the payment, by the chain's clock.
	payee, err := x402.ParseAddress(d.terms.PayTo)
	var payments []reconcile.Transfer
	if err == nil {
		payments, err = l.Chain.Received(ctx, d.record.Receipt.Transaction, payee)
	}
	i := slices.IndexFunc(payments, func(t reconcile.Transfer) bool { return t.From == d.payer && t.Value.Cmp(d.amount) == 0 })
	switch {
	case err != nil:
		return 0, "", fmt.Errorf("%w: when the payment was made is not known: %w", errUnchecked, err)
	case i < 0:
		return 0, "", fmt.Errorf("%w: the payment's transaction did not move the payment's money", errUnchecked)
	case !list[0].Time.After(payments[i].Time):
		return 0, "", fmt.Errorf("that transaction was made at %s, and the payment at %s: a refund must come after the payment", list[0].Time.UTC(), payments[i].Time.UTC())
	}
	return transfers, fmt.Sprintf("checked on the chain, block %d", list[0].Block), nil
}

// reserveTransfer reserves one transfer in the transaction for this record, because each
// transfer closes only one debt. The argument transfers is the number of transfers in the
// transaction that send the amount to the payer. If all of them are reserved for other
// records, reserveTransfer returns an error. If the chain was not queried, the transaction
// counts as one transfer.
func (l ledgerSession) reserveTransfer(ctx context.Context, d debt, transfers int) error {
	for n := range transfers {
		key := ledger.RepaymentKey(d.network, d.asset.String(), d.payer.String(), d.transaction, d.amount.String(), n)
		if reserved, err := l.Ledger.Reserve(ctx, key, d.key); err != nil || reserved {
			return err
		}
	}
	return fmt.Errorf("the record stays open: each transfer of %s to %s in that transaction (%d known) has closed another record, or is about to",
		formatDollars(d.amount.String()), d.payer.Checksum(), transfers)
}
