package chain

import (
	"errors"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// use is what a transaction did to an authorization.
type use int

const (
	untouched   use = iota // it is not in the transaction
	paidUs                 // its transfer went to the payee with the right value
	paidElse               // its transfer was another one
	wasCanceled            // it was cancelled
)

// names are the authorization's identity as topics.
type names struct {
	token, payer, payee, nonce string
}

// concerns says whether a log is the use or the cancellation of this very
// authorization.
func (n names) concerns(l entry) bool {
	return l.address == n.token && len(l.topics) == 3 &&
		(l.topics[0] == topicUsed || l.topics[0] == topicCanceled) &&
		l.topics[1] == n.payer && l.topics[2] == n.nonce
}

// read finds what a receipt says about the authorization. An error means that
// it says something that an EIP-3009 token cannot have done.
func (n names) read(r *receipt, q x402.Question) (use, error) {
	at := -1
	for i, l := range r.logs {
		if !n.concerns(l) {
			continue
		}
		if at >= 0 {
			return untouched, errors.New("receipt spends one authorization twice")
		}
		at = i
	}
	switch {
	case at < 0:
		return untouched, nil
	case r.logs[at].topics[0] == topicCanceled:
		return wasCanceled, nil
	case at+1 == len(r.logs):
		return untouched, errors.New("receipt has no transfer after the authorization")
	}
	return n.readTransfer(r.logs[at], r.logs[at+1], q)
}

// readTransfer judges the log that follows the use of an authorization. It
// counts only with the very next index and from the payer: anything else is
// not how the token is known to work, so it decides nothing.
func (n names) readTransfer(used, next entry, q x402.Question) (use, error) {
	const valueSize = 2 + 64 // 0x and 32 bytes of hex
	if next.index != used.index+1 || next.address != n.token || len(next.topics) != 3 ||
		next.topics[0] != topicTransfer || len(next.data) != valueSize {
		return untouched, errors.New("receipt has no transfer right after the authorization")
	}
	if next.topics[1] != n.payer {
		return untouched, errors.New("receipt has another payer's transfer after the authorization")
	}
	if !strings.HasPrefix(next.topics[2], "0x"+strings.Repeat("0", 24)) {
		return untouched, errors.New("receipt has a transfer to what is no account")
	}
	if next.topics[2] == n.payee && word(next.data).Cmp(q.Value) == 0 {
		return paidUs, nil
	}
	return paidElse, nil
}
