package x402_test

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// action leads from one state to another. The comment of a field begins with the kinds of
// actions that use the field.
type action struct {
	kind actionKind
	auth int8  // execute, stranger submit, cancel: the authorization
	node int32 // step, crash: the number of the process's node before the action
	edge edge  // step: the reply that the process gets
	task task  // begin: what the process does
}

type actionKind uint8

const (
	actionBegin          actionKind = iota // a process begins
	actionStep                             // a process gets a reply
	actionCrash                            // a process crashes
	actionTick                             // the clock moves to the next instant
	actionExecute                          // an authorization that a facilitator sent to the chain is executed
	actionStrangerSubmit                   // somebody else submits the authorization
	actionCancel                           // the payer cancels the authorization
)

// expand takes every possible action from a state.
func (x *explorer) expand(from int32) {
	s := x.states[from].state
	for slot := range x.world.maxProcesses {
		if n := s.procs[slot].node; n != 0 {
			x.stepProcess(from, s, slot)
			if s.budgetLeft.crashes > 0 {
				next := s
				next.budgetLeft.crashes--
				next.procs[slot] = processState{}
				x.take(from, action{kind: actionCrash, node: n}, next)
			}
		}
	}
	if s.procs[x.world.maxProcesses-1].node == 0 {
		x.beginTasks(from, s)
	}
	x.takeWorldActions(from, s)
}

// takeWorldActions takes every action in which no process takes part: the clock moves, or
// something happens to an authorization on the chain.
func (x *explorer) takeWorldActions(from int32, s state) {
	if int(s.now)+1 < len(x.world.instants) && (s.quiet() || s.budgetLeft.freezes > 0) {
		next := s
		if !s.quiet() {
			next.budgetLeft.freezes--
		}
		next.now++
		x.take(from, action{kind: actionTick}, next)
	}
	for auth := range x.world.authCount {
		c := s.chain[auth]
		if c.truth != truthUnused || !x.clock(&s).Before(x.windowEnd(&s, auth)) {
			continue
		}
		if c.pending {
			x.currentStep = step{fromState: from, action: action{kind: actionExecute, auth: int8(auth)}}
			next := s
			next.chain[auth].pending = false
			x.moveMoney(&next, auth, true, c.toldUncharged)
			x.take(from, x.currentStep.action, next)
		}
		if s.budgetLeft.strangerSubmissions > 0 {
			x.currentStep = step{fromState: from, action: action{kind: actionStrangerSubmit, auth: int8(auth)}}
			next := s
			next.budgetLeft.strangerSubmissions--
			x.moveMoney(&next, auth, false, false)
			x.take(from, x.currentStep.action, next)
		}
		if s.budgetLeft.cancellations > 0 {
			next := s
			next.budgetLeft.cancellations--
			next.chain[auth].truth, next.chain[auth].spentAt = truthCancelled, s.now
			x.take(from, action{kind: actionCancel, auth: int8(auth)}, next)
		}
	}
}

// beginTasks takes every action with which a process can begin in a state.
func (x *explorer) beginTasks(from int32, s state) {
	t := task{begunAt: s.now, serial: s.nextSerial}
	if s.budgetLeft.requests > 0 {
		next := s
		next.budgetLeft.requests--
		for auth := range x.world.authCount {
			t.auth = int8(auth)
			for _, endpoint := range x.endpoints(auth) {
				t.endpoint = endpoint
				x.launch(from, next, t)
				if x.world.hasCheck {
					t.checkRefuses = true
					x.launch(from, next, t)
					t.checkRefuses = false
				}
			}
		}
		t.auth, t.endpoint = 0, 0
	}
	if s.budgetLeft.reconcilerRuns > 0 {
		next := s
		next.budgetLeft.reconcilerRuns--
		t.kind = taskReconcile
		x.launch(from, next, t)
	}
	x.beginCommands(from, s, t)
}

// beginCommands takes every action with which an operator's command begins. The commands are
// about payments that are paid and not answered.
func (x *explorer) beginCommands(from int32, s state, t task) {
	for auth := range x.world.authCount {
		t.auth = int8(auth)
		r := x.payment(&s, auth)
		if r == nil || r.State != ledger.Settled {
			continue
		}
		if s.budgetLeft.refunds > 0 && r.SendingBack == nil {
			next := s
			next.budgetLeft.refunds--
			t.kind = taskSendBack
			x.launch(from, next, t)
		}
		if s.budgetLeft.attestations > 0 {
			next := s
			next.budgetLeft.attestations--
			t.kind = taskAttest
			x.launch(from, next, t)
		}
		if r.SendingBack != nil {
			t.kind = taskRefund
			x.launch(from, s, t)
			t.kind = taskWithdraw
			x.launch(from, s, t)
		}
	}
}

// endpoints returns the endpoints to which the payer may send an authorization.
func (x *explorer) endpoints(auth int) []int8 {
	switch {
	case !x.world.hasSecondEndpoint:
		return []int8{0}
	case auth == 1:
		return []int8{1}
	}
	return []int8{0, 1}
}

// launch takes the action with which a process begins its task. The process gets the last slot
// of the world.
func (x *explorer) launch(from int32, s state, t task) {
	x.currentStep = step{fromState: from, action: action{kind: actionBegin, task: t}}
	s.nextSerial++
	x.enter(&s, x.world.maxProcesses-1, t)
	x.take(from, x.currentStep.action, s)
}

// enter puts a new process into a free slot of a state. If the process serves a request, enter
// notes what is true of the records when the request arrives.
func (x *explorer) enter(s *state, slot int, t task) {
	p := processState{node: x.root(t).number}
	if t.kind == taskRequest {
		r := x.payment(s, int(t.auth))
		p.hadNoRecord = r == nil
		p.answerReplayable = r != nil && r.State == ledger.Redeemed && r.Answer.Stored && !r.Attested() &&
			x.clock(s).Sub(r.AnsweredAt) <= ledger.KeptFor && r.Endpoint == endpointName(t.endpoint)
		for other := range paymentCount {
			if x.isOver(x.payment(s, other), t.endpoint, x.clock(s)) {
				p.overAuths |= 1 << other
			}
		}
		p.sentWithoutToken = r != nil && r.Sent && r.Token == ""
		p.couldRunLookup = r != nil && r.State == ledger.Settled && r.SendingBack == nil &&
			x.meaning(r, s).Claim == ledger.Held
	}
	s.procs[slot] = p
	x.finishStep(s, slot)
}

// stepProcess gives a process every possible reply to the calls for which it waits.
func (x *explorer) stepProcess(from int32, s state, slot int) {
	n := x.nodes[s.procs[slot].node]
	x.currentStep = step{fromState: from, action: action{kind: actionStep, node: n.number}}
	if n.mainCall != nil {
		x.findReplies(&s, slot, n.mainCall, func(next state, r reply) { x.proceed(from, next, slot, edge{reply: r, instant: s.now}) })
	}
	if n.jobCall != nil {
		for _, w := range x.world.workEnds {
			x.proceed(from, s, slot, edge{isJob: true, reply: reply{n: int32(w)}, instant: s.now})
		}
	}
}

// proceed gives a process one reply, and records the state that the process reaches with it.
func (x *explorer) proceed(from int32, s state, slot int, e edge) {
	n := x.nodes[s.procs[slot].node]
	x.currentStep.action.edge = e
	s.procs[slot].node = x.child(n, e).number
	x.finishStep(&s, slot)
	x.take(from, action{kind: actionStep, node: n.number, edge: e}, s)
}

// finishStep checks a process that has just taken a step, and removes the process if that step
// ended it.
func (x *explorer) finishStep(s *state, slot int) {
	n := x.nodes[s.procs[slot].node]
	if n.jobCall != nil {
		x.checkRun(s, slot, n)
	}
	if n.end == nil {
		return
	}
	p := s.procs[slot]
	s.procs[slot] = processState{}
	x.checkEnd(s, p, n)
}

// findReplies finds the possible replies to a call of a process's main thread. It passes each
// reply, and the state that follows from it, to yield.
func (x *explorer) findReplies(s *state, slot int, c *call, yield func(state, reply)) {
	n := s.procs[slot].node
	switch c.kind {
	case callPut:
		x.findPutReplies(s, slot, c, yield)
	case callFetch:
		yield(*s, reply{rec: s.recs[c.key]})
		x.findStoreFault(s, yield)
	case callList:
		yield(*s, reply{n: x.encodeList(s, c.list)})
		x.findStoreFault(s, yield)
	case callTransfers:
		yield(*s, reply{n: x.encodeTransfers(s, c.fromBlock)})
		x.findNodeFailure(s, reply{result: replyFailed}, yield)
	case callSettle:
		x.findSettleReplies(s, slot, c, yield)
	case callFind:
		yield(*s, reply{n: int32(x.verdict(s, c))})
		x.findNodeFailure(s, reply{n: int32(x402.CannotTell)}, yield)
	case callPause:
		if s.now > x.nodes[n].reachedAt || c.key < paymentCount && s.recs[c.key] != c.seenRecord {
			yield(*s, reply{})
		}
		yield(*s, reply{result: replyFailed}) // the time for waiting is over
	case callRun: // only the thread that does the work makes this call
	}
}

// findStoreFault yields one reply: the call of the store or of its index fails, and changes
// nothing. If the world's budget has no store fault left, findStoreFault yields nothing.
func (x *explorer) findStoreFault(s *state, yield func(state, reply)) {
	if s.budgetLeft.storeFaults > 0 {
		next := *s
		next.budgetLeft.storeFaults--
		yield(next, reply{result: replyFailed})
	}
}

// findNodeFailure yields r, the reply of a node that fails. If the world's node never fails,
// or if the world's budget has no node failure left, findNodeFailure yields nothing.
func (x *explorer) findNodeFailure(s *state, r reply, yield func(state, reply)) {
	if x.world.nodeMayFail && s.budgetLeft.nodeFailures > 0 {
		next := *s
		next.budgetLeft.nodeFailures--
		yield(next, r)
	}
}

// findPutReplies yields the replies to a write. The write succeeds if its version follows the
// stored version, or if it repeats the write that is stored. Any other write fails, because
// another record is in the way.
func (x *explorer) findPutReplies(s *state, slot int, c *call, yield func(state, reply)) {
	r, stored := x.records[c.rec], x.records[s.recs[c.key]]
	fits := stored == nil && r.Head().Version == 1 || stored != nil && stored.Head().Version == r.Head().Version-1
	same := s.recs[c.key] == c.rec
	switch {
	case same:
		yield(*s, reply{})
	case !fits:
		yield(*s, reply{result: replyConflict, rec: s.recs[c.key]})
	default:
		written := *s
		written.recs[c.key] = c.rec
		x.checkWrite(s, &written, slot, c)
		yield(written, reply{})
		if s.budgetLeft.storeFaults > 0 {
			written.budgetLeft.storeFaults--
			yield(written, reply{result: replyLost})
		}
	}
	x.findStoreFault(s, yield)
}

// findSettleReplies yields the replies of a facilitator that is asked to settle a payment.
// Each reply comes with what the facilitator then does to the money.
func (x *explorer) findSettleReplies(s *state, slot int, c *call, yield func(state, reply)) {
	sent := *s
	x.checkSend(&sent, x.nodes[s.procs[slot].node].task, c)
	for _, w := range x.world.replies {
		chain := sent.chain[c.auth]
		if !w.isPossible(chain, x.clock(s), x.windowEnd(s, c.auth)) || w.isFalse() && s.budgetLeft.falseReplies == 0 {
			continue
		}
		next := sent
		toldUncharged := s.procs[slot].toldUncharged&(1<<c.auth) != 0
		if w.isFalse() {
			next.budgetLeft.falseReplies--
			next.chain[c.auth].liedAbout = true
		}
		switch {
		case w.movesMoney():
			x.moveMoney(&next, c.auth, true, toldUncharged)
		case w == movesLater || w == refusesAndWillMove:
			next.chain[c.auth].pending, next.chain[c.auth].toldUncharged = true, toldUncharged
		}
		yield(next, reply{n: int32(w)})
	}
}

// verdict returns what the chain shows about an authorization.
func (x *explorer) verdict(s *state, c *call) x402.Fate {
	const safe, slack = 2 * time.Minute, 10 * time.Minute
	chain, at := s.chain[c.auth], x.clock(s)
	switch {
	case chain.truth == truthCancelled:
		return x402.NeverPaid
	case chain.truth == truthMoved && x.instants[chain.spentAt].Before(c.claimedAt.Add(-slack)):
		return x402.NeverPaid // the transfer is so much older than the record that it was made for something else
	case chain.truth == truthMoved:
		return x402.Paid
	case !at.Add(-safe).Before(x.windowEnd(s, c.auth)):
		return x402.NeverPaid
	}
	return x402.StillOpen
}

// encodeList returns the payments on a list, encoded in one number for the field n of a reply.
func (x *explorer) encodeList(s *state, list string) (n int32) {
	for auth := paymentCount - 1; auth >= 0; auth-- {
		r := x.payment(s, auth)
		if r == nil {
			continue
		}
		if in, _ := r.Listed(); in == list {
			n = n*listBase + int32(auth) + 1
		}
	}
	return n
}

// encodeTransfers returns the transfers that a Scanner finds from a given block on, encoded in
// one number for the field n of a reply.
func (x *explorer) encodeTransfers(s *state, from uint64) (n int32) {
	for auth := paymentCount - 1; auth >= 0; auth-- {
		n <<= 8
		c := s.chain[auth]
		if c.truth == truthMoved && c.spentAt < s.now && blockOf(int(c.spentAt), auth) >= from {
			n |= int32(c.spentAt) + 1
		}
	}
	return n
}
