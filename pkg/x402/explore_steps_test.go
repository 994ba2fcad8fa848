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
	auth int8  // executes, thirdParty, cancels: the authorization
	node int32 // steps, crashes: the number of the process's node before the action
	edge edge  // steps: the step
	task task  // begins: what the process does
}

type actionKind uint8

const (
	begins     actionKind = iota // a process begins
	steps                        // a process gets a reply
	crashes                      // a process crashes
	ticks                        // the clock moves to the next instant
	executes                     // an authorization that a facilitator sent to the chain is executed
	thirdParty                   // somebody else submits the authorization
	cancels                      // the payer cancels the authorization
)

// expand takes every possible action from a state.
func (x *explorer) expand(from int32) {
	s := x.states[from].state
	for slot := range x.world.atOnce {
		if n := s.procs[slot].node; n != 0 {
			x.step(from, s, slot)
			if s.left.crashes > 0 {
				next := s
				next.left.crashes--
				next.procs[slot] = running{}
				x.take(from, action{kind: crashes, node: n}, next)
			}
		}
	}
	if s.procs[x.world.atOnce-1].node == 0 {
		x.begin(from, s)
	}
	x.happen(from, s)
}

// happen takes every action in which no process takes part: the clock moves, or something
// happens to an authorization on the chain.
func (x *explorer) happen(from int32, s state) {
	if int(s.now)+1 < len(x.world.instants) && (s.quiet() || s.left.freezes > 0) {
		next := s
		if !s.quiet() {
			next.left.freezes--
		}
		next.now++
		x.take(from, action{kind: ticks}, next)
	}
	for auth := range x.world.auths {
		c := s.chain[auth]
		if c.truth != truthUnused || !x.clock(&s).Before(x.endOf(&s, auth)) {
			continue
		}
		if c.pending {
			x.doing = step{from: from, did: action{kind: executes, auth: int8(auth)}}
			next := s
			next.chain[auth].pending = false
			x.move(&next, auth, true, c.stale)
			x.take(from, x.doing.did, next)
		}
		if s.left.thirds > 0 {
			x.doing = step{from: from, did: action{kind: thirdParty, auth: int8(auth)}}
			next := s
			next.left.thirds--
			x.move(&next, auth, false, false)
			x.take(from, x.doing.did, next)
		}
		if s.left.cancels > 0 {
			next := s
			next.left.cancels--
			next.chain[auth].truth, next.chain[auth].at = truthCancelled, s.now
			x.take(from, action{kind: cancels, auth: int8(auth)}, next)
		}
	}
}

// begin takes every action with which a process can begin in a state.
func (x *explorer) begin(from int32, s state) {
	t := task{at: s.now, serial: s.serial}
	if s.left.requests > 0 {
		next := s
		next.left.requests--
		for auth := range x.world.auths {
			t.auth = int8(auth)
			for _, endpoint := range x.endpoints(auth) {
				t.endpoint = endpoint
				x.launch(from, next, t)
				if x.world.checks {
					t.refuses = true
					x.launch(from, next, t)
					t.refuses = false
				}
			}
		}
		t.auth, t.endpoint = 0, 0
	}
	if s.left.reconciles > 0 {
		next := s
		next.left.reconciles--
		t.kind = taskReconcile
		x.launch(from, next, t)
	}
	x.operate(from, s, t)
}

// operate takes every action with which an operator's command begins. The commands are about
// payments that are paid and not answered.
func (x *explorer) operate(from int32, s state, t task) {
	for auth := range x.world.auths {
		t.auth = int8(auth)
		r := x.payment(&s, auth)
		if r == nil || r.State != ledger.Settled {
			continue
		}
		if s.left.refunds > 0 && r.SendingBack == nil {
			next := s
			next.left.refunds--
			t.kind = taskSendBack
			x.launch(from, next, t)
		}
		if s.left.attests > 0 {
			next := s
			next.left.attests--
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
	case !x.world.secondEndpoint:
		return []int8{0}
	case auth == 1:
		return []int8{1}
	}
	return []int8{0, 1}
}

// launch takes the action with which a process begins its task. The process gets the last slot
// of the world.
func (x *explorer) launch(from int32, s state, t task) {
	x.doing = step{from: from, did: action{kind: begins, task: t}}
	s.serial++
	x.enter(&s, x.world.atOnce-1, t)
	x.take(from, x.doing.did, s)
}

// enter puts a new process into a free slot of a state. If the process serves a request, enter
// notes what is true of the records when the request arrives.
func (x *explorer) enter(s *state, slot int, t task) {
	p := running{node: x.root(t).number}
	if t.kind == taskRequest {
		r := x.payment(s, int(t.auth))
		p.fresh = r == nil
		p.kept = r != nil && r.State == ledger.Redeemed && r.Answer.Stored && !r.Attested() &&
			x.clock(s).Sub(r.AnsweredAt) <= ledger.KeptFor && r.Endpoint == endpointName(t.endpoint)
		for other := range payments {
			if x.isOver(x.payment(s, other), t.endpoint, x.clock(s)) {
				p.over |= 1 << other
			}
		}
		p.sent = r != nil && r.Sent && r.Token == ""
		p.openTo = r != nil && r.State == ledger.Settled && r.SendingBack == nil &&
			x.meaning(r, s).Claim == ledger.Held
	}
	s.procs[slot] = p
	x.arrived(s, slot)
}

// step gives a process every possible reply to the calls for which it waits.
func (x *explorer) step(from int32, s state, slot int) {
	n := x.nodes[s.procs[slot].node]
	x.doing = step{from: from, did: action{kind: steps, node: n.number}}
	if n.main != nil {
		x.replies(&s, slot, n.main, func(next state, r reply) { x.proceed(from, next, slot, edge{reply: r, at: s.now}) })
	}
	if n.job != nil {
		for _, w := range x.world.works {
			x.proceed(from, s, slot, edge{job: true, reply: reply{n: int32(w)}, at: s.now})
		}
	}
}

// proceed gives a process one reply, and records the state that the process reaches with it.
func (x *explorer) proceed(from int32, s state, slot int, e edge) {
	n := x.nodes[s.procs[slot].node]
	x.doing.did.edge = e
	s.procs[slot].node = x.child(n, e).number
	x.arrived(&s, slot)
	x.take(from, action{kind: steps, node: n.number, edge: e}, s)
}

// arrived checks a process that has just taken a step, and removes the process if that step
// ended it.
func (x *explorer) arrived(s *state, slot int) {
	n := x.nodes[s.procs[slot].node]
	if n.job != nil {
		x.checkRun(s, slot, n)
	}
	if n.end == nil {
		return
	}
	p := s.procs[slot]
	s.procs[slot] = running{}
	x.checkEnd(s, p, n)
}

// replies finds the possible replies to a call of a process's main thread. It passes each reply,
// and the state that follows from it, to give.
func (x *explorer) replies(s *state, slot int, c *call, give func(state, reply)) {
	n := s.procs[slot].node
	switch c.kind {
	case callPut:
		x.puts(s, slot, c, give)
	case callFetch:
		give(*s, reply{rec: s.recs[c.key]})
		x.fail(s, give)
	case callList:
		give(*s, reply{n: x.listed(s, c.list)})
		x.fail(s, give)
	case callTransfers:
		give(*s, reply{n: x.transfers(s, c.from)})
		x.silent(s, reply{what: replyFailed}, give)
	case callSettle:
		x.settles(s, slot, c, give)
	case callFind:
		give(*s, reply{n: int32(x.verdict(s, c))})
		x.silent(s, reply{n: int32(x402.CannotTell)}, give)
	case callPause:
		if s.now > x.nodes[n].reached || c.key < payments && s.recs[c.key] != c.seen {
			give(*s, reply{})
		}
		give(*s, reply{what: replyFailed}) // the time for waiting is over
	case callRun: // only the thread that does the work makes this call
	}
}

// fail gives the reply that a call of the store or its index has failed and changed nothing. It
// gives no reply if the world's budget has no store fault left.
func (x *explorer) fail(s *state, give func(state, reply)) {
	if s.left.storeFaults > 0 {
		next := *s
		next.left.storeFaults--
		give(next, reply{what: replyFailed})
	}
}

// silent gives r, which is the reply of a node that cannot tell, if the node of the world may
// fail and the world's budget has a silence left.
func (x *explorer) silent(s *state, r reply, give func(state, reply)) {
	if x.world.nodeMayFail && s.left.silences > 0 {
		next := *s
		next.left.silences--
		give(next, r)
	}
}

// puts gives the replies to a write. The write succeeds if its version follows the stored
// version, or if it repeats the write that is stored. Any other write fails, because another
// record is in the way.
func (x *explorer) puts(s *state, slot int, c *call, give func(state, reply)) {
	r, stands := x.records[c.rec], x.records[s.recs[c.key]]
	fits := stands == nil && r.Head().Version == 1 || stands != nil && stands.Head().Version == r.Head().Version-1
	same := s.recs[c.key] == c.rec
	switch {
	case same:
		give(*s, reply{})
	case !fits:
		give(*s, reply{what: replyStands, rec: s.recs[c.key]})
	default:
		written := *s
		written.recs[c.key] = c.rec
		x.checkWrite(s, &written, slot, c)
		give(written, reply{})
		if s.left.storeFaults > 0 {
			written.left.storeFaults--
			give(written, reply{what: replyLost})
		}
	}
	x.fail(s, give)
}

// settles gives the replies of a facilitator that is asked to settle a payment. Each reply comes
// with what the facilitator then does to the money.
func (x *explorer) settles(s *state, slot int, c *call, give func(state, reply)) {
	sent := *s
	x.checkSend(&sent, x.nodes[s.procs[slot].node].task, c)
	for _, w := range x.world.replies {
		chain := sent.chain[c.auth]
		if !w.possible(chain, x.clock(s), x.endOf(s, c.auth)) || w.lies() && s.left.lies == 0 {
			continue
		}
		next := sent
		stale := s.procs[slot].stale&(1<<c.auth) != 0
		if w.lies() {
			next.left.lies--
			next.chain[c.auth].lied = true
		}
		switch {
		case w.moves():
			x.move(&next, c.auth, true, stale)
		case w == movesLater || w == refusesAndWillMove:
			next.chain[c.auth].pending, next.chain[c.auth].stale = true, stale
		}
		give(next, reply{n: int32(w)})
	}
}

// verdict returns what the chain shows about an authorization.
func (x *explorer) verdict(s *state, c *call) x402.Fate {
	const safe, slack = 2 * time.Minute, 10 * time.Minute
	chain, at := s.chain[c.auth], x.clock(s)
	switch {
	case chain.truth == truthCancelled:
		return x402.NeverPaid
	case chain.truth == truthMoved && x.instants[chain.at].Before(c.since.Add(-slack)):
		return x402.NeverPaid // the transfer is so much older than the record that it was made for something else
	case chain.truth == truthMoved:
		return x402.Paid
	case !at.Add(-safe).Before(x.endOf(s, c.auth)):
		return x402.NeverPaid
	}
	return x402.StillOpen
}

// listed returns the payments on a list, encoded in one number for the field n of a reply.
func (x *explorer) listed(s *state, list string) (n int32) {
	for auth := payments - 1; auth >= 0; auth-- {
		r := x.payment(s, auth)
		if r == nil {
			continue
		}
		if in, _ := r.Listed(); in == list {
			n = n*listDigit + int32(auth) + 1
		}
	}
	return n
}

// transfers returns the transfers that a Scanner finds from a given block on, encoded in one
// number for the field n of a reply.
func (x *explorer) transfers(s *state, from uint64) (n int32) {
	for auth := payments - 1; auth >= 0; auth-- {
		n <<= 8
		c := s.chain[auth]
		if c.truth == truthMoved && c.at < s.now && blockOf(int(c.at), auth) >= from {
			n |= int32(c.at) + 1
		}
	}
	return n
}
