package x402test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// Behaviour says how the facilitator answers one call of /settle.
type Behaviour int

// The ways in which a call of /settle can go. With some of them the money moves although the
// call fails. If a call is repeated after the money has moved, the money does not move a
// second time. In that case Honest, SlowAfter and SlowBefore report that the authorization was
// used. The other behaviours answer the repeated call as they answered the first one.
const (
	Honest       Behaviour = iota // the money moves, 200 success:true
	Refuse                        // 200 success:false insufficient balance, nothing moves
	RefuseAfter                   // the money moves, but the answer is insufficient balance
	FailBefore                    // 500 without a body, nothing moves
	FailAfter                     // the money moves, 500 without a body
	DropAfter                     // the money moves, the connection closes
	Unconfirmed                   // the money moves, settlement_pending now and on every repeated call
	Unauthorized                  // 401, nothing moves
	TooMany                       // 429, nothing moves
	Revert                        // 200 success:false transaction_reverted, nothing moves
	HoldAfter                     // the money moves, no answer comes while the seller waits
	SlowAfter                     // the money moves at once, the answer comes late
	SlowBefore                    // like Honest, but the money moves late
	MoveLater                     // 504 without a body, the money moves after the answer
)

// String describes the behaviour in words.
func (b Behaviour) String() string {
	words := map[Behaviour]string{
		Honest:       "settles",
		Refuse:       "refuses",
		RefuseAfter:  "settles, refuses",
		FailBefore:   "answers 500",
		FailAfter:    "settles, answers 500",
		DropAfter:    "settles, drops the connection",
		Unconfirmed:  "settles, says that it is pending",
		Unauthorized: "answers 401",
		TooMany:      "answers 429",
		Revert:       "says that the transaction was reverted",
		HoldAfter:    "settles, never answers",
		SlowAfter:    "settles, answers late",
		SlowBefore:   "settles late",
		MoveLater:    "answers 504, settles later",
	}
	if text, known := words[b]; known {
		return text
	}
	return fmt.Sprintf("Behaviour(%d)", int(b))
}

// Reasons that facilitators give for a refusal, in addition to x402.ReasonNonceUsed.
const (
	reasonInsufficient = "invalid_exact_evm_insufficient_balance"
	reasonBadSignature = "invalid_exact_evm_signature"
	reasonExpired      = "invalid_exact_evm_payload_authorization_valid_before"
	reasonPending      = "settlement_pending"
	reasonReverted     = "transaction_reverted"
	reasonUnexpected   = "unexpected_settle_error"
)

// answer is the facilitator's answer to one call of /settle.
type answer struct {
	body      x402.SettleResponse // the body of a 200; other statuses have no body
	status    int                 // 0 means that no answer comes
	isDropped bool                // if no answer comes: true means that the connection is closed, and false that it stays open
}

// settlement carries out one call of /settle, and returns the answer when the answer is due.
// If invalid is not nil, it says what is wrong with the payment, and no money moves.
func (f *Facilitator) settlement(p *x402.Payment, q x402.Requirements, invalid error) answer {
	how := f.beginCall(f.keyOf(p.From, p.Nonce))
	defer f.endCall()
	if invalid != nil {
		return notSettled(p, q, invalid.Error(), "")
	}
	if how == SlowBefore {
		time.Sleep(f.slowDelay(how))
	}
	a := f.perform(how, p, q)
	if how == SlowAfter {
		time.Sleep(f.slowDelay(how))
	}
	return a
}

// beginCall counts a call of /settle, and returns how the call should go.
func (f *Facilitator) beginCall(key string) Behaviour {
	f.mu.Lock()
	defer f.mu.Unlock()
	how := Honest
	if f.config.Behave != nil {
		how = f.config.Behave(f.calls, key)
	}
	f.calls++
	f.settles[key]++
	f.pendingCalls++
	return how
}

func (f *Facilitator) endCall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pendingCalls--
}

func (f *Facilitator) slowDelay(how Behaviour) time.Duration {
	if f.config.Slow == nil {
		return 2 * time.Second
	}
	return f.config.Slow(how)
}

// perform carries out a settlement with the given behaviour, and returns the answer.
func (f *Facilitator) perform(how Behaviour, p *x402.Payment, q x402.Requirements) answer {
	switch how {
	case Refuse:
		return notSettled(p, q, reasonInsufficient, "")
	case Revert:
		return notSettled(p, q, reasonReverted, "")
	case FailBefore:
		return answer{status: http.StatusInternalServerError}
	case Unauthorized:
		return answer{status: http.StatusUnauthorized}
	case TooMany:
		return answer{status: http.StatusTooManyRequests}
	case MoveLater:
		f.moveLater(p)
		return answer{status: http.StatusGatewayTimeout}
	}
	t, used, err := f.execute(p)
	if err != nil {
		return notSettled(p, q, reasonUnexpected, "")
	}
	switch how {
	case RefuseAfter:
		return notSettled(p, q, reasonInsufficient, "")
	case FailAfter:
		return answer{status: http.StatusInternalServerError}
	case DropAfter:
		return answer{isDropped: true}
	case HoldAfter:
		return answer{}
	case Unconfirmed:
		return notSettled(p, q, reasonPending, t.Transaction)
	}
	if used {
		return notSettled(p, q, x402.ReasonNonceUsed, "")
	}
	return answer{
		status: http.StatusOK,
		body: x402.SettleResponse{
			Success:     true,
			Transaction: t.Transaction,
			Network:     q.Network,
			Payer:       p.From.Checksum(),
		},
	}
}

// notSettled returns the answer that a payment was not settled, with a reason.
func notSettled(p *x402.Payment, q x402.Requirements, reason, transaction string) answer {
	return answer{
		status: http.StatusOK,
		body: x402.SettleResponse{
			ErrorReason: reason,
			Transaction: transaction,
			Network:     q.Network,
			Payer:       p.From.Checksum(),
		},
	}
}

// execute moves the money of a payment. If the payment's authorization was used before, execute
// returns the earlier transfer, and used is true.
func (f *Facilitator) execute(p *x402.Payment) (t Transfer, used bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := f.keyOf(p.From, p.Nonce)
	if t, used = f.transfers[key]; used {
		return t, true, nil
	}
	t, err = f.move(key, p)
	return t, false, err
}

// moveLater moves the money of a payment some time after the call was answered.
func (f *Facilitator) moveLater(p *x402.Payment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pendingCalls++
	time.AfterFunc(f.slowDelay(MoveLater), func() {
		defer f.endCall()
		_, _, _ = f.execute(p) // the call was already answered, so nobody uses the result
	})
}

// send writes an answer to the seller over HTTP. If no answer is to come, it closes the
// connection, or waits until the seller closes it.
func (a answer) send(w http.ResponseWriter, r *http.Request) {
	switch {
	case a.status == http.StatusOK:
		reply(w, a.status, a.body)
	case a.status != 0:
		w.WriteHeader(a.status)
	case !a.isDropped:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	default:
		panic(http.ErrAbortHandler)
	}
}
