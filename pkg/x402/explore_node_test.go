package x402_test

import (
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// task says what a process does, and when it begins.
type task struct {
	kind     taskKind
	auth     int8 // the authorization of a request, or of the debt that an operator sends back
	at       int8 // the instant at which the process begins
	serial   uint8
	signed   int8 // the instant at which the third authorization was signed
	endpoint int8
	refuses  bool // the seller's check refuses
}

type taskKind uint8

const (
	taskRequest taskKind = iota
	taskReconcile
	taskSendBack // the operator begins a refund
	taskRefund   // the operator ends the refund
	taskAttest   // the operator says that the payment was answered
	taskWithdraw // the operator takes back the beginning of a refund
)

// edge is a step of a process: a thread gets a reply at an instant. job says that this is the
// thread of the work, and not the main thread.
type edge struct {
	job   bool
	reply reply
	at    int8
}

// node is the point that a process has reached after some steps. What the process does next
// depends on nothing else, so all states of the world with a process at this point share the
// node.
type node struct {
	number   int32
	task     task
	parent   *node
	by       edge
	main     *call // nil while the main thread waits for the others
	job      *call // the call in which the thread of the work waits, while the work runs
	end      *ending
	children map[edge]*node
	live     *live // a process that has stopped here; nil if a process must first be brought here
	reached  int8  // the instant of the last step
}

// ending says how a process has ended.
type ending struct {
	out      *x402.Outcome // of a request
	err      error         // of an operator's command, or of a run of the Reconciler
	worked   int           // the authorization for which the work ran, or -1
	held     int           // the authorization whose lease was taken last, or -1
	panicked bool
	reread   int // the authorization whose record the process has read last, or has found in the way of a write; or -1
}
