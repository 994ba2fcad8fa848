package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/infra/local/called"
	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// standing says what a record means for its payer.
type standing = ledger.Case

const (
	answered   = ledger.CaseAnswered
	answerOwed = ledger.CaseAnswerOwed
	refundDue  = ledger.CaseRefundDue
	refunded   = ledger.CaseRefunded
	inDoubt    = ledger.CaseInDoubt
	underWay   = ledger.CaseUnderWay
	refused    = ledger.CaseRefused
	notCharged = ledger.CaseNotCharged
	superseded = ledger.CaseSuperseded
	unknown    = ledger.CaseUnknown
)

// standingOf returns the standing that the operators' lists show for a payment. If a process
// died while it handled the payment, the payment may never have been sent. In that case,
// standingOf also reads the record of the purchase, which helps to tell whether the payment was
// sent.
func (l ledgerSession) standingOf(ctx context.Context, r ledger.Payment) standing {
	stands := ledger.Stand(&r, ledger.View{Now: l.Platform.Now(), Node: l.Chain != nil})
	if stands != ledger.StandingPerhapsUnsent {
		return stands.Meaning().Case
	}
	switch sending, err := l.Ledger.Sending(ctx, r); {
	case err != nil || sending == ledger.MayBeSent:
		return inDoubt
	case sending == ledger.NeverSent:
		return notCharged
	}
	return underWay
}

// payment is a record, as -json prints it.
type payment struct {
	// Key is the key of the record, network|asset|payer|nonce. In a DynamoDB table, it is the
	// attribute pk.
	Key         string   `json:"key"`
	Standing    standing `json:"standing"`
	Payer       string   `json:"payer"`
	Amount      string   `json:"amount"` // in atomic units
	Asset       string   `json:"asset"`
	Network     string   `json:"network"`
	Transaction string   `json:"transaction"`
	Refund      string   `json:"refund,omitempty"` // the hash of the transaction that sent the amount back
	Request     string   `json:"request"`
	// If the service has found that the payment was made, Since is the time of that finding.
	// Otherwise Since is when the service first recorded the payment. Updated is when the
	// record was last written.
	Since     time.Time       `json:"since"`
	Updated   time.Time       `json:"updated"`
	Lookups   int             `json:"lookups"`
	LastError *ledger.Failure `json:"last_error"`
	Reason    string          `json:"reason,omitempty"` // why the payment was refused, is in doubt, or was closed as answered
	// RefundDue means that the amount must be sent back. If no lookup can answer the payment,
	// DueBack says why. While DueBack is empty, the payer can still get the answer until a
	// refund has begun.
	//
	// DueAt is the time at which a refund becomes due. It is set only while an answer is owed.
	RefundDue bool           `json:"refund_due"`
	DueBack   ledger.DueBack `json:"due_back,omitempty"`
	DueAt     time.Time      `json:"due_at,omitzero"`
	// SupersededBy is the key of the payment that replaced this one.
	SupersededBy string `json:"superseded_by,omitempty"`
	// Unasked means that the money came without a known request.
	Unasked bool `json:"unasked,omitempty"`
	// SendingBack names the operator who has begun to send the amount back, and the time.
	SendingBack *ledger.SendingBack `json:"sending_back,omitempty"`
	// ClosedBy is the name of the operator who closed the record.
	ClosedBy string `json:"closed_by,omitempty"`
	// Answer is the HTTP status of the answer and, for an error, its code.
	Answer string `json:"answer,omitempty"`
	// Chain is the chain's evidence on a payment in doubt. It is nil if the chain was not
	// queried.
	Chain *evidence `json:"chain,omitempty"`
}

// evidence is a result of querying the chain.
type evidence struct {
	Verdict     string `json:"verdict"`
	Transaction string `json:"transaction,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

// paymentOf converts a record into the form in which it is printed.
func (l ledgerSession) paymentOf(ctx context.Context, r ledger.Payment) payment {
	return l.paymentAs(r, l.standingOf(ctx, r))
}

// paymentAs converts a record into the form in which it is printed, with the standing s. If
// the record's terms cannot be read, the fields with the amount, the asset and the network are
// empty.
func (l ledgerSession) paymentAs(r ledger.Payment, s standing) payment {
	var terms x402.Requirements
	_ = json.Unmarshal(r.Terms, &terms)
	p := payment{
		Key:          r.Key,
		Standing:     s,
		Payer:        payerOf(r),
		Amount:       terms.Amount,
		Asset:        terms.Asset,
		Network:      terms.Network,
		Transaction:  r.Transaction,
		Refund:       r.Refund,
		Request:      r.Request,
		Since:        r.CreatedAt,
		Updated:      r.UpdatedAt,
		Lookups:      r.Lookups,
		LastError:    r.LastFault,
		Reason:       r.Reason,
		SupersededBy: r.Owner,
		Unasked:      r.Unasked(),
		SendingBack:  r.SendingBack,
		ClosedBy:     r.ClosedBy,
		RefundDue:    s == refundDue,
		DueBack:      r.DueBack,
	}
	if s == underWay && l.Ledger.Sleeping(r) {
		p.Reason = "its attempt has ended; the chain can decide it after " + formatMinute(decidedAfter(r))
	}
	if r.Receipt != nil {
		p.Transaction = r.Receipt.Transaction
	}
	if r.Answer != nil && r.Answer.Status != 0 { // Status is 0 if an operator closed the record as answered
		p.Answer = answerOf(*r.Answer)
	}
	if !r.SettledAt.IsZero() {
		p.Since = r.SettledAt
	}
	if s == answerOwed {
		p.DueAt = r.SettledAt.Add(ledger.OwedFor)
	}
	return p
}

// answerOf returns an answer's status and, for an error, its code.
func answerOf(a ledger.Answer) string {
	text := strconv.Itoa(a.Status)
	var doc struct{ Error struct{ Code string } }
	body, err := a.Plain()
	if err != nil || a.Status < http.StatusBadRequest || json.Unmarshal(body, &doc) != nil || doc.Error.Code == "" {
		return text
	}
	return text + " " + doc.Error.Code
}

// decidedAfter returns the time after which the chain can show whether an abandoned payment
// was sent.
func decidedAfter(r ledger.Payment) time.Time { return r.ValidBefore.Add(ledger.ClockSlack) }

// payerOf returns the payer from a record's key. The payer is the account that signed the
// payment.
func payerOf(r ledger.Payment) string {
	parts := append(strings.Split(r.Key, "|"), "", "", "")
	if a, err := x402.ParseAddress(parts[2]); err == nil {
		return a.Checksum()
	}
	return parts[2]
}

// note returns the text for the column NOTE, the last one in the list of payments.
func (p payment) note() string {
	about := map[standing]string{
		answerOwed: "a refund is due after " + formatMinute(p.DueAt),
		refunded:   "by " + p.Refund + closedBy(p.ClosedBy),
		refused:    p.Reason + ", not proven",
		superseded: "by " + p.SupersededBy,
		inDoubt:    p.Reason,
		notCharged: p.Reason,
		underWay:   p.Reason,
		answered:   cmp.Or(p.Answer, p.Reason),
	}[p.Standing]
	if p.SendingBack != nil && p.Standing == refundDue {
		about = "begun " + formatMinute(p.SendingBack.At) + " by " + p.SendingBack.By
	}
	if p.LastError != nil {
		about += ", last error " + p.LastError.Code
	}
	if p.Chain != nil {
		about += ", the chain: " + spacedName(p.Chain.Verdict) + ", " + cmp.Or(p.Chain.Transaction, p.Chain.Reason)
	}
	// The function cellText is not used here, because it would cut the name of an AWS
	// principal.
	return untrusted.Text(cmp.Or(strings.TrimPrefix(about, ", "), "-"))
}

// closedBy returns a text that names the operator who closed a record. Records of earlier
// releases do not name the operator. For them, closedBy returns "".
func closedBy(who string) string {
	if who == "" {
		return ""
	}
	return ", closed by " + who
}

// printPayments prints a line for each payment.
func printPayments(out io.Writer, list []payment) {
	var rows [][]string
	for _, p := range list {
		rows = append(rows, []string{
			formatMinute(p.Since),
			formatMinute(p.Updated),
			cellText(p.Payer),
			spacedName(p.Standing),
			formatDollars(p.Amount),
			strconv.Itoa(p.Lookups),
			cellText(p.Request),
			cellText(p.Transaction),
			p.note(),
		})
	}
	printTable(out, "SINCE\tUPDATED\tPAYER\tSTATE\tAMOUNT\tLOOKUPS\tREQUEST\tTRANSACTION\tNOTE", rows)
}

// keyWord returns the key of a payment as an argument of a command.
func keyWord(key string) called.Word { return called.Word{Name: "KEY", Value: "'" + key + "'"} }

// transactionWord returns a transaction as an argument of a command.
func transactionWord(hash string) called.Word { return called.Word{Name: "TRANSACTION", Value: hash} }

// forceWord returns the argument FORCE=1 or -force. With a transaction, it makes a command
// close a record without evidence from the chain, or although a refund has begun. Without a
// transaction, it makes the command withdraw a refund that has begun.
func forceWord() called.Word { return called.Word{Name: "FORCE", Flag: "-force"} }

// printRefunds prints the commands for the refunds that are due.
func (o order) printRefunds(list []payment) {
	for _, p := range list {
		if _, ok := parseKey(p.Key); ok && p.Standing == refundDue {
			fmt.Fprintln(o.out, o.invocation.Command("refund", keyWord(p.Key)))
		}
	}
}
