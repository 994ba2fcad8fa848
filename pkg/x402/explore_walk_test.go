package x402_test

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// mostLives bounds the number of running processes that the explorer keeps. If the explorer
// needs a process that was not kept, it runs the process again from the beginning.
const mostLives = 4096

// root returns the node at which the process of a task begins.
func (x *explorer) root(t task) *node {
	n := x.roots[t]
	if n == nil {
		n = x.newNode(nil, edge{at: t.at}, t, x.start(t))
		x.roots[t] = n
	}
	return n
}

// child returns the node that a process reaches with one more step.
func (x *explorer) child(n *node, e edge) *node {
	c := n.children[e]
	if c == nil {
		p := x.bring(n)
		p.deliver(e)
		c = x.newNode(n, e, n.task, p)
		if n.children == nil {
			n.children = map[edge]*node{}
		}
		n.children[e] = c
	}
	return c
}

// bring returns a running process that has reached a node. If none was kept, bring starts a
// process, and gives it the replies that lead to the node.
func (x *explorer) bring(n *node) *live {
	if p := n.live; p != nil {
		n.live = nil
		return p
	}
	var way []edge
	for at := n; at.parent != nil; at = at.parent {
		way = append(way, at.by)
	}
	p := x.start(n.task)
	for _, e := range slices.Backward(way) {
		p.deliver(e)
	}
	return p
}

func (x *explorer) newNode(parent *node, e edge, t task, p *live) *node {
	n := &node{number: int32(len(x.nodes)), task: t, parent: parent, by: e, reached: e.at}
	x.nodes = append(x.nodes, n)
	if p.ended {
		end := p.ending
		n.end = &end
		return n
	}
	for _, w := range p.parked {
		if w.call.kind == callPut && w.call.rec == 0 {
			w.call.rec = x.number(w.call.record)
		}
		if w.call.kind == callRun {
			n.job = w.call
		} else {
			n.main = w.call
		}
	}
	n.live = p
	x.lives = append(x.lives, n)
	if len(x.lives) > mostLives {
		if old := x.lives[0]; old.live != nil {
			old.live.kill()
			old.live = nil
		}
		x.lives = x.lives[1:]
	}
	return n
}

// walk visits every state that the world can reach. If stopAtFirst is set, the walk ends at the
// first violation.
func (x *explorer) walk() {
	first := state{left: x.world.budget}
	first.recs[cursor] = x.number(ledger.Cursor{Row: ledger.Row{Key: x.keys[cursor], Version: 1, WriteID: "before"}, Next: 1})
	x.take(-1, action{}, first)
	for i := 0; i < len(x.states) && !(x.stopAtFirst && len(x.found) > 0); i++ {
		x.expand(int32(i))
	}
	for _, n := range x.lives {
		if n.live != nil {
			n.live.kill()
		}
	}
}

// take counts an action that leads to a state. If the state is new, take adds the state to those
// that the walk visits, and checks it.
func (x *explorer) take(from int32, did action, s state) {
	x.transitions++
	s = x.canon(s)
	// If two different states have the same hash, the second one is left out by mistake. The
	// probability is negligible: about one in a million million explorations.
	hash := maphash.Comparable(x.seed, s)
	if _, known := x.index[hash]; known {
		return
	}
	x.doing = step{state: s, from: from, did: did}
	x.index[hash] = struct{}{}
	x.states = append(x.states, x.doing)
	x.checkState(&s)
}

// violated records a violation, with the story of the step that is being taken. It records only
// the first violation of each name.
func (x *explorer) violated(what string) {
	if _, known := x.found[what]; known {
		return
	}
	x.found[what] = x.doing.from
	x.traces[what] = x.story(x.doing)
}

// check records every violation in the map whose value is true.
func (x *explorer) check(broken map[string]bool) {
	for what, is := range broken {
		if is {
			x.violated(what)
		}
	}
}

// story describes how the world came to its last step: all steps before it, the last step
// itself, and then the continuation without faults, if there is one.
func (x *explorer) story(last step) string {
	var told []string
	for at := last; ; at = x.states[at.from] {
		told = append(told, x.tell(at.did))
		if at.from <= 0 {
			break
		}
	}
	slices.Reverse(told)
	told = append(told, x.sequel...)
	return "    " + strings.Join(told, "\n    ")
}

func (x *explorer) tell(a action) string {
	name := string(rune('A' + a.auth))
	switch a.kind {
	case begins:
		return x.tellTask(a.task) + " begins"
	case steps:
		n := x.nodes[a.node]
		return fmt.Sprintf("  %s at %v: %s", x.tellTask(n.task), x.world.at(a.edge.at), x.tellStep(n, a.edge))
	case crashes:
		return "  " + x.tellTask(x.nodes[a.node].task) + " dies"
	case ticks:
		return "time passes"
	case executes:
		return "what was sent of " + name + " moves the money"
	case thirdParty:
		return "somebody else submits " + name
	default:
		return "the payer cancels " + name
	}
}

func (w explored) at(i int8) string {
	if int(i) < len(w.instants) {
		return w.instants[i].String()
	}
	n, each := int(i)-len(w.instants), len(faultlessTimes())
	return fmt.Sprintf("%v and %v", w.instants[n/each], faultlessTimes()[n%each])
}

func (x *explorer) tellTask(t task) string {
	who := map[taskKind]string{taskRequest: "request", taskReconcile: "reconcile", taskSendBack: "beginning of a refund", taskRefund: "end of a refund", taskAttest: "attestation", taskWithdraw: "withdrawal of a refund"}[t.kind]
	if t.kind == taskReconcile {
		return fmt.Sprintf("%s (of %s)", who, x.world.at(t.at))
	}
	at := ""
	if t.endpoint > 0 {
		at = " at the other endpoint"
	}
	if t.refuses {
		at += " that the check refuses"
	}
	return fmt.Sprintf("%s with %c%s (of %s)", who, 'A'+t.auth, at, x.world.at(t.at))
}

func (x *explorer) tellStep(n *node, e edge) string {
	c := n.main
	if e.job {
		return "works: " + work(e.reply.n).String()
	}
	done := map[uint8]string{replyFailed: ": fails", replyLost: ": the reply is lost", replyStands: ": another record is in the way"}[e.reply.what]
	switch c.kind {
	case callPut:
		r := x.records[c.rec]
		return fmt.Sprintf("writes %s %s%s", x.nameOf(c.key), r.Status(), done)
	case callFetch:
		state := "nothing"
		if r := x.records[e.reply.rec]; r != nil {
			state = r.Status()
		}
		return fmt.Sprintf("reads %s: %s%s", x.nameOf(c.key), state, done)
	case callSettle:
		return fmt.Sprintf("sends %c: %s", 'A'+c.auth, facilitatorReply(e.reply.n))
	case callFind:
		return fmt.Sprintf("asks the chain about %c: %s", 'A'+c.auth, []string{"cannot tell", "paid", "never paid", "still open"}[e.reply.n])
	case callPause:
		return "pauses" + done
	case callList:
		return "lists " + c.list + done
	default:
		return "reads the chain" + done
	}
}

func (*explorer) nameOf(key int) string {
	return []string{"A", "B", "C", "the purchase", "the cursor"}[key]
}
