// Package x402 is the server side of x402 version 2, scheme exact with EIP-3009 on an EVM chain:
// wire types, header codec, the offer, local verification, and the Gate that makes every signed
// authorization count once. A program that sells handlers uses package x402http, and from this
// package only SaleOf, USDC and Network.
//
// It knows neither lookups nor the catalog. It gets an Offer and, for each request, a Job. It
// decides whether to run the job, runs it only after settlement, and stores the outcome in the
// ledger.
//
// # How a signed request is served
//
// Gate.Serve takes a request through these steps, in this order:
//
//	decode, recover the signer       payment.go, signature.go
//	compare with the offer           offer.go
//	admit, or answer 402             serve.go: by record, terms and signer
//	claim the authorization          serve.go: ledger.Ledger.Claim
//	open its purchase                purchase.go: whose payment is sent
//	settle, once, and conclude       settle.go: by reply, doubt and chain
//	look up, and redeem or owe       lookup.go
//
// Everything that needs no network comes first, so that a malformed or forged header costs
// neither a write nor a call. A Settler (settler.go) decides which facilitator gets a payment;
// answers from a record are in record.go. Package reconcile finishes the payments that no
// request comes back for.
//
// Settlement comes before the job. In the other order an answer could be served and never be
// paid for, because an authorization can be cancelled, or its account emptied, while the job
// runs. The drawback is that we can hold money without having answered. The ledger records such
// a debt, and the same signature runs the job again.
//
// A settlement publishes payer, nonce and signature on the chain, where anybody can copy them.
// So a repeated authorization must carry the retry token of its challenge
// (ledger.Payment.Proof). Without the token every sender gets the same 402, without answer,
// receipt or job.
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

// Time budgets of a signed request, beside those that a Settler shares. A settlement and a
// question to the chain each have a longest duration, and a shortest that must be left when
// they are started.
const (
	verifyBudget = 3 * time.Second
	settleBudget = 15 * time.Second
	// afterwork is kept for writing the outcome and the answer to the ledger.
	afterwork = 2 * time.Second
	// leaseMargin is how long a lease outlives its invocation.
	leaseMargin = 3 * time.Second
)

// Gate takes a signed request through claim, settlement, lookup and redemption.
// It never settles one authorization twice, never runs the job before money has
// moved, and never loses the record of money that moved or may have moved.
// All fields but Evidence, Slots, Receipts and Payees are required.
type Gate struct {
	Ledger  *ledger.Ledger
	Settler Settler // who is sent the payments
	// Evidence reads the chain. Without it a payment in doubt can stay in doubt, and one
	// that was sent before counts as paid when a facilitator says that its nonce is used.
	Evidence Evidence
	Slots    Slots    // cap how many requests settle and look up at once
	Receipts Receipts // sign answers
	// Payees note whom payments are sent to, for the Reconciler of a seller who has changed
	// that; nil notes nothing.
	Payees *ledger.Payees
	Now    func() time.Time
	Log    *slog.Logger

	// What a test has in the place of the real ones; nil are those. pause waits, and reports
	// false when ctx has ended first. concluded is told which row of conclusions was taken.
	conclusions []conclusion
	concluded   func(row int)
	pause       func(ctx context.Context, d time.Duration) bool
}

// Slots cap concurrent work.
type Slots interface {
	// Acquire takes a slot for a client. The slot is free again at until, even
	// if it is never released. The error is a *fault.Error: overloaded, or
	// ledger_unavailable.
	Acquire(ctx context.Context, client string, until time.Time) (Slot, error)
}

// Slot is the right to settle and look up for one request.
type Slot = interface {
	Release(ctx context.Context) error
}

// Meter counts what serving a payment costs against the rate limit of its
// sender.
type Meter interface {
	// Open counts a payment that is valid as far as the request itself shows. It
	// is called before anything is read, written or asked. Its error is a
	// *fault.Error, with which the request is answered.
	Open(ctx context.Context) error
	// Close is called once after an Open, when the outcome of the payment is
	// known, concurrently with the last write of the request. atFault says that
	// the payer can have caused the outcome, and that it took a call to find this
	// out, so that the request counts for more.
	Close(ctx context.Context, atFault bool)
}

// Receipts sign what is offered and what was delivered (extension offer-receipt).
type Receipts interface {
	// Sign returns the receipt of an answer, a compact JWS, or the empty string where no
	// key is configured.
	Sign(ctx context.Context, s receipt.Statement) (string, error)
	// SignOffer returns a signed offer, a compact JWS, or the empty string while no key
	// is in memory. It does no I/O, because a challenge waits for none.
	SignOffer(o receipt.Offer) (string, error)
}

// Request is a priced request that carries a payment.
type Request struct {
	Signature string // the header PAYMENT-SIGNATURE
	// Payload is the payment where the transport carries it as a JSON object;
	// then Signature is not read.
	Payload untrusted.Object
	Offer   *Offer
	// Window is how long after it was given an answer to this request stands for a
	// purchase without a key. It is stored with the answer.
	Window time.Duration
	Client string // the sender, as the Slots tell clients apart
	Meter  Meter  // counts the request; nil counts nothing
	// Keys are the values of the header Idempotency-Key, or of what carries the
	// purchase key on another transport.
	Keys []string
	// Arrived is when the request came, and Deadline when the invocation must be
	// over.
	Arrived, Deadline time.Time
	// Prepare validates the parameters, which never change: whether there is something left
	// to sell is for Job.Check. It is called when the payment has been admitted, and its
	// error is answered without a charge.
	Prepare func() (Job, error)
	// Error renders the body of an error answer. It must not fail.
	Error func(f *fault.Error, s PaymentStatus) []byte
}

// Job is the work that is paid for.
type Job struct {
	// Fingerprint names the request: method, path, the operation's parameters
	// after normalisation. It must be printable ASCII, because the receipt has it.
	Fingerprint string
	// Endpoint names where the job is sold. A payment is answered at the endpoint at which
	// it was claimed, at the price that was paid, and nowhere else.
	Endpoint string
	// KeyScope is where a payer's key names one purchase, such as an origin: the same key in
	// another scope names another purchase. It may be empty.
	KeyScope string
	Budget   time.Duration // what Run may take
	Timeout  fault.Info    // the fault when less than Budget is left for Run; its class is Owed
	// MostRuns is how many runs one payment buys until one gives an answer; 0 is any
	// number. After them a refund is due at once.
	MostRuns int
	// NoImplicitRetry says that without a purchase key every payment is another
	// purchase, because there is no answer that two of them could share (ping).
	NoImplicitRetry bool
	// Check says whether the payment may be sent. It is asked before every send, and its
	// *fault.Error stops that: the payment is not charged by it. What is paid already is
	// answered whatever it says. Nil is always yes.
	Check func(ctx context.Context) error
	// Run does the work and returns the answer or a *fault.Error. Its context has the
	// payment (SaleOf). It returns within Budget: where its work goes on, its error is an
	// *Unfinished.
	Run func(ctx context.Context) (Reply, error)
}

// Unfinished is the error of a Run whose time is over while its work goes on.
type Unfinished struct {
	// Rest waits for the end of the work, and returns what Run would have returned.
	Rest func() (Reply, error)
}

// Error is for logs.
func (*Unfinished) Error() string { return "the work goes on after its time" }

// Sale is the payment that a job is run for.
type Sale struct {
	Payer       string // checksummed address
	Network     string // CAIP-2
	Transaction string // hash of the transfer; empty when it is not known
	Amount      string // in atomic units
	// Purchase names what was paid for: every run for the same payment has the same name,
	// and no other payment has it. It has 64 hexadecimal digits, and can be sent as the
	// idempotency key of what a run calls.
	Purchase string
	// Repeat says that there was an earlier run for this payment: it died with its process,
	// gave no answer, or gave one that could not be stored. A run whose settlement was never
	// recorded is not counted.
	Repeat bool
}

type saleKey struct{}

// SaleOf returns the payment that a job runs for; ok is false if ctx is not a job's context.
func SaleOf(ctx context.Context) (s Sale, ok bool) {
	s, ok = ctx.Value(saleKey{}).(Sale)
	return s, ok
}

// Reply is the result of the work.
type Reply struct {
	Status int                 // of HTTP; 0 is 200
	Header map[string][]string // stored with the body, such as its type
	Body   []byte
	// Owed names the parts of a bundle that failed on our side and not on the
	// target's. They are looked up again without a charge.
	Owed []string
	// Prevented says that none of the owed parts was tried, because the pause after
	// an earlier failure of ours is not over. Such a lookup is not counted.
	Prevented bool
	// Silent says that a part is owed because the target was silent
	// (fault.Error.Silence).
	Silent bool
}

// Outcome is the answer to a signed request.
type Outcome struct {
	Status int
	Header map[string][]string // of a Reply
	Body   []byte              // nil on a challenge, whose body is the offer
	// Fault is nil for a result. A challenge has one too, with the reason.
	Fault    *fault.Error
	Payment  PaymentStatus
	Receipt  *SettleResponse // PAYMENT-RESPONSE, when set
	Replayed bool            // the answer comes from the ledger
	Answered time.Time       // when a replayed answer was stored
	Owed     []string        // the parts of a bundle that are still owed: Answer-Owed
	Trace    Trace
	// Finish is nil unless the work goes on after its time. Then the caller answers first, and
	// calls it: it returns when the work has ended and its outcome is on record. Until then the
	// lease and the slot of the request are held.
	Finish func()
}

// PaymentStatus is the part of an answer about its payment.
type PaymentStatus struct {
	Charged   *bool // whether money has moved for this authorization; nil is not known
	Retryable bool  // the same signature may be sent again without a new charge
}

// Timings are how long each phase of a request took; 0 for one that did not happen.
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
	// Amount is that of the payment in atomic units, whether it was made or not.
	Amount string
	States []ledger.State
	Class  string // of the settlement, when one was tried
	Fate   string // of the authorization, by the chain, when that was asked
	Asked  []Ask  // the facilitators that were asked, where there are several
	Reason string // why not, as far as it may be logged
	// Purchase is "joined" when another payment of the same purchase answered,
	// "taken_over" when this one replaced another, and empty otherwise.
	Purchase string
	Timings
	Extensions map[string]string // the facilitator's notes on extensions
	Cause      error             // private
	// UsedAsPaid says that the payment counts as paid because a facilitator says that its
	// authorization is used, and no node is configured that could say what for.
	UsedAsPaid bool
	// Unreceipted says that the answer has no receipt although a key is configured.
	Unreceipted bool
	// Unrecorded says that an outcome of this request could not be written to the
	// ledger, or may not have been.
	Unrecorded bool
	// Silent says of a settlement in doubt that the facilitator decided nothing: it was
	// silent, broke off, or gave an answer that is not one of x402.
	Silent bool
}
