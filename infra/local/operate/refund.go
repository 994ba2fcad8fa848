package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/chain"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// debtKey is a record's key, and the transaction to close it on, if one was given.
type debtKey struct {
	key, network, asset string
	payer               x402.Address
	nonce               [32]byte
	// moved is the transaction that is a part of the key of money that came with a
	// nonce which another record has.
	moved       string
	transaction string
	// answered says that the payment was answered, and transaction is the one that
	// made it.
	answered bool
}

// readDebt reads KEY and, if it is given, TRANSACTION, in any letter case.
func readDebt(args []string) (debtKey, error) {
	d, ok := readKey(strings.ToLower(strings.Trim(args[0], " \t\n'\"")))
	if !ok {
		return d, fmt.Errorf("KEY %.300q is not the key of a payment: that is network|asset|payer|nonce, in quotes, as make owed and make payer print it", args[0])
	}
	if len(args) < 2 {
		return d, nil
	}
	if d.transaction = strings.ToLower(strings.TrimSpace(args[1])); !isHash(d.transaction) {
		return d, fmt.Errorf("TRANSACTION %.80q is not a transaction: that is 0x and 64 hexadecimal digits", args[1])
	}
	return d, nil
}

// readKey reads a key as the ledger has it.
func readKey(key string) (d debtKey, ok bool) {
	parts := strings.Split(key, "|")
	if len(parts) == 5 && isHash(parts[4]) {
		d.moved, parts = parts[4], parts[:4]
	}
	if len(parts) != 4 || !isHash(parts[3]) {
		return d, false
	}
	_, errNetwork := x402.ChainID(parts[0])
	asset, errAsset := x402.ParseAddress(parts[1])
	payer, errPayer := x402.ParseAddress(parts[2])
	_, errNonce := hex.Decode(d.nonce[:], []byte(parts[3][len("0x"):]))
	d.key, d.network, d.asset, d.payer = key, parts[0], asset.String(), payer
	return d, errors.Join(errNetwork, errAsset, errPayer, errNonce) == nil
}

// isHash says whether s is 0x and 32 bytes of lower case hex.
func isHash(s string) bool {
	digits, prefixed := strings.CutPrefix(s, "0x")
	return prefixed && len(digits) == 64 && strings.Trim(digits, "0123456789abcdef") == ""
}

// due is a refund that is due.
type due struct {
	debtKey
	record ledger.Record
	terms  x402.Requirements
	amount *big.Int
}

// refund prints what to transfer, or closes the record on the transaction that has
// done it.
func refund(ctx context.Context, o order) error { return repay(ctx, o, false) }

// answer closes a debt that was answered before the ledger was restored.
func answer(ctx context.Context, o order) error { return repay(ctx, o, true) }

func repay(ctx context.Context, o order, answered bool) error {
	key, err := readDebt(o.args)
	if err != nil {
		return err
	}
	key.answered = answered
	return o.within(false, func(l opened) error { return l.refund(ctx, key, o.force) })
}

func (l opened) refund(ctx context.Context, key debtKey, force bool) error {
	r, err := l.Ledger.Fetch(ctx, key.key)
	switch {
	case err != nil:
		return fmt.Errorf("read the record: %w", err)
	case r != nil && key.transaction != "" && (r.State == ledger.Refunded && r.Refund == key.transaction || r.Attested() && madeIn(*r, key.transaction)):
		fmt.Fprintf(l.out, "This record is closed on that transaction: there is nothing left to do.\n")
		return nil
	}
	if err := l.refusal(ctx, key, r); err != nil {
		return err
	}
	d, err := dueOf(key, *r)
	if err != nil {
		return err
	}
	switch its := madeIn(d.record, key.transaction); {
	case key.transaction == "":
		return l.begin(ctx, d)
	case key.answered && !its:
		return fmt.Errorf("the record stays open: its payment was made in transaction %s, not in that one", plain(d.record.Receipt.Transaction))
	case its && !key.answered && !force:
		return fmt.Errorf("the record stays open: that transaction is the payment, not a refund of it.\n"+
			"If the log says that the payment was answered, close it with make answered KEY='%s' TRANSACTION=%s", d.key, d.transaction)
	case its:
		return l.closeAnswered(ctx, d, force)
	}
	return l.closeDebt(ctx, d, force)
}

// madeIn says whether a record's payment was made in a transaction.
func madeIn(r ledger.Record, transaction string) bool {
	return r.Receipt != nil && strings.EqualFold(r.Receipt.Transaction, transaction)
}

// closeAnswered closes a record that was answered before the ledger was restored. That
// the operator knows the payment's transaction, which is in the log line of the answer,
// is what speaks for it.
func (l opened) closeAnswered(ctx context.Context, d due, force bool) error {
	if b := d.record.SendingBack; b != nil && !force {
		return fmt.Errorf("the record stays open: a refund of it was begun at %s, by %s. Ask whether it is on its way; if it is not, FORCE=1 closes the record as answered",
			minute(b.At), plain(b.By))
	}
	_, err := l.Ledger.Attest(ctx, d.key, "answered before the ledger was restored, says "+l.operator)
	if err := d.closed(err); err != nil {
		return err
	}
	fmt.Fprintf(l.out, "closed: %s of %s was answered, says %s. Nothing is due.\n"+
		"A payer who repeats the payment is told that it was used.\n", dollars(d.amount.String()), d.payer.Checksum(), l.operator)
	return nil
}

// closed puts into words why a record could not be closed.
func (d due) closed(err error) error {
	switch {
	case errors.Is(err, ledger.ErrConflict) || errors.Is(err, ledger.ErrIllegal):
		return fmt.Errorf("the record has changed meanwhile (%w): look at it again with make refund KEY='%s'", err, d.key)
	case err != nil:
		return fmt.Errorf("it may be closed or not: send the same command again (%w)", err)
	}
	return nil
}

// begin writes that the refund is begun, and prints what to transfer. The next one who asks
// is told who has begun.
func (l opened) begin(ctx context.Context, d due) error {
	stands, begun, err := l.Ledger.SendBack(ctx, d.record, l.operator)
	switch {
	case errors.Is(err, ledger.ErrConflict) || errors.Is(err, ledger.ErrIllegal):
		return fmt.Errorf("the record has changed meanwhile (%w): look at it again with make refund KEY='%s'", err, d.key)
	case err != nil:
		return fmt.Errorf("it could not be written that you begin this refund: send the same command again before you transfer anything (%w)", err)
	case begun:
		fmt.Fprintf(l.out, "this refund was begun at %s, by %s: ask whether it is on its way before you transfer anything\n\n",
			minute(stands.SendingBack.At), plain(stands.SendingBack.By))
	}
	l.printDue(d)
	return nil
}

// refusal is why no refund is due, and what to do next.
func (l opened) refusal(ctx context.Context, key debtKey, r *ledger.Record) error {
	if r == nil {
		return fmt.Errorf("there is no such record in %s.\nmake payer WALLET=%s lists what there is of that payer", l.name, key.payer.Checksum())
	}
	switch l.standingOf(ctx, *r) {
	case refundDue:
		return nil
	case refunded:
		return fmt.Errorf("nothing is due: this payment was refunded already, by transaction %s.\nDo not send it again. "+
			"A payer who repeats the payment is told that transaction", plain(r.Refund))
	case answered:
		if r.Attested() {
			return fmt.Errorf("nothing is due: this payment was closed as %s, at %s", plain(r.Reason), minute(r.UpdatedAt))
		}
		return fmt.Errorf("nothing is due: this payment was answered at %s. The same signature gets the answer again for a day after that", minute(r.UpdatedAt))
	case answerOwed:
		return l.early(*r)
	case inDoubt:
		return errors.New("it is not known whether this was paid, so nothing can be paid back yet.\n" +
			"make reconcile with RPC_URL set asks the chain; if it was paid, the answer is owed first")
	case underWay:
		if l.Ledger.Sleeping(*r) {
			return fmt.Errorf("the attempt to make this payment has ended, and it is too early to tell whether it was made: look again after %s", minute(decidedAfter(*r)))
		}
		return fmt.Errorf("this payment is being made just now, until %s at the latest: look again then", minute(r.LeaseUntil))
	case refused:
		return fmt.Errorf("nothing is known to be due: the facilitator refused this (%s), which is not proven.\n"+
			"If the payer shows a transfer to us all the same, make reconcile with RPC_URL set finds it", plain(r.Reason))
	case notCharged:
		return fmt.Errorf("nothing is due: this was not charged (%s)", plain(r.Reason))
	case superseded:
		return fmt.Errorf("nothing is due: nothing was charged for this payment, because another one answers the same purchase:\n%s", plain(r.Owner))
	case unknown:
	}
	return fmt.Errorf("this record is in state %q, in which no refund can be due", plain(string(r.State)))
}

// early says when a refund becomes due of what can still be answered.
func (l opened) early(r ledger.Record) error {
	if !l.Ledger.Unclaimed(r) {
		return fmt.Errorf("a lookup for this payment runs just now, until %s at the latest: look again then", minute(r.LeaseUntil))
	}
	return fmt.Errorf("no refund is due yet: the payer can still get the answer, with the same signature, until %s (%d of %d lookups are used).\n"+
		"After that, or when no lookup is left, a refund is due", minute(r.SettledAt.Add(ledger.OwedFor)), r.Lookups, ledger.MaxLookups)
}

// dueOf reads what to pay back off a record. One that contradicts itself is
// nobody's to pay.
func dueOf(key debtKey, r ledger.Record) (due, error) {
	d := due{debtKey: key, record: r}
	corrupt := func(what string) (due, error) {
		return due{}, fmt.Errorf("the record contradicts itself (%s): look at it before anything is paid", what)
	}
	if err := json.Unmarshal(r.Terms, &d.terms); err != nil {
		return corrupt("its terms cannot be read")
	}
	var ok bool
	d.amount, ok = atomic(d.terms.Amount)
	switch {
	case !ok:
		return corrupt("its amount is no amount")
	case !strings.EqualFold(d.terms.Network, key.network) || !strings.EqualFold(d.terms.Asset, key.asset):
		return corrupt("its terms are for another network or token than its key")
	case r.Receipt == nil:
		return corrupt("it is paid and has no receipt")
	case r.Receipt.Payer != "" && !strings.EqualFold(r.Receipt.Payer, key.payer.String()):
		return corrupt("its receipt names another payer than its key")
	}
	return d, nil
}

func (l opened) printDue(d due) {
	why := "no lookup is left"
	if f := d.record.LastFault; f != nil {
		why = fmt.Sprintf("%d of %d lookups, the last: %s, %s", d.record.Lookups, ledger.MaxLookups, plain(f.Code), plain(f.Message))
	}
	asset, err := x402.ParseAddress(d.asset)
	if err != nil {
		panic(err) // readKey has parsed it
	}
	fmt.Fprintf(l.out, `a refund is due
amount   %s USDC (%s atomic units)
token    %s
network  %s
to       %s
paid     %s, transaction %s
for      %s
why      %s

Transfer exactly that, from any account of yours. Then close the record:
  make refund KEY='%s' TRANSACTION=0x...
`, strings.TrimPrefix(dollars(d.amount.String()), "$"), d.amount, asset.Checksum(), d.network, d.payer.Checksum(),
		minute(d.record.SettledAt), plain(d.record.Receipt.Transaction), payment{Request: d.record.Request}.request(), why, d.key)
}

// errUnchecked says that the chain could not be asked.
type errUnchecked struct{ cause string }

func (e errUnchecked) Error() string {
	return e.cause + ".\nThe record stays open. FORCE=1 closes it without that check"
}

// closeDebt closes a record, once the transaction is known to have paid it back.
func (l opened) closeDebt(ctx context.Context, d due, force bool) error {
	transfers, how, err := l.verify(ctx, d)
	var unchecked errUnchecked
	switch {
	case errors.As(err, &unchecked) && force:
		transfers, how = 1, "the chain was not asked"
	case err != nil:
		return err
	}
	if err := l.reserve(ctx, d, transfers); err != nil {
		return err
	}
	_, err = l.Ledger.Refund(ctx, d.key, d.transaction)
	if err := d.closed(err); err != nil {
		return err
	}
	fmt.Fprintf(l.out, "closed: %s went back to %s in %s (%s).\nA payer who repeats the payment is told that transaction.\n",
		dollars(d.amount.String()), d.payer.Checksum(), d.transaction, how)
	return nil
}

// verify asks the chain how often the transaction has sent exactly the amount to
// the payer, which must be after the payment.
func (l opened) verify(ctx context.Context, d due) (transfers int, how string, err error) {
	const unsure = "it could not be checked that the transaction is the refund: "
	switch {
	case l.Chain == nil:
		return 0, "", errUnchecked{unsure + "RPC_URL names no node"}
	case !strings.EqualFold(d.network, l.Terms.Network) || !strings.EqualFold(d.asset, l.Terms.Asset):
		return 0, "", errUnchecked{fmt.Sprintf(unsure+"NETWORK and USDC_ASSET are %s and %s here, the record's others", l.Terms.Network, l.Terms.Asset)}
	}
	list, err := l.Chain.Received(ctx, d.transaction, d.payer)
	switch {
	case errors.Is(err, chain.ErrUnknownTransaction) || errors.Is(err, chain.ErrFailedTransaction):
		return 0, "", fmt.Errorf("the record stays open: %w", err)
	case err != nil:
		return 0, "", errUnchecked{fmt.Sprintf(unsure+"%v", err)}
	}
	others := []string{}
	for _, t := range list {
		if t.From != d.payer && t.Value.Cmp(d.amount) == 0 {
			transfers++
		} else {
			others = append(others, fmt.Sprintf("%s from %s", dollars(t.Value.String()), t.From.Checksum()))
		}
	}
	if transfers == 0 {
		found := "nothing"
		if len(others) > 0 {
			found = enumerated(others[:min(len(others), 5)])
		}
		return 0, "", fmt.Errorf("the record stays open: that transaction is not a transfer of exactly %s of the token to %s, who got %s in it",
			dollars(d.amount.String()), d.payer.Checksum(), found)
	}
	switch paid, err := l.paidAt(ctx, d); {
	case err != nil:
		return 0, "", errUnchecked{fmt.Sprintf("it could not be checked that the transaction is later than the payment: %v", err)}
	case !list[0].Time.After(paid):
		return 0, "", fmt.Errorf("the record stays open: that transaction is of %s, and the payment of %s: a refund comes after it", second(list[0].Time), second(paid))
	}
	return transfers, fmt.Sprintf("checked on the chain, block %d", list[0].Block), nil
}

// paidAt is when the payment moved its money, by the chain's clock.
func (l opened) paidAt(ctx context.Context, d due) (time.Time, error) {
	payee, err := x402.ParseAddress(d.terms.PayTo)
	if err != nil {
		return time.Time{}, fmt.Errorf("the record's payee: %w", err)
	}
	list, err := l.Chain.Received(ctx, d.record.Receipt.Transaction, payee)
	if err != nil {
		return time.Time{}, fmt.Errorf("the payment's transaction: %w", err)
	}
	for _, t := range list {
		if t.From == d.payer && t.Value.Cmp(d.amount) == 0 {
			return t.Time, nil
		}
	}
	return time.Time{}, errors.New("the payment's transaction has not moved its money")
}

// reserve takes one of a transaction's transfers of the amount to the payer for this
// record: each of them closes one debt. Without the chain there is one.
func (l opened) reserve(ctx context.Context, d due, transfers int) error {
	for n := range transfers {
		key := ledger.RepaymentKey(d.network, d.asset, d.payer.String(), d.transaction, d.amount.String(), n)
		if mine, err := l.Ledger.Reserve(ctx, key, d.key); err != nil || mine {
			return err
		}
	}
	return fmt.Errorf("the record stays open: of the transfers of %s to %s in that transaction, %d known, each has closed another record, or is about to",
		dollars(d.amount.String()), d.payer.Checksum(), transfers)
}
