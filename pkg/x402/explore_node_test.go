package x402_test

import (
	"github.com/hostfacts/hostfacts/pkg/x402"
)

// task says what a process does, and when it begins.
type task struct {
	kind         taskKind
	auth         int8  // the authorization of a request, or of the payment that an operator's command is about
	begunAt      int8  // the instant at which the process begins
	serial       uint8 // makes the write ids of this process differ from those of other processes
	signedAt     int8  // the instant at which the payer signed; set only if auth == extraAuth
	endpoint     int8
	checkRefuses bool // the seller's check refuses the request
}

type taskKind uint8

const (
	taskRequest taskKind = iota
	taskReconcile
	taskSendBack // the operator begins a refund
	taskRefund   // the operator records that the refund was made
	taskAttest   // the operator says that the payment was answered
	taskWithdraw // the operator withdraws the refund that was begun
)

// edge is a step of a process: one of its threads gets a reply at an instant. If isJob is
// true, this is the thread that does the work of a request. Otherwise it is the main thread,
// which makes all other calls.
type edge struct {
	isJob   bool
	reply   reply
	instant int8
}

// node is the point that a process has reached after some steps. The next actions of the
// process depend only on this point. Therefore all states of the world with a process at this
// point share the node.
type node struct {
	number       int32
	task         task
	parent       *node
	incomingEdge edge
	mainCall     *call // the call of the main thread; nil while the process waits only for the work
	jobCall      *call // the call of the thread that does the work, while the work runs
	end          *ending
	children     map[edge]*node
	process      *liveProcess // a running process that has stopped at this node; nil if there is none
	reachedAt    int8         // the instant of the step that led to this node
}

// ending says how a process has ended.
type ending struct {
	out          *x402.Outcome // the outcome of a request
	err          error         // the error of an operator's command, or of a run of the Reconciler
	workedAuth   int           // the authorization for which the work ran, or -1
	leasedAuth   int           // the authorization whose lease the process took last, or -1
	panicked     bool
	lastReadAuth int // the authorization whose record the process last got from the store, or -1
}
