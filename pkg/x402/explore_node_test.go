package x402_test

import (
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// task is what a process does, and when it begins.
type task struct {
	kind     taskKind
	auth     int8 // of a request, or of the debt that an operator sends back
	at       int8 // the instant at which it begins
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
	taskRefund   // the operator ends it
	taskAttest   // the operator says that it was answered
	taskWithdraw // the operator takes the beginning of a refund back
)

// edge is a step of a process: which of its threads has got which reply, at which instant.
type edge struct {
	job   bool
	reply reply
	at    int8
}

// node is where a process stands after some steps. What it does next depends on nothing
// else, so that all states of the world in which a process stands there share the node.
type node struct {
	number   int32
	task     task
	parent   *node
	by       edge
	main     *call // nil when the main thread waits for the others
	job      *call // the work, when it runs
	end      *ending
	children map[edge]*node
	live     *live // a process that stands there; nil when it has to be brought there
	reached  int8  // the instant of the last step
}

// ending is how a process has ended.
type ending struct {
	out      *x402.Outcome // of a request
	err      error         // of an operator, or of a run of the Reconciler
	worked   int           // the authorization that the work ran for, or -1
	held     int           // the authorization whose lease was taken last, or -1
	panicked bool
	reread   int // the one whose record was read or met last, or -1
}
