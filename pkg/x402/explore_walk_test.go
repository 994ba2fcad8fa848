package x402_test

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// maxLiveProcesses bounds the number of running processes that the explorer keeps. If the
// explorer needs a process that was not kept, it runs the process again from the beginning.
const maxLiveProcesses = 4096

// root returns the node at which the process of a task begins.
func (x *explorer) root(t task) *node {
	n := x.roots[t]
	if n == nil {
		n = x.newNode(nil, edge{instant: t.begunAt}, t, x.start(t))
		x.roots[t] = n
	}
	return n
}

// child returns the node that a process reaches with one more step.
func (x *explorer) child(n *node, e edge) *node {
	c := n.children[e]
	if c == nil {
		p := x.processAt(n)
		p.deliver(e)
		c = x.newNode(n, e, n.task, p)
		if n.children == nil {
			n.children = map[edge]*node{}
		}
		n.children[e] = c
	}
	return c
}

// processAt returns a running process that has reached a node. If none was kept, processAt
// starts a process, and gives it the replies that lead to the node.
func (x *explorer) processAt(n *node) *liveProcess {
	if p := n.process; p != nil {
		n.process = nil
		return p
	}
	var way []edge
	for at := n; at.parent != nil; at = at.parent {
		way = append(way, at.incomingEdge)
	}
	p := x.start(n.task)
	for _, e := range slices.Backward(way) {
		p.deliver(e)
	}
	return p
}

func (x *explorer) newNode(parent *node, e edge, t task, p *liveProcess) *node {
	n := &node{number: int32(len(x.nodes)), task: t, parent: parent, incomingEdge: e, reachedAt: e.instant}
	x.nodes = append(x.nodes, n)
	if p.ended {
		end := p.ending
		n.end = &end
		return n
	}
	for _, w := range p.parkedCalls {
		if w.call.kind == callPut && w.call.rec == 0 {
			w.call.rec = x.recordNumber(w.call.record)
		}
		if w.call.kind == callRun {
			n.jobCall = w.call
		} else {
			n.mainCall = w.call
		}
	}
	n.process = p
	x.liveNodes = append(x.liveNodes, n)
	if len(x.liveNodes) > maxLiveProcesses {
		if old := x.liveNodes[0]; old.process != nil {
			old.process.kill()
			old.process = nil
		}
		x.liveNodes = x.liveNodes[1:]
	}
	return n
}

// walk visits every state that the world can reach. If stopAtFirst is set, the walk ends at the
// first violation.
func (x *explorer) walk() {
	first := state{budgetLeft: x.world.budget}
	first.recs[cursorRecord] = x.recordNumber(ledger.Cursor{Row: ledger.Row{Key: x.keys[cursorRecord], Version: 1, WriteID: "before"}, Next: 1})
	x.take(-1, action{}, first)
	for i := 0; i < len(x.states) && !(x.stopAtFirst && len(x.violationStates) > 0); i++ {
		x.expand(int32(i))
	}
	for _, n := range x.liveNodes {
		if n.process != nil {
			n.process.kill()
		}
	}
}

// take counts an action that leads to a state. If the state is new, take adds it to the states
// that the walk visits, and checks it.
func (x *explorer) take(from int32, did action, s state) {
	x.transitions++
	s = x.canonicalState(s)
	// If two different states have the same hash, the second one is left out by mistake. The
	// probability is negligible: about one in a million million explorations.
	hash := maphash.Comparable(x.seed, s)
	if _, known := x.knownStates[hash]; known {
		return
	}
	x.currentStep = step{state: s, fromState: from, action: did}
	x.knownStates[hash] = struct{}{}
	x.states = append(x.states, x.currentStep)
	x.checkState(&s)
}

// noteViolation records a violation, with the story of the step that is being taken. It
// records only the first violation of each name.
func (x *explorer) noteViolation(what string) {
	if _, known := x.violationStates[what]; known {
		return
	}
	x.violationStates[what] = x.currentStep.fromState
	x.violationStories[what] = x.story(x.currentStep)
}

// noteViolations records every violation in the map whose value is true.
func (x *explorer) noteViolations(violations map[string]bool) {
	for what, is := range violations {
		if is {
			x.noteViolation(what)
		}
	}
}

// story describes how the world came to its last step: all steps before it, the last step
// itself, and then the continuation without faults, if there is one.
func (x *explorer) story(last step) string {
	var told []string
	for at := last; ; at = x.states[at.fromState] {
		told = append(told, x.describeAction(at.action))
		if at.fromState <= 0 {
			break
		}
	}
	slices.Reverse(told)
	told = append(told, x.sequel...)
	return "    " + strings.Join(told, "\n    ")
}

func (x *explorer) describeAction(a action) string {
	name := string(rune('A' + a.auth))
	switch a.kind {
	case actionBegin:
		return x.describeTask(a.task) + " begins"
	case actionStep:
		n := x.nodes[a.node]
		return fmt.Sprintf("  %s at %v: %s", x.describeTask(n.task), x.world.instantName(a.edge.instant), x.describeStep(n, a.edge))
	case actionCrash:
		return "  " + x.describeTask(x.nodes[a.node].task) + " dies"
	case actionTick:
		return "time passes"
	case actionExecute:
		return "what was sent of " + name + " moves the money"
	case actionStrangerSubmit:
		return "somebody else submits " + name
	default:
		return "the payer cancels " + name
	}
}

func (w exploredWorld) instantName(i int8) string {
	if int(i) < len(w.instants) {
		return w.instants[i].String()
	}
	n, each := int(i)-len(w.instants), len(faultlessTimes())
	return fmt.Sprintf("%v and %v", w.instants[n/each], faultlessTimes()[n%each])
}

func (x *explorer) describeTask(t task) string {
	who := map[taskKind]string{taskRequest: "request", taskReconcile: "reconcile", taskSendBack: "beginning of a refund", taskRefund: "end of a refund", taskAttest: "attestation", taskWithdraw: "withdrawal of a refund"}[t.kind]
	if t.kind == taskReconcile {
		return fmt.Sprintf("%s (of %s)", who, x.world.instantName(t.begunAt))
	}
	at := ""
	if t.endpoint > 0 {
		at = " at the other endpoint"
	}
	if t.checkRefuses {
		at += " that the check refuses"
	}
	return fmt.Sprintf("%s with %c%s (of %s)", who, 'A'+t.auth, at, x.world.instantName(t.begunAt))
}

func (x *explorer) describeStep(n *node, e edge) string {
	c := n.mainCall
	if e.isJob {
		return "works: " + workEnd(e.reply.n).String()
	}
	done := map[uint8]string{replyFailed: ": fails", replyLost: ": the reply is lost", replyConflict: ": another record is in the way"}[e.reply.result]
	switch c.kind {
	case callPut:
		r := x.records[c.rec]
		return fmt.Sprintf("writes %s %s%s", x.recordName(c.key), r.Status(), done)
	case callFetch:
		state := "nothing"
		if r := x.records[e.reply.rec]; r != nil {
			state = r.Status()
		}
		return fmt.Sprintf("reads %s: %s%s", x.recordName(c.key), state, done)
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

func (*explorer) recordName(key int) string {
	return []string{"A", "B", "C", "the purchase", "the cursor"}[key]
}
