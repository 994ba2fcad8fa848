package x402_test

import (
	"fmt"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// checkState checks a state that the walk reaches for the first time. If no process runs in the
// state, it checks the operator's lists, and what happens if the payer tries again and nothing
// fails any more.
func (x *explorer) checkState(s *state) {
	for auth := range x.world.authCount {
		x.reachedStandings[x.standing(x.payment(s, auth), s)] = true
	}
	if !s.quiet() {
		return
	}
	for auth := range x.world.authCount {
		x.checkListed(s, auth)
	}
	if x.stopAtFirst && len(x.violationStates) > 0 {
		return
	}
	x.sequel = nil
	x.checkRepetition(*s)
	x.sequel = nil
	x.checkNewSignature(*s)
	x.sequel = nil
}

// checkListed checks the lists in which an operator sees a payment while no process runs.
func (x *explorer) checkListed(s *state, auth int) {
	r, c := x.payment(s, auth), s.chain[auth]
	moved := c.truth == truthMoved && c.movedByUs && !c.liedAbout
	if r == nil {
		if moved {
			x.noteViolation("money without a record")
		}
		return
	}
	list, _ := r.Listed()
	m := x.meaning(r, s)
	x.noteViolations(map[string]bool{
		"money, and the record says that none moved": moved && !r.Paid() && !r.InDoubt(),
		"in doubt, and in no list":                   r.InDoubt() && list != ledger.ListOpen,
		"refused, not proven, and in no list":        closedUnpaid(r) && !x.world.hasNode && r.Sent && !r.Disproved && list != ledger.ListUnproven,
		"paid and not answered, and in no list":      r.Owed() && list == "",
		"a payment is listed as what it is not":      m.Case != x.caseOf(r, s),
		"charged is not what is known":               m.Moved != movedOf(r),
	})
}

func movedOf(r *ledger.Payment) ledger.Moved {
	switch {
	case r.Paid():
		return ledger.MovedYes
	case r.InDoubt():
		return ledger.MovedUnknown
	}
	return ledger.MovedNo
}

// caseOf returns the case under which the lists must show a payment. caseOf derives the case
// from the record and not from the ledger's table, so that a wrong row in the table is
// noticed.
func (x *explorer) caseOf(r *ledger.Payment, s *state) ledger.Case {
	live := r.LeaseUntil.After(x.clock(s))
	unproven := r.Sent && !r.Disproved
	switch {
	case r.Owed():
		return x.caseOfDebt(r, s, live)
	case r.State == ledger.Redeemed:
		return ledger.CaseAnswered
	case r.State == ledger.Refunded:
		return ledger.CaseRefunded
	case closedUnpaid(r) && unproven:
		return ledger.CaseRefused
	case r.State == ledger.Superseded:
		return ledger.CaseSuperseded
	case r.State == ledger.Refused:
		return ledger.CaseNotCharged
	case r.State == ledger.Settling && (live || !r.Sent && !r.Doubt && !x.world.separatePurchases):
		return ledger.CaseUnderWay
	}
	return ledger.CaseInDoubt
}

// caseOfDebt returns the case under which the lists must show a payment that is paid and not
// answered.
func (x *explorer) caseOfDebt(r *ledger.Payment, s *state, live bool) ledger.Case {
	switch {
	case r.SendingBack != nil || r.DueBack != "":
		return ledger.CaseRefundDue
	case live:
		return ledger.CaseAnswerOwed
	}
	switch {
	case silenceIsAnswer(r, x.clock(s)):
		return ledger.CaseAnswered
	case isOverdue(r, x.clock(s)), x.world.mostRuns > 0 && r.Lookups >= x.world.mostRuns:
		return ledger.CaseRefundDue
	}
	return ledger.CaseAnswerOwed
}

// isOverdue reports whether an answer has been owed for longer than ledger.OwedFor.
func isOverdue(r *ledger.Payment, now time.Time) bool { return now.Sub(r.SettledAt) > ledger.OwedFor }

// silenceIsAnswer reports whether the silence of the target is the answer that a payment is
// owed. No lookup may be running, and the last lookup must have met a silent target. Then
// silence is the answer in two cases: there were ledger.MostSilent such lookups, or the answer
// is overdue and every lookup met a silent target.
func silenceIsAnswer(r *ledger.Payment, now time.Time) bool {
	silent := r.LastFault != nil && r.LastFault.Silence
	return r.Owed() && r.LeaseUntil.IsZero() && silent && (r.Silent >= ledger.MostSilent || isOverdue(r, now) && r.Silent == r.Lookups)
}

// faultlessReplies returns the replies of a facilitator that settles every payment that can be
// settled.
func faultlessReplies() []facilitatorReply {
	return []facilitatorReply{saysMoved, saysUsed, saysExpired}
}

// runToEnd runs a process alone until the process ends, and returns how it ended. Nothing
// fails, and no reply is false.
func (x *explorer) runToEnd(s *state, t task) *ending {
	worldReplies := x.world.replies
	x.world.replies = faultlessReplies()
	defer func() { x.world.replies = worldReplies }()
	s.nextSerial++
	x.enter(s, 0, t)
	n := x.root(t)
	for s.procs[0].node != 0 {
		e := edge{isJob: n.jobCall != nil, reply: reply{n: int32(workAnswers)}, instant: s.now}
		if n.jobCall == nil {
			first := true
			x.findReplies(s, 0, n.mainCall, func(next state, r reply) {
				if first {
					*s, e.reply, first = next, r, false
				}
			})
		}
		n = x.child(n, e)
		s.procs[0].node = n.number
		x.finishStep(s, 0)
	}
	*s = x.canonicalState(*s)
	return n.end
}

// trial is a state in a continuation without faults, and the request that a payer sends in that
// state.
type trial struct {
	state state
	task  task
}

// repeatUntilAnswered lets a payer repeat a payment at later and later instants, until the
// payment is answered or the last instant is over. It reports whether the payment was
// answered.
func (x *explorer) repeatUntilAnswered(s *state, t task) bool {
	var tried []trial
	answered := false
	for more := true; more && !answered; s.now, more = x.nextInstant(s.now) {
		*s = x.canonicalState(*s)
		t.begunAt, t.serial = s.now, s.nextSerial
		at := trial{*s, t}
		at.state.budgetLeft = budget{}
		known, is := x.trialAnswered[at]
		if is {
			answered = known
			break
		}
		tried = append(tried, at)
		answered = x.tryOnce(s, t)
	}
	for _, at := range tried {
		x.trialAnswered[at] = answered
	}
	return answered
}

// tryOnce lets a payer send a payment once, and reports whether it was answered.
func (x *explorer) tryOnce(s *state, t task) bool {
	line := fmt.Sprintf("  and then kindly: request with %c at %s", 'A'+t.auth, x.world.instantName(t.begunAt))
	x.sequel = append(x.sequel, line)
	out := x.runToEnd(s, t).out
	if out == nil { // the process panicked
		return true
	}
	code := ""
	if out.Fault != nil {
		code = string(out.Fault.Code)
	}
	x.sequel[len(x.sequel)-1] = fmt.Sprintf("%s: %d %s", line, out.Status, code)
	return out.Body != nil
}

// checkRepetition lets a payer repeat the last payment on record until the payment is
// answered. Then, at the last instant, the Reconciler runs. After that, the records must say
// which money has moved:
//
//   - If there is a node, no payment may be in doubt. A payment whose money has moved must be on
//     record as paid.
//   - If there is no node, a payment whose money we have moved may also be in doubt. A payment
//     about which a facilitator has lied is not checked.
func (x *explorer) checkRepetition(s state) {
	t := task{auth: int8(x.world.authCount - 1)}
	for t.auth > 0 && s.recs[t.auth] == 0 {
		t.auth--
	}
	if s.recs[t.auth] == 0 {
		return
	}
	if x.world.hasSecondEndpoint && t.auth == 1 {
		t.endpoint = 1
	}
	x.repeatUntilAnswered(&s, t)
	for more := true; more; {
		s.now, more = x.nextInstant(s.now)
	}
	x.sequel = append(x.sequel, "  and then kindly: reconcile")
	x.runToEnd(&s, task{kind: taskReconcile, begunAt: s.now, serial: s.nextSerial})
	for auth := range x.world.authCount {
		r, c := x.payment(&s, auth), s.chain[auth]
		if r == nil {
			continue
		}
		x.noteViolations(map[string]bool{
			"in doubt for ever":              x.world.hasNode && r.InDoubt(),
			"paid, and never known":          x.world.hasNode && c.truth == truthMoved && !r.Paid(),
			"paid, and never known, blindly": !x.world.hasNode && c.truth == truthMoved && c.movedByUs && !r.Paid() && !r.InDoubt() && !c.liedAbout,
		})
	}
}

// checkNewSignature lets a payer sign a new payment for the purchase, and send that payment at
// later and later instants. It notes a violation if the new payment is never answered. The
// loop below returns in the cases in which that is no violation.
func (x *explorer) checkNewSignature(s state) {
	t := task{auth: extraAuth, signedAt: s.now}
	if x.repeatUntilAnswered(&s, t) {
		return
	}
	own := x.payment(&s, extraAuth)
	for auth := range x.world.authCount {
		r := x.payment(&s, auth)
		if r == nil {
			continue
		}
		if own != nil && own.State == ledger.Superseded && x.owns(&s, auth) && x.isOver(r, 0, x.clock(&s)) {
			return // one more new payment would take over the purchase
		}
		m := x.meaning(r, &s)
		if x.owns(&s, auth) && !r.Paid() && r.Endpoint != endpointName(0) {
			return // the chain decides about this payment, and then one more new payment would take over the purchase
		}
		if !x.world.hasNode && r.InDoubt() && x.owns(&s, auth) || x.world.mostRuns > 0 && m.Case == ledger.CaseRefundDue {
			return
		}
	}
	x.noteViolation("a new signature is never answered")
}

// owns reports whether the record of the purchase names the authorization as its owner.
func (x *explorer) owns(s *state, auth int) bool {
	p, ok := x.records[s.recs[purchaseRecord]].(ledger.Purchase)
	return ok && p.Owner == x.keys[auth]
}
