package ledger

import (
	"context"
	"fmt"
	"time"
)

// Bounds for lookups whose answers are owed, and for replaying an answer.
const (
	// MostUnkept is how many lookups are run for one payment if its answer is too large to be
	// kept.
	MostUnkept = 5
	// MostSilent is how many lookups must have ended with a silent target before that silence
	// is the answer.
	MostSilent = 5
	// OwedFor is how long an answer may be owed before a refund is due. KeptFor is how long an
	// answer is replayed after it was first given.
	OwedFor = 24 * time.Hour
	KeptFor = 24 * time.Hour
)

// longestPause is the longest pause between two lookups, unless a failed lookup asks for
// another one (Failure.Pause).
const longestPause = time.Hour

// spacing returns the least time between the end of the nth lookup and the next one.
func spacing(lookups int) time.Duration {
	first := []time.Duration{0, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	if lookups < len(first) {
		return first[max(lookups, 0)]
	}
	pause := first[len(first)-1]
	for n := len(first); n <= lookups && pause < longestPause; n++ {
		pause *= 2
	}
	return min(pause, longestPause)
}

// tooSoon returns the time until a facilitator may be asked again about a payment that the
// facilitator has refused. There is a pause because asking costs the seller something and the
// sender nothing.
func tooSoon(r Payment, now time.Time) time.Duration {
	return max(0, r.RefusedAt.Add(spacing(min(r.Refusals, 3))).Sub(now))
}

// NextLookup returns the pause between the last lookup, which failed, and the next one.
func NextLookup(r Payment) time.Duration {
	if r.LastFault != nil && r.LastFault.Pause > 0 {
		return r.LastFault.Pause
	}
	return spacing(r.Lookups)
}

// lookupIn returns the time until the next lookup for a payment may begin.
func lookupIn(r Payment, now time.Time) time.Duration {
	return max(0, r.LookupAt.Add(NextLookup(r)).Sub(now))
}

// SilenceDecides reports whether silence becomes the answer if the current lookup also ends
// with a silent target. Silence becomes the answer after MostSilent such lookups, or if the
// answer has been owed for a day and all its lookups ended that way.
func SilenceDecides(r Payment, now time.Time) bool {
	r.Silent++
	return r.State == Settled && silentEnough(r, now)
}

// silentEnough reports whether the lookups so far make silence the answer.
func silentEnough(r Payment, now time.Time) bool {
	return r.Silent >= MostSilent || r.Silent == r.Lookups && r.Silent > 0 && now.Sub(r.SettledAt) > OwedFor
}

// AnswerSilence stores a, the answer that the target was silent, for a payment that is
// StandingSilent, and returns the record as it was written. validFor is as in Hold.Redeem.
// ErrConflict means that somebody else has written the record, and ErrIllegal that the payment
// is not StandingSilent.
func (l *Ledger) AnswerSilence(ctx context.Context, r Payment, a Answer, validFor time.Duration) (*Payment, error) {
	if Stand(&r, View{Now: l.now()}) != StandingSilent {
		return nil, fmt.Errorf("answer silence: %w", ErrIllegal)
	}
	next, err := l.Apply(ctx, r, EventRedeem, Change{answer: &a, validFor: validFor})
	return &next, err
}
