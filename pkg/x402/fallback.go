package x402

import (
	"context"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Time budgets of a settlement where there is a fallback. Together they are what
// the bundles, the operations with the longest lookups, leave to a settlement.
const (
	// primaryBudget is for the primary, its one resend included, and firstBudget
	// the most that its first answer is waited for.
	primaryBudget = 6 * time.Second
	firstBudget   = 4 * time.Second
	// chainBudget is for the chain, before the fallback is asked in doubt.
	chainBudget = 2 * time.Second
	// fallbackBudget is for the fallback. What it says in doubt is checked on the
	// chain within it: checkBudget is kept for that.
	fallbackBudget = 5 * time.Second
	checkBudget    = time.Second
	// leastResend is the least time with which a request is sent again.
	leastResend = time.Second
	// checkPause is between two looks at a chain that does not have yet what the
	// fallback says that it settled: a node can be a block behind.
	checkPause = 300 * time.Millisecond
	// primaryVerify is what the primary has to verify, of verifyBudget.
	primaryVerify = verifyBudget / 2
)

// Fallback is a second facilitator, beside the Gate's own, and what this process
// knows of how the two are doing. All Gates of a process share it.
//
// That one authorization is sent to two facilitators never moves money twice,
// because the token lets it execute once. What can go wrong is how their answers
// are read. So the fallback is asked at once only when the primary was provably
// not reached, or turned the request away for a reason that its operator has to
// deal with. In doubt it is asked after the primary was sent the same once more
// and the chain did not decide, and then only its success counts, checked on the
// chain where there is one. It is never asked after a refusal about the payer, also
// when that is on record from an earlier attempt: then only the facilitator that
// refused is asked again.
type Fallback struct {
	source
	primary source
}

// FallbackConfig are the parts of a Fallback; all are required.
type FallbackConfig struct {
	Facilitator Facilitator
	// Primary names the Gate's own facilitator and Name this one, in records and
	// logs. They must differ, and stay what they are from one deployment to the
	// next.
	Primary, Name string
	Now           func() time.Time
}

// NewFallback returns a Fallback.
func NewFallback(c FallbackConfig) *Fallback {
	if c.Facilitator == nil || c.Primary == "" || c.Name == "" || c.Primary == c.Name || c.Now == nil {
		panic("x402.NewFallback: facilitator, two names and clock are required")
	}
	return &Fallback{
		source:  source{Facilitator: c.Facilitator, name: c.Name, breaker: &breaker{now: c.Now}, fallback: true},
		primary: source{name: c.Primary, breaker: &breaker{now: c.Now}},
	}
}

// source is one of the facilitators that a payment can be taken to.
type source struct {
	Facilitator
	name    string   // empty where there is one only, which need not be recorded
	breaker *breaker // nil where there is one only
	// fallback says that it is the second of two.
	fallback bool
}

// route is to whom a payment is taken: first, and, if that one fails, second,
// which may be nil. Whoever refused it for a reason about its payer is asked alone.
func (g *Gate) route(r ledger.Record) (first, second *source) {
	f := g.fallback
	if f == nil {
		return &source{Facilitator: g.facilitator}, nil
	}
	primary := &source{Facilitator: g.facilitator, name: f.primary.name, breaker: f.primary.breaker}
	switch {
	case r.RefusedBy == f.name:
		return &f.source, nil
	case r.RefusedBy != "", r.Refusals > 0: // one refused before there was a fallback has no name
		return primary, nil
	}
	return primary, &f.source
}

// asksFirst names who is asked first about a payment that has no record yet, empty
// where there is one facilitator only.
func (g *Gate) asksFirst() string {
	switch f := g.fallback; {
	case f == nil:
		return ""
	case !f.primary.breaker.closed() && f.breaker.closed():
		return f.name
	default:
		return f.primary.name
	}
}

// verdict is what an attempt to settle has learned.
type verdict struct {
	s       Settlement
	word    facilitatorWord
	doubt   doubtful
	chain   chainAnswer
	finding Finding
}

// decided says that the chain has the last word.
func (v verdict) decided() bool { return v.chain == chainPaid || v.chain == chainNeverPaid }

// second is when a second facilitator may be asked after the first one's reply.
type second int

const (
	// secondNever: the first one's reply stands.
	secondNever second = iota
	// secondAtOnce: its answer counts like the first one's would have.
	secondAtOnce
	// secondInDoubt: its success alone counts.
	secondInDoubt
)

// secondAfter is the rule of the fallback, free of I/O.
func secondAfter(v verdict) second {
	switch {
	case v.decided() || v.s.AboutPayer:
		return secondNever
	case v.word == wordUnknown:
		return secondInDoubt
	case v.word != wordNotSent && v.word != wordTurnedAway:
		return secondNever
	case v.doubt == inDoubt:
		return secondInDoubt
	}
	return secondAtOnce
}

// verify asks the primary about a signature, and the fallback where the primary
// gave no verdict. A reason about the payer is final, whoever gives it. No money
// moves, so that nothing of this is in doubt or on record.
func (g *Gate) verify(ctx context.Context, p Payload, r Requirements) Verification {
	ctx, cancel := context.WithTimeout(ctx, verifyBudget)
	defer cancel()
	f := g.fallback
	switch {
	case f == nil || !f.breaker.closed():
		return g.facilitator.Verify(ctx, p, r)
	case !f.primary.breaker.closed():
		return f.Verify(ctx, p, r)
	}
	first, stop := context.WithTimeout(ctx, primaryVerify)
	defer stop()
	v := g.facilitator.Verify(first, p, r)
	if v.Fault == nil || v.AboutPayer {
		return v
	}
	if other := f.Verify(ctx, p, r); other.Fault == nil {
		return other
	}
	return v
}
