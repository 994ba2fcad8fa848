package ledger

import (
	"context"
	"fmt"
	"time"
)

// These constants bound how long and how often an owed answer is looked up, and how long an
// answer is replayed.
const (
	// MostUnkept is how many lookups are run for one payment if its answer is too large to be
	// kept.
	MostUnkept = 5
	// MostSilent is how many lookups must have ended with a silent target before that silence
	// is the answer.
	MostSilent = 5
	// OwedFor is how long an answer may be owed before a refund is due.
	OwedFor = 24 * time.Hour
	// KeptFor is how long an answer is replayed after it was stored. If the answer is too
	// large to be stored, KeptFor is how long it can be looked up again after it was first
	// given.
	KeptFor = 24 * time.Hour
)

// longestPause is the longest pause between two lookups. A failed lookup may set a longer
// pause (Failure.Pause).
const longestPause = time.Hour

// pauseAfter returns the pause that must follow the given number of lookups before the next
// lookup begins.
func pauseAfter(lookups int) time.Duration {
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

// resendWait returns how much longer a refused payment must wait before it may be sent to the
// facilitator again. The result is 0 if it need not wait. The wait is needed because a call
// costs the seller something and the sender of the payment nothing.
func resendWait(r Payment, now time.Time) time.Duration {
	return max(0, r.RefusedAt.Add(pauseAfter(min(r.Refusals, 3))).Sub(now))
}

// NextLookup returns the pause between the last lookup, which has failed, and the next lookup.
// The failed lookup may have set this pause; otherwise the number of lookups decides.
func NextLookup(r Payment) time.Duration {
	if r.LastFault != nil && r.LastFault.Pause > 0 {
		return r.LastFault.Pause
	}
	return pauseAfter(r.Lookups)
}

// lookupWait returns how long it is until the next lookup for a payment may begin. It returns
// 0 if that lookup may begin now.
func lookupWait(r Payment, now time.Time) time.Duration {
	return max(0, r.LookupAt.Add(NextLookup(r)).Sub(now))
}

// SilenceDecides reports whether silence becomes the answer if the current lookup also ends
// with a silent target. Silence becomes the answer after MostSilent such lookups. It also
// becomes the answer if the answer has been owed for a day and every lookup ended that way.
func SilenceDecides(r Payment, now time.Time) bool {
	r.Silent++
	return r.State == Settled && isSilenceAnswer(r, now)
}

// isSilenceAnswer reports whether the lookups so far make silence the answer.
func isSilenceAnswer(r Payment, now time.Time) bool {
	return r.Silent >= MostSilent || r.Silent == r.Lookups && r.Silent > 0 && now.Sub(r.SettledAt) > OwedFor
}

// AnswerSilence stores the answer a, which says that the target was silent, and returns the
// record as it was written. validFor has the same meaning as in Hold.Redeem. ErrIllegal means
// that the payment's standing is not StandingSilent. ErrConflict means that somebody else has
// written the record.
func (l *Ledger) AnswerSilence(ctx context.Context, r Payment, a Answer, validFor time.Duration) (*Payment, error) {
	if Stand(&r, View{Now: l.now()}) != StandingSilent {
		return nil, fmt.Errorf("answer silence: %w", ErrIllegal)
	}
	next, err := l.Apply(ctx, r, EventRedeem, Change{answer: &a, validFor: validFor})
	return &next, err
}
