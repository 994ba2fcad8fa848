package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

const (
	// oldestDay is how long ago a day may have begun for its books to be made:
	// answered payments are deleted after 35 days.
	oldestDay = 34 * 24 * time.Hour
	// maxTransfers is how many transfers of a day are kept in memory, 270 bytes each.
	maxTransfers = 1_000_000
	// maxDifferences is how many differences are listed; all are counted.
	maxDifferences = 1000
	// maxQuestions is how many records the chain is asked about one by one, and
	// questionTime what each may take.
	maxQuestions = 1000
	questionTime = 10 * time.Second
	// maxTries is how often the same blocks are asked for, with a pause of a second
	// after the first time and one more after each other: nodes limit how often one
	// asks.
	maxTries = 4
	// rowsAtOnce is how many rows are asked for at once.
	rowsAtOnce = 500
)

// errDifferences says that the ledger and the chain differ.
var errDifferences = errors.New("the ledger and the chain differ")

// errIncomplete says that not everything could be compared.
var errIncomplete = errors.New("the books are incomplete")

// books are the ledger and the chain of one day, next to each other. A payment is
// in the books of the day on which its money moved, by the chain's clock.
type books struct {
	Day     string    `json:"day"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"` // the end of the day, or the safe block's time
	Network string    `json:"network"`
	Asset   string    `json:"asset"`
	Payee   string    `json:"payee"`
	Ledger  string    `json:"ledger"`
	// Compared is false where no node was asked: then the sums are the ledger's, by
	// the time at which it learned of each payment.
	Compared bool `json:"compared"`

	Received sum `json:"received"` // payments that moved money on this day
	// What came of those: each is in one of these.
	Answered   sum `json:"answered"`
	AnswerOwed sum `json:"answer_owed"`
	RefundDue  sum `json:"refund_due"`
	Refunded   sum `json:"refunded"`
	Differing  sum `json:"differing"` // not in the ledger as it should be: see Differences

	Operations map[string]*sum `json:"operations"` // Answered, by the operation's slug
	// Deposits are transfers without an authorization, and those of less than any price
	// that no record is of.
	Deposits   sum `json:"deposits"`
	RefundsOut sum `json:"refunds_made"` // closed on this day, whenever they were paid for
	InDoubt    sum `json:"in_doubt"`     // first claimed on this day, and not known to be paid

	Records     int          `json:"records_read"`
	Unreadable  int          `json:"records_unreadable"`
	Elsewhere   int          `json:"other_days"`  // recorded on this day, moved on another
	Foreign     int          `json:"other_terms"` // of another network, token or payee
	Unchecked   int          `json:"unchecked"`   // could not be compared
	Count       int          `json:"difference_count"`
	Differences []difference `json:"differences"` // 1,000 at most
}

// sum is a number of payments, and what they add up to in atomic units.
type sum struct {
	Count  int
	amount big.Int
}

func (s *sum) add(amount *big.Int) {
	s.Count++
	s.amount.Add(&s.amount, amount)
}

func (s *sum) remove(amount *big.Int) {
	s.Count--
	s.amount.Sub(&s.amount, amount)
}

// kind is what differs.
type kind string

const (
	// noRecord: money came, and the ledger has no record of it.
	noRecord kind = "transfer_without_record"
	// unpaidRecord: money came, and the record does not say so.
	unpaidRecord kind = "transfer_not_recorded"
	// unreadable: money came, and the record cannot be read.
	unreadable kind = "record_unreadable"
	// noTransfer: the record says paid, and no money came. The answer was not given.
	noTransfer kind = "settled_without_transfer"
	// gift: the same, and the answer was given.
	gift kind = "answered_unpaid"
	// otherAmount: money came for it, and not what the record says, or not to the
	// payee that the record says.
	otherAmount kind = "amounts_differ"
	// noRefund: the record says refunded, and its transaction did not send the amount.
	noRefund kind = "refund_without_transfer"
)

// difference is a payment on which the ledger and the chain differ.
type difference struct {
	Kind        kind      `json:"kind"`
	Key         string    `json:"key"`
	Payer       string    `json:"payer"`
	Standing    standing  `json:"standing,omitempty"` // of the record
	Received    string    `json:"received,omitempty"` // atomic units, by the chain
	Recorded    string    `json:"recorded,omitempty"` // atomic units, by the ledger
	Transaction string    `json:"transaction,omitempty"`
	Request     string    `json:"request,omitempty"`
	At          time.Time `json:"at"`
	Note        string    `json:"note,omitempty"`
}

func (b *books) differ(d difference) {
	b.Count++
	if len(b.Differences) < maxDifferences {
		b.Differences = append(b.Differences, d)
	}
}

// readDay reads DAY. Its books can be made from its beginning on, until the ledger
// forgets what was answered.
func readDay(s string, now time.Time) (time.Time, error) {
	day, err := time.Parse(time.DateOnly, strings.TrimSpace(s))
	switch {
	case err != nil:
		return day, fmt.Errorf("DAY %.40q is no day: it is 2026-11-20, in UTC", s)
	case day.After(now):
		return day, fmt.Errorf("DAY %s has not begun: days are UTC, and it is %s", day.Format(time.DateOnly), minute(now))
	case now.Sub(day) > oldestDay:
		return day, fmt.Errorf("DAY %s is too long ago: answered payments are deleted after 35 days, so that the books of a day can be made for 34", day.Format(time.DateOnly))
	}
	return day, nil
}

// listBooks prints the books of a day. errDifferences and errIncomplete are its
// error when it has printed them.
func (o opened) listBooks(ctx context.Context, out io.Writer, day time.Time, asJSON bool) error {
	b, err := o.booksOf(ctx, day)
	if err != nil {
		return fmt.Errorf("the books of %s: %w", day.Format(time.DateOnly), err)
	}
	if asJSON {
		err = printJSON(out, b)
	} else {
		err = o.printBooks(out, b)
	}
	switch {
	case err != nil:
		return err
	case !b.Compared:
		return fmt.Errorf("%w: nothing was compared, because RPC_URL names no node", errIncomplete)
	case b.Unchecked > 0:
		return fmt.Errorf("%w: %s could not be compared", errIncomplete, counted(b.Unchecked, "record"))
	case b.Count > 0:
		return errDifferences
	}
	return nil
}

// audit makes books. First all transfers of the day are read, then all records.
// Each record finds its transfer in memory; what is left on either side is looked
// up one by one.
type audit struct {
	opened
	*books
	prefix     string // of the keys of payments of this network and token
	asset      string
	payee      x402.Address
	moved      map[spend]*movement
	mismatched []ledger.Record // not what their transfer says
	asked      int
}

// spend names an authorization.
type spend struct {
	from  x402.Address
	nonce [32]byte
}

// movement is a transfer that an authorization has made.
type movement struct {
	value   *big.Int
	tx      [32]byte
	at      time.Time
	matched bool
}

func (o opened) booksOf(ctx context.Context, day time.Time) (*books, error) {
	t := o.parts.Terms
	payee, err := x402.ParseAddress(t.PayTo)
	if err != nil {
		return nil, fmt.Errorf("PAY_TO: %w", err)
	}
	asset, err := x402.ParseAddress(t.Asset)
	if err != nil {
		return nil, fmt.Errorf("USDC_ASSET: %w", err)
	}
	a := &audit{opened: o, payee: payee, asset: asset.String(), moved: map[spend]*movement{}}
	a.prefix = strings.TrimSuffix(ledger.Key(strings.ToLower(t.Network), a.asset, "", ""), "|")
	a.books = &books{
		Day: day.Format(time.DateOnly), From: day, Until: day.AddDate(0, 0, 1), Network: t.Network, Asset: asset.Checksum(), Payee: payee.Checksum(),
		Ledger: o.name, Compared: o.parts.Chain != nil, Operations: map[string]*sum{}, Differences: []difference{},
	}
	if a.Compared {
		if err := a.readChain(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.readLedger(ctx); err != nil {
		return nil, err
	}
	return a.books, a.settle(ctx)
}

// within says whether a time is in the part of the day that the books are of.
func (b *books) within(t time.Time) bool { return !t.Before(b.From) && t.Before(b.Until) }

// count adds a payment to what came of it.
func (b *books) count(s standing, amount *big.Int, request string) {
	switch s {
	case answered:
		b.Answered.add(amount)
		slug := operationOf(request)
		if b.Operations[slug] == nil {
			b.Operations[slug] = new(sum)
		}
		b.Operations[slug].add(amount)
	case answerOwed:
		b.AnswerOwed.add(amount)
	case refundDue:
		b.RefundDue.add(amount)
	case refunded:
		b.Refunded.add(amount)
	case inDoubt, underWay, refused, notCharged, superseded, unknown: // not known to be paid
	}
}

// operationOf is the slug of the operation that a request is for.
func operationOf(request string) string {
	_, target, _ := strings.Cut(request, " ")
	path, _, _ := strings.Cut(target, "?")
	for _, op := range catalog.All() {
		if op.Path == path {
			return op.Slug
		}
	}
	return "other"
}
