package chain

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

const (
	// A payment's block may be older than the first claim of the payment by at most slack,
	// because block times and our clock differ by seconds. For a payment that we may have sent
	// ourselves, the limit is sentSlack. A transfer with the nonce of that payment is almost
	// certainly the one that we sent. It must be found even if our clock was ahead when the
	// payment was claimed.
	slack     = time.Minute
	sentSlack = 10 * time.Minute

	// blockTime is the time between two blocks of Base. It serves to guess the number of blocks
	// between two times. blockMargin is added to that guess, so that a difference of a few
	// seconds does not make a second guess necessary.
	blockTime   = 2 * time.Second
	blockMargin = 32
	// maxValidBlocks is how many blocks Base makes in the longest time for which an accepted
	// authorization can be valid.
	maxValidBlocks = uint64(24 * time.Hour / blockTime)
)

// Reasons of NeverPaid and StillOpen. A payer may read the reasons of NeverPaid.
const (
	reasonExpired       = "authorization expired unused"
	reasonCancelled     = "authorization was cancelled"
	reasonEarlier       = "authorization was used before it reached us"
	reasonSpent         = "authorization was used or cancelled before it reached us"
	reasonOtherTransfer = "authorization was used for another transfer"
	reasonOpen          = "authorization is unused and has not expired"
	reasonNotSafe       = "authorization has expired unused, in a block that is not safe yet"
)

// Errors of a search that finds no log.
var (
	errNoLog        = errors.New("authorization is spent, and there is no log of it")
	errSpentEarlier = errors.New(reasonSpent)
)

// inquiry is the state of one call of Find. Its session is with the node that is being asked.
type inquiry struct {
	*session
	q                   x402.Question
	payer, payee, nonce string        // the payer, the payee and the nonce of the question, as topics of a log
	slack               time.Duration // how much older than the first claim a block may be
	earliestTime        time.Time     // the earliest time that the payment's block can have
}

// Find implements x402.Evidence. It ends when ctx ends, and after ten seconds at the latest.
// The package comment lists the findings. A CannotTell always has a cause.
func (n *Nodes) Find(ctx context.Context, q x402.Question) x402.Finding {
	if q.Since.IsZero() || q.ValidBefore.IsZero() { // without these two times, the finding could be about another payment
		return x402.Finding{Cause: errors.New("chain: the question has no time")}
	}
	i := inquiry{
		q:     q,
		payer: topicOf(q.Payer),
		payee: topicOf(q.Payee),
		nonce: fmt.Sprintf("0x%x", q.Nonce),
		slack: slack,
	}
	if q.Sent {
		i.slack = sentSlack
	}
	i.earliestTime = q.Since.Add(-i.slack)
	var f x402.Finding
	err := n.tryEach(ctx, ceiling, func(s *session) (err error) {
		i.session = s
		f, err = i.findOut()
		return err
	})
	if err != nil {
		return x402.Finding{Cause: fmt.Errorf("ask the chain: %w", err)}
	}
	return f
}

// findOut first asks for the receipt of the transaction that the question names, because that
// is the shortest way. The transaction's hash comes from outside and is only a hint: a wrong
// hash proves nothing. If the receipt gives a finding, findOut returns that finding. It then
// does not ask for the state of the authorization, because on a node that is behind, the
// authorization would still look unused. Otherwise findOut asks whether the authorization is
// spent. If the authorization is spent, findOut searches for its log.
func (i *inquiry) findOut() (x402.Finding, error) {
	if x402.IsHash(i.q.Transaction) {
		if f, _, err := i.findByReceipt(strings.ToLower(i.q.Transaction)); err == nil {
			return f, nil
		}
	}
	spent, err := i.isSpent("latest")
	switch {
	case err != nil:
		return x402.Finding{}, err
	case !spent:
		return i.findUnspent()
	}
	l, err := i.search()
	switch {
	case errors.Is(err, errSpentEarlier):
		return i.neverPaid(reasonSpent, i.slack)
	case err != nil:
		return x402.Finding{}, err
	}
	f, logged, err := i.findByReceipt(l.Tx)
	if err == nil && !reflect.DeepEqual(l, logged) {
		err = errors.New("a log is not in its transaction's receipt")
	}
	return f, err
}

// findUnspent returns the finding for an authorization that is unused at the latest block.
func (i *inquiry) findUnspent() (x402.Finding, error) {
	head, err := i.recentHead(headAge)
	if err != nil {
		return x402.Finding{}, err
	}
	if head.time().Before(i.q.ValidBefore) {
		return x402.Finding{Fate: x402.StillOpen, Reason: reasonOpen}, nil
	}
	safe, err := i.safeBlock()
	switch {
	case errors.Is(err, errNoSafe) || err == nil && safe.time().Before(i.q.ValidBefore):
		return x402.Finding{Fate: x402.StillOpen, Reason: reasonNotSafe}, nil
	case err != nil:
		return x402.Finding{}, err
	}
	spent, err := i.isSpent(hexQuantity(safe.Number))
	if err == nil && spent {
		err = errors.New("authorization is unused at the latest block and used at an older one")
	}
	return x402.Finding{Fate: x402.NeverPaid, Reason: reasonExpired}, err
}

// search finds the log of the use or the cancellation of an authorization that is spent at the
// latest block. It searches from a block that is too old to hold the payment up to the latest
// block. If these blocks have no such log, search asks whether the authorization was already
// spent at the old block. If it was, the error is errSpentEarlier, and it does not matter how
// the authorization was spent. A node that keeps no old states cannot answer that question. On
// such a node, search goes back one more day, because no authorization is valid for longer
// than a day.
func (i *inquiry) search() (l entry, err error) {
	head, err := i.latestBlock()
	if err != nil {
		return l, err
	}
	low := head
	for step := blocksBetween(i.earliestTime, low.time()) + blockMargin; low.Number > 0 && !low.time().Before(i.earliestTime); step *= 2 {
		if low, err = i.block(hexQuantity(head.Number - min(head.Number, step))); err != nil {
			return l, err
		}
	}
	l, err = i.searchIn(low.Number, head.Number)
	if !errors.Is(err, errNoLog) {
		return l, err
	}
	switch spent, old := i.isSpent(hexQuantity(low.Number)); {
	case spent:
		return l, errSpentEarlier
	case isTooMuch(old):
		return i.searchIn(low.Number-min(low.Number, maxValidBlocks), low.Number)
	case old != nil:
		return l, old
	}
	return l, err
}

// searchIn searches a range of blocks for the log that spends the authorization. It begins
// with the oldest block, because an authorization is usually used in the first seconds after
// its claim. The query names the payer and the nonce, so the node can select exactly this log.
// Any other log in the reply is an error.
func (i *inquiry) searchIn(low, high uint64) (entry, error) {
	for low <= high {
		to := min(high, low+i.width-1)
		raw, err := i.call(i.logQuery(low, to, []string{topicUsed, topicCanceled}, i.payer, i.nonce))
		if i.narrowSearch(err, low, to) {
			continue
		}
		var found []entry
		if err == nil {
			found, err = decodeSearch(raw, low, to)
		}
		switch {
		case err != nil:
			return entry{}, err
		case len(found) > 1 || len(found) == 1 && !i.spends(found[0]):
			return entry{}, errNotAsked
		case len(found) == 1:
			return found[0], nil
		}
		low = to + 1
	}
	return entry{}, errNoLog
}

// spends reports whether a log is about the use or the cancellation of this authorization.
func (i *inquiry) spends(l entry) bool {
	return (l.isEvent(topicUsed, i.token) || l.isEvent(topicCanceled, i.token)) && l.Topics[1] == i.payer && l.Topics[2] == i.nonce
}

// findByReceipt returns the finding that follows from the receipt of a transaction. It also
// returns the log of the authorization's use or cancellation in that receipt. If the receipt
// has no such log, findByReceipt returns an error.
func (i *inquiry) findByReceipt(hash string) (f x402.Finding, l entry, err error) {
	r, block, err := i.receipt(hash)
	if err != nil {
		return f, l, err
	}
	at := slices.IndexFunc(r.Logs, i.spends)
	if at < 0 {
		return f, l, errors.New("receipt does not spend the authorization")
	}
	l = r.Logs[at]
	next := append(r.Logs[at+1:], entry{}) // next[0] always exists; the added entry is not a transfer
	moved := next[0]
	switch err = moved.checkMadeBy(l, i.token); {
	case slices.ContainsFunc(next, i.spends):
		err = errors.New("receipt spends one authorization twice")
	case l.Topics[0] == topicCanceled:
		f, err = i.neverPaid(reasonCancelled, headAge)
	case err != nil:
	case moved.Topics[2] != i.payee || moved.value().Cmp(i.q.Value) != 0:
		f, err = i.neverPaid(reasonOtherTransfer, headAge)
	case block.time().Before(i.earliestTime):
		f, err = i.neverPaid(reasonEarlier, i.slack)
	default:
		f = x402.Finding{Fate: x402.Paid, Transaction: l.Tx}
	}
	return f, l, err
}

// neverPaid returns the finding NeverPaid with a reason. Nobody tries the payment again after
// this finding, so the node must be up to date. neverPaid returns an error if the time of the
// node's latest block differs from our clock by more than maxGap, or by more than headAge. A
// finding that compares a time of the chain with a time of our clock needs a short maxGap,
// because a difference between the two clocks makes the comparison wrong.
func (i *inquiry) neverPaid(reason string, maxGap time.Duration) (x402.Finding, error) {
	_, err := i.recentHead(min(maxGap, headAge))
	return x402.Finding{Fate: x402.NeverPaid, Reason: reason}, err
}

// isSpent asks the token whether the authorization has been used or cancelled, as of the given
// block.
func (i *inquiry) isSpent(block string) (bool, error) {
	call := map[string]any{"to": i.token, "data": callState + i.payer[2:] + i.nonce[2:]}
	raw, err := i.call(query{Method: "eth_call", Params: []any{call, block}})
	if err != nil {
		return false, err
	}
	state, err := decodeHex(raw, "32")
	if err != nil {
		return false, fmt.Errorf("authorization state %w", err)
	}
	switch strings.TrimLeft(state[2:], "0") {
	case "":
		return false, nil
	case "1":
		return true, nil
	}
	return false, errors.New("authorization state is not a boolean")
}
