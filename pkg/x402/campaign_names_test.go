package x402_test

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
)

// checkName checks the answer to an authorization that was on record for another
// purchase when it came: it belongs to that one. It is refused, and nothing is done or
// written. The lock is held.
func (w *world) checkName(p *process, out *x402.Outcome) {
	a := p.pay
	if !p.recordedBefore || a.purchase == p.named(w) {
		return
	}
	if p.writes+p.sent+p.lookups > 0 || isAnswer(out) || out.Replayed {
		w.violated("worked for an authorization under another name")
		return
	}
	r := w.record(a)
	proven := a.token != "" && a.token == p.signed.token
	fits := w.deployAt.IsZero() && time.Until(a.validBefore) > 10*time.Second+w.clockSkew
	if proven && fits && r != nil && r.Request == p.path && !p.disturbed() && !isKeyConflict(out) {
		w.violated("another name for an authorization is not a conflict, but " + string(out.Fault.Code))
	}
}

// checkKeyConflict checks the answer that one key was used for two requests, or one
// authorization under two names.
func (w *world) checkKeyConflict(p *process, out *x402.Outcome) {
	r := w.record(p.pay)
	if r == nil {
		w.violated("a conflict of keys, and no record")
		return
	}
	if out.Payment.Retryable {
		w.violated("a conflict of keys, and retryable")
	}
	if p.pay.purchase != p.named(w) {
		w.observed("a conflict of names")
		return
	}
	if o := w.owner(p.pay.purchase); !keyed(p.pay.purchase) || o == nil || w.record(o) != nil && w.record(o).Request == r.Request {
		w.violated("a conflict of keys that is none")
	}
	if !isFalse(out.Payment.Charged) && !(r.Doubt && out.Payment.Charged == nil) {
		w.violated("a conflict of keys, and charged")
	}
}
