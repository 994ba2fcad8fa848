// Package x402 is the server side of x402 version 2, for the scheme exact with EIP-3009 on an
// EVM chain. It has the wire types, the header codec, the offer, local verification, and the
// Gate, which makes every signed authorization count once. A program that sells handlers uses
// package x402http and, from this package, only SaleOf, USDC and Network.
//
// The package does not know what is sold. It gets an Offer and, for each request, a Job. It
// decides whether to run the job, runs the job only after settlement, and stores the outcome in
// the ledger. One run of a job is called a lookup.
//
// # How a signed request is served
//
// Gate.Serve takes a request through these steps, in this order:
//
//	decode, recover the signer       payment.go, signature.go
//	compare with the offer           offer.go
//	admit, or answer 402             serve.go: terms, signer and record decide
//	claim the authorization          serve.go: ledger.Ledger.Claim
//	open the purchase                purchase.go: another payment may own it
//	settle, once, and conclude       settle.go: reply, earlier doubt and chain decide
//	run the job, store the answer    lookup.go: if there is no answer, it is owed
//
// Steps that need no network come first. Therefore a header that is malformed, or that names
// another scheme, network or token, costs neither a write nor a call. A Settler (settler.go)
// decides which facilitator gets a payment. The answers from a record are in record.go. Package
// reconcile finishes payments whose requests do not come back.
//
// Settlement comes before the job. If the job came first, an answer might never be paid for,
// because the payer can cancel the authorization or empty the account while the job runs. The
// drawback is that we can hold money without having answered. The ledger records such a debt,
// and the payer can run the job again with the same signature.
//
// A settlement publishes payer, nonce and signature on the chain, where anybody can copy them.
// Therefore a repeated authorization must carry the retry token of its challenge. Without the
// token, every sender gets the same 402, with no answer and no receipt, and no job runs. For a
// payment that is not known to be paid, there are exceptions (ledger.Payment.Proof).
package x402

import (
	"context"
	"log/slog"
	"time"

	"github.com/hostfacts/hostfacts/pkg/untrusted"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/receipt"
)

// These are the time budgets of a signed request. verifyBudget is the maximum duration of a
// call to verify a signature, and settleBudget that of a settlement. A settlement is started
// only if LeastSettle is left for it. A question to the chain takes at most EvidenceBudget,
// and is asked only if LeastEvidence is left.
const (
	verifyBudget = 3 * time.Second
	settleBudget = 15 * time.Second
	// writeTime is reserved for writing the outcome and the answer to the ledger.
	writeTime = 2 * time.Second
	// leaseMargin is how long a lease lasts beyond the deadline of its request.
	leaseMargin = 3 * time.Second
)

// Gate takes a signed request through claim, settlement, lookup and redemption. It never
// settles one authorization twice, and never runs the job before money has moved. It never
// loses track of money that moved or may have moved. All exported fields except Evidence,
// Slots, Receipts and Payees are required.
type Gate struct {
	Ledger  *ledger.Ledger
	Settler Settler // sends the payments to facilitators
	// Evidence reads the chain. If Evidence is nil, a payment in doubt may remain in doubt.
	// Without Evidence, a payment that was sent earlier counts as paid if a facilitator says
	// that its nonce is used.
	Evidence Evidence
	Slots    Slots    // limits how many requests settle and look up at once
	Receipts Receipts // signs receipts and offers
	// Payees records the accounts to which payments are sent. From this record the Reconciler
	// knows a seller's former accounts. If Payees is nil, nothing is recorded.
	Payees *ledger.Payees
	Now    func() time.Time
	Log    *slog.Logger

	// Only tests set the following fields. If conclusions is not nil, it replaces the table of
	// conclusions. If onConclusion is not nil, it is called with the number of the table's row
	// that was chosen. If pause is not nil, it replaces the real wait: it waits for a
	// duration, and returns false if ctx ends first.
	conclusions  []conclusion
	onConclusion func(row int)
	pause        func(ctx context.Context, d time.Duration) bool
}

// Slots limits how many requests settle and look up at once.
type Slots interface {
	// Acquire takes a slot for a client. A slot that is not released becomes free at the given
	// time. The error is a *fault.Error with the code overloaded or ledger_unavailable.
	Acquire(ctx context.Context, client string, until time.Time) (Slot, error)
}

// Slot is the right of one request to settle and look up.
type Slot = interface {
	Release(ctx context.Context) error
}

// Meter counts the cost of serving a payment against the rate limit of its sender.
type Meter interface {
	// Open counts a payment that looks valid from the request alone. It is called before the
	// ledger is used, and before a facilitator or the chain is asked. Its error is a
	// *fault.Error, and is the answer to the request.
	Open(ctx context.Context) error
	// Close is called once after a successful Open, when the outcome of the payment is known.
	// If the request runs a lookup, Close runs concurrently with the request's last write.
	// atFault means that the payer may have caused the outcome, and that a facilitator or the
	// chain had to be asked to find this out. A request with atFault costs the sender more.
	Close(ctx context.Context, atFault bool)
}

// Receipts signs offers, and receipts of delivered answers (extension offer-receipt).
type Receipts interface {
	// Sign returns the receipt of an answer as a compact JWS. The result is empty if no key is
	// configured.
	Sign(ctx context.Context, s receipt.Statement) (string, error)
	// SignOffer returns a signed offer as a compact JWS. The result is empty while no key is
	// in memory. SignOffer does no I/O, because a challenge must not wait for it.
	SignOffer(o receipt.Offer) (string, error)
}

// Request is a priced request that carries a payment.
type Request struct {
	Signature string // the PAYMENT-SIGNATURE header
	// Payload is the payment, if the transport carries it as a JSON object. If Payload is set,
	// Signature is not read.
	Payload untrusted.Object
	Offer   *Offer
	// Window is a time span after the answer to this request. Within this span, another
	// payment for the same request gets the same answer, unless that payment has a purchase
	// key. The end of the span is stored with the answer.
	Window time.Duration
	Client string // identifies the sender to Slots
	Meter  Meter  // counts the cost of the request; nil means that nothing is counted
	// Keys are the values of the Idempotency-Key header, or the purchase keys that another
	// transport carries.
	Keys []string
	// Arrived is when the request came. Deadline is when Serve must have returned.
	Arrived, Deadline time.Time
	// Prepare validates the parameters and returns the job. Its result must be the same for
	// every repeat of the request. So it must not depend on what is still for sale; Job.Check
	// decides that. Prepare is called after the payment was admitted. If it returns an error,
	// the request is answered with that error, and nothing is charged.
	Prepare func() (Job, error)
	// Error renders the body of an error answer. It must not fail.
	Error func(f *fault.Error, s PaymentStatus) []byte
}

// Job is the work that a payment buys.
type Job struct {
	// Fingerprint identifies the request: its method, its path and the normalized parameters
	// of the operation. It must be printable ASCII, because the receipt contains it.
	Fingerprint string
	// Endpoint names the endpoint that sells the job. A payment is answered only at the
	// endpoint where it was claimed, and at the price that was paid.
	Endpoint string
	// KeyScope is the scope of the payer's purchase keys, such as an origin. The same key in
	// another scope identifies another purchase. KeyScope may be empty.
	KeyScope string
	Budget   time.Duration // the maximum duration of Run
	Timeout  fault.Info    // the fault if less than Budget is left for Run, or if the work of Run continues after Budget; its class is Owed
	// MostRuns limits how often the job runs for a payment without giving an answer. After the
	// last of these runs, a refund is due at once. 0 means that there is no limit.
	MostRuns int
	// NoImplicitRetry means that every payment without a purchase key is a separate purchase.
	// It is set for jobs such as ping, where two payments cannot share an answer.
	NoImplicitRetry bool
	// Check decides whether a payment may be sent. The Gate calls Check before it sends a
	// payment, except in the cases that holder.jobRefusal describes. If Check returns an error,
	// the payment is not sent and not charged. The error is a *fault.Error. Once the payment is
	// paid, Check no longer matters. A nil Check allows every payment.
	Check func(ctx context.Context) error
	// Run does the work and returns the answer or a *fault.Error. Run can pass its context to
	// SaleOf to learn which payment it runs for. Run returns within Budget. If its work
	// continues after that, Run returns an *Unfinished as its error.
	Run func(ctx context.Context) (Reply, error)
}

// Unfinished is the error of a Run that has used up its time while its work continues.
type Unfinished struct {
	// Rest waits until the work has ended, and returns what Run would have returned.
	Rest func() (Reply, error)
}

// Error returns a text for logs.
func (*Unfinished) Error() string { return "the work goes on after its time" }

// Sale is the payment for which a job runs.
type Sale struct {
	Payer       string // checksummed address
	Network     string // CAIP-2
	Transaction string // hash of the transfer; empty if it is not known
	Amount      string // in atomic units
	// Purchase identifies the payment. Every run for the same payment gets the same value, and
	// no run for another payment gets this value. The value has 64 hexadecimal digits. A run
	// can send the value as the idempotency key of its calls.
	Purchase string
	// Repeat means that there was an earlier run for this payment. The earlier run died with
	// its process, gave no answer, left parts of a bundle owed, or gave an answer that could
	// not be stored. A run does not count as an earlier run if its settlement was never
	// recorded.
	Repeat bool
}

type saleKey struct{}

// SaleOf returns the payment for which a job runs. ctx is the context of the job; for any
// other context, ok is false.
func SaleOf(ctx context.Context) (s Sale, ok bool) {
	s, ok = ctx.Value(saleKey{}).(Sale)
	return s, ok
}

// Reply is the result of a job.
type Reply struct {
	Status int                 // HTTP status; 0 means 200
	Header map[string][]string // header fields that are stored with the body, such as the content type
	Body   []byte
	// Owed names the parts of a bundle that failed because of an error on our side, and not on
	// the target's side. These parts are looked up again without a charge.
	Owed []string
	// Prevented means that none of the owed parts was tried, because the pause after an
	// earlier failure of ours has not ended. A run with Prevented is not counted.
	Prevented bool
	// Silent means that a part is owed because the target was silent (fault.Error.Silence).
	Silent bool
}

// Outcome is the answer to a signed request.
type Outcome struct {
	Status int
	Header map[string][]string // the Header of the Reply
	Body   []byte              // nil for a challenge, whose body is the offer
	// Fault is nil for a result, and for an answer that comes from the ledger. In a challenge,
	// the message of Fault is the reason.
	Fault    *fault.Error
	Payment  PaymentStatus
	Receipt  *SettleResponse // PAYMENT-RESPONSE; may be nil
	Replayed bool            // whether the answer comes from the ledger
	Answered time.Time       // when a replayed answer was stored
	Owed     []string        // parts of a bundle that are still owed (header Answer-Owed)
	Trace    Trace
	// Finish is nil in most cases. It is set if the work of Job.Run continues although its
	// time is up. The caller then sends the answer first and calls Finish afterwards. Finish
	// returns when the work has ended and its outcome is recorded. Until then the request
	// keeps its lease and its slot.
	Finish func()
}

// PaymentStatus is what an answer says about its payment.
type PaymentStatus struct {
	Charged   *bool // whether money has moved for this authorization; nil means that this is not known
	Retryable bool  // whether the same signature may be sent again without a new charge
}

// Timings says how long each phase of a request took. It is 0 for a phase that did not happen.
type Timings struct {
	Verify   time.Duration
	Claim    time.Duration
	Slot     time.Duration
	Settle   time.Duration
	Evidence time.Duration
	Lookup   time.Duration
	Record   time.Duration
}

// Trace records how a payment was served, for the request's log line.
type Trace struct {
	Payer, Nonce, Transaction string
	// Amount is the amount of the payment in atomic units, whether or not the money moved.
	Amount string
	States []ledger.State
	Class  string // Class.String of the settlement, if one was tried
	Fate   string // what became of the authorization according to the chain, if the chain was asked
	Asked  []Ask  // the replies of the facilitators that were asked; empty if only one facilitator is configured
	Reason string // why the payment failed, as far as this may be logged
	// Purchase is "joined" if another payment of the same purchase gave the answer, and
	// "taken_over" if this payment replaced another payment. Otherwise it is empty.
	Purchase string
	Timings
	Extensions map[string]string // the statements of the facilitator about protocol extensions, by extension
	Cause      error             // the error behind the answer; it is logged, and never shown to a client
	// UsedAsPaid means that the payment counts as paid only because a facilitator says that
	// the authorization is used. No node is configured, so the chain could not show what the
	// authorization was used for.
	UsedAsPaid bool
	// Unreceipted means that the answer has no receipt although a key is configured.
	Unreceipted bool
	// Unrecorded means that an outcome of this request was not written to the ledger, or that
	// the write may have failed.
	Unrecorded bool
	// Silent means that the settlement is in doubt because the facilitator gave no decision.
	// The facilitator was silent, broke off, or gave an answer that is not an x402 answer.
	Silent bool
}
