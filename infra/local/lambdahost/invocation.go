package lambdahost

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// maxPayload is the largest event and the largest answer of a synchronous
// invocation, in bytes (AWS: Lambda quotas; 6 MB and some room for the frame).
const maxPayload = 6<<20 + 100

// Result is one finished invocation.
type Result struct {
	RequestID string
	Payload   []byte
	// Duration is from handing over the event to the answer.
	Duration time.Duration
	// Cold says that a process was started for it. Init is then the time from
	// starting the process to its first call of next, and First the time from
	// there to the answer with Init included.
	Cold        bool
	Init, First time.Duration
}

// Ended is an invocation that is over, as CloudWatch counts it: Errors when Err
// is a *FunctionError, Throttles when it is ErrThrottled.
type Ended struct {
	Function string
	Event    []byte
	Result   Result
	Err      error
}

// FunctionError is an invocation that failed: the function returned an error,
// crashed or ran out of time. Lambda answers such an invocation with this
// document and the header X-Amz-Function-Error.
type FunctionError struct {
	Type    string          `json:"errorType"`
	Message string          `json:"errorMessage"`
	Payload json.RawMessage `json:"-"` // the whole document
}

// Error is for logs.
func (e *FunctionError) Error() string {
	return fmt.Sprintf("function error %s: %s", e.Type, e.Message)
}

// The error types that Lambda itself uses.
const (
	ErrorTimedOut = "Sandbox.Timedout"
	ErrorExit     = "Runtime.ExitError"
	ErrorTooLarge = "Function.ResponseSizeTooLarge"
)

// functionError makes the document that Lambda would answer with.
func functionError(kind, message string) *FunctionError {
	e := &FunctionError{Type: kind, Message: message}
	e.Payload, _ = json.Marshal(e) // two strings
	return e
}

// reported reads the document that a runtime posted. One that is no document
// is kept as it is.
func reported(payload []byte) *FunctionError {
	e := new(FunctionError)
	if json.Unmarshal(payload, e) != nil || e.Type == "" {
		return functionError("Runtime.Unknown", string(payload))
	}
	e.Payload = payload
	return e
}

// invocation is one event on its way through a process.
type invocation struct {
	id    string
	trace string
	event []byte

	cold      bool
	delivered time.Time // set once, before a process sees the event

	ended  func(Result, error) // called once, before done; nil for none
	once   sync.Once
	done   chan struct{}
	result Result
	err    error
}

func newInvocation(event []byte) *invocation {
	return &invocation{id: newUUID(), trace: newTraceID(), event: event, done: make(chan struct{})}
}

// finish ends the invocation; only the first call counts.
func (i *invocation) finish(r Result, err error) {
	i.once.Do(func() {
		r.RequestID, r.Cold = i.id, i.cold
		i.result, i.err = r, err
		if i.ended != nil {
			i.ended(r, err)
		}
		close(i.done)
	})
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // version 4
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// newTraceID is an X-Ray trace header of a request that is not sampled.
func newTraceID() string {
	var b [12]byte
	rand.Read(b[:])
	return fmt.Sprintf("Root=1-%08x-%s;Sampled=0", time.Now().Unix(), hex.EncodeToString(b[:]))
}
