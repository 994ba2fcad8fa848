package chain

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// slack is how much older than the first claim a payment's block may be: block
// times and our clock differ by seconds (design §4). sentSlack is the same for
// a payment that we may have sent ourselves: a clock that ran ahead at its claim
// must not make our own transfer somebody else's, and there is no one else that
// it could belong to.
const (
	slack     = time.Minute
	sentSlack = 10 * time.Minute
)

// Reasons of NeverPaid, which a payer may read, and of StillOpen.
const (
	reasonExpired   = "authorization expired unused"
	reasonCancelled = "authorization was cancelled"
	reasonEarlier   = "authorization was used before it reached us"
	reasonSpent     = "authorization was used or cancelled before it reached us"
	reasonElse      = "authorization was used for another transfer"
	reasonOpen      = "authorization is unused and has not expired"
	reasonNotSafe   = "authorization has expired unused, in a block that is not safe yet"
)

// inquiry is one Find on its way.
type inquiry struct {
	*session
	q     x402.Question
	names names
}

func (c *Client) newInquiry(ctx context.Context, q x402.Question) *inquiry {
	return &inquiry{
		session: c.newSession(ctx, maxBody), q: q,
		names: names{
			token: c.token, payer: topicOf(q.Payer), payee: topicOf(q.Payee),
			nonce: "0x" + hex.EncodeToString(q.Nonce[:]),
		},
	}
}

// find looks at the named transaction first: it is the shortest way, and its
// receipt counts even if the node that answers the next call is behind.
func (i *inquiry) find() (x402.Finding, error) {
	if err := i.rightChain(); err != nil {
		return x402.Finding{}, err
	}
	var hint error
	if hash, ok := hexHash(i.q.Transaction); ok {
		f, found, err := i.byTransaction(hash)
		if found {
			return f, nil
		}
		hint = err
	}
	f, err := i.byState()
	if err != nil && hint != nil {
		err = fmt.Errorf("%w; and of the named transaction: %w", err, hint)
	}
	return f, err
}

// byState asks the token about the authorization itself.
func (i *inquiry) byState() (x402.Finding, error) {
	used, err := i.used("latest")
	switch {
	case err != nil:
		return x402.Finding{}, err
	case used:
		return i.byLog()
	}
	return i.unused()
}

// unused decides about an authorization that the latest head does not know.
func (i *inquiry) unused() (x402.Finding, error) {
	head, err := i.latest()
	if err != nil {
		return x402.Finding{}, err
	}
	// A node that is behind would call open what has long been used.
	if err := i.recent(head); err != nil {
		return x402.Finding{}, err
	}
	if head.time.Before(i.q.ValidBefore) {
		return x402.Finding{Verdict: x402.StillOpen, Reason: reasonOpen}, nil
	}
	safe, err := i.safe(head)
	if err != nil {
		return x402.Finding{}, err
	}
	if safe == nil || safe.time.Before(i.q.ValidBefore) {
		return x402.Finding{Verdict: x402.StillOpen, Reason: reasonNotSafe}, nil
	}
	used, err := i.used(hexQuantity(safe.number))
	switch {
	case err != nil:
		return x402.Finding{}, err
	case used:
		return x402.Finding{}, errors.New("authorization is unused at the latest block and used at an older one")
	}
	return x402.Finding{Verdict: x402.NeverPaid, Reason: reasonExpired}, nil
}

// byTransaction asks one transaction. found is false when the node cannot or
// will not say, when it is in no block, failed, or has nothing to do with the
// authorization: a hash from outside is a hint, proves nothing by being wrong,
// and stands in the way of nothing.
func (i *inquiry) byTransaction(hash string) (f x402.Finding, found bool, err error) {
	r, err := i.receipt(hash)
	var refused *nodeError
	if errors.As(err, &refused) {
		err = nil
	}
	if err != nil || r == nil {
		return x402.Finding{}, false, err
	}
	u, err := i.names.read(r, i.q)
	if err != nil || u == untouched {
		return x402.Finding{}, false, err
	}
	f, err = i.conclude(r, u)
	return f, err == nil, err
}

// byLog searches the transaction that used or cancelled the authorization.
func (i *inquiry) byLog() (x402.Finding, error) {
	head, err := i.latest()
	if err != nil {
		return x402.Finding{}, err
	}
	l, err := i.search(head)
	switch {
	case errors.Is(err, errSpentBefore):
		return i.earlier(reasonSpent)
	case err != nil:
		return x402.Finding{}, err
	case l.topics[0] == topicCanceled:
		return i.never(reasonCancelled)
	}
	r, err := i.receipt(l.tx)
	switch {
	case err != nil:
		return x402.Finding{}, err
	case r == nil:
		return x402.Finding{}, errors.New("a transaction has a log and no receipt")
	case r.block != l.block || r.number != l.number:
		return x402.Finding{}, errors.New("a log and its receipt are in different blocks")
	}
	u, err := i.names.read(r, i.q)
	switch {
	case err != nil:
		return x402.Finding{}, err
	case u == untouched || u == wasCanceled:
		return x402.Finding{}, errors.New("a log is not in its transaction's receipt")
	}
	return i.conclude(r, u)
}

// conclude turns what a receipt says into a finding, once its block is known to
// be on the chain, and to be young enough for this payment.
func (i *inquiry) conclude(r *receipt, u use) (x402.Finding, error) {
	block, err := i.block(r.number)
	switch {
	case err != nil:
		return x402.Finding{}, err
	case block.hash != r.block:
		return x402.Finding{}, errors.New("a receipt's block is not on the chain")
	case u == wasCanceled:
		return i.never(reasonCancelled)
	case u == paidElse:
		return i.never(reasonElse)
	case block.time.Before(i.oldest()):
		return i.earlier(reasonEarlier)
	}
	return x402.Finding{Verdict: x402.Paid, Transaction: r.tx}, nil
}

// never is NeverPaid, if the node is not stuck: it is the one verdict that lets
// a payer's authorization go.
func (i *inquiry) never(reason string) (x402.Finding, error) {
	head, err := i.latest()
	if err != nil {
		return x402.Finding{}, err
	}
	if err := i.recent(head); err != nil {
		return x402.Finding{}, err
	}
	return x402.Finding{Verdict: x402.NeverPaid, Reason: reason}, nil
}

// earlier is NeverPaid for a use before the first claim. It compares the chain's
// time with ours, so it needs the two to agree as closely as it measures.
func (i *inquiry) earlier(reason string) (x402.Finding, error) {
	head, err := i.latest()
	if err != nil {
		return x402.Finding{}, err
	}
	if age := i.client.now().Sub(head.time); age.Abs() > i.slack() {
		return x402.Finding{}, &staleError{age: age}
	}
	return i.never(reason)
}

// oldest is the time of the oldest block whose payment can be for us.
func (i *inquiry) oldest() time.Time { return i.q.Since.Add(-i.slack()) }

func (i *inquiry) slack() time.Duration {
	if i.q.Sent {
		return sentSlack
	}
	return slack
}

// used asks the token for the authorization's state at a block.
func (i *inquiry) used(block string) (bool, error) {
	raw, err := i.call("eth_call", map[string]string{
		"to":   i.client.token,
		"data": callState + strings.TrimPrefix(i.names.payer, "0x") + strings.TrimPrefix(i.names.nonce, "0x"),
	}, block)
	if err != nil {
		return false, err
	}
	s, err := hexBytes(raw, 32)
	if err != nil {
		return false, fmt.Errorf("authorization state %w", err)
	}
	switch strings.TrimLeft(s[2:], "0") {
	case "":
		return false, nil
	case "1":
		return true, nil
	}
	return false, errors.New("authorization state is not a boolean")
}
