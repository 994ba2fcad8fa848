package ledger

import (
	"context"
	"fmt"
	"time"
)

// Bounds of owed lookups, and of replaying an answer.
const (
	// MostUnkept is how many lookups one payment buys whose answers are too large to be
	// kept.
	MostUnkept = 5
	// MostSilent is how many lookups must have met the silence of the target for that to be
	// the answer.
	MostSilent = 5
	// OwedFor is how long an answer may be owed before a refund is due, and KeptFor how
	// long after it was given an answer is replayed.
	OwedFor = 24 * time.Hour
	KeptFor = 24 * time.Hour
)

// longestPause is the most between two lookups, where the work has not said otherwise.
const longestPause = time.Hour

// spacing is the least time between the end of lookup n and the next one.
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

// tooSoon is for how long a facilitator is not asked again about a payment that it has
// refused, since asking costs us and not the sender.
func tooSoon(r Payment, now time.Time) time.Duration {
	return max(0, r.RefusedAt.Add(spacing(min(r.Refusals, 3))).Sub(now))
}

// NextLookup returns how long after a failed lookup, which was the last one that the record
// counts, the next one is allowed.
func NextLookup(r Payment) time.Duration {
	if r.LastFault != nil && r.LastFault.Pause > 0 {
		return r.LastFault.Pause
	}
	return spacing(r.Lookups)
}

// lookupIn is how long it is until the next lookup of a payment may begin.
func lookupIn(r Payment, now time.Time) time.Duration {
	return max(0, r.LookupAt.Add(NextLookup(r)).Sub(now))
}

// SilenceDecides says that the lookup of a record which ends now is one after which the
// silence of the target is the answer: some have met it, or none has failed otherwise in a
// day.
func SilenceDecides(r Payment, now time.Time) bool {
	r.Silent++
	return r.State == Settled && silenceStands(r, now)
}

func silenceStands(r Payment, now time.Time) bool {
	return r.Silent >= MostSilent || r.Silent == r.Lookups && r.Silent > 0 && now.Sub(r.SettledAt) > OwedFor
}

// AnswerSilence stores the silence of the target as the answer of a payment that is
// StandingSilent, and returns the record as it is written. stands is as with Hold.Redeem.
// ErrConflict means that somebody else has written it, and ErrIllegal that the silence
// does not stand.
func (l *Ledger) AnswerSilence(ctx context.Context, r Payment, a Answer, stands time.Duration) (*Payment, error) {
	if Stand(&r, View{Now: l.now()}) != StandingSilent {
		return nil, fmt.Errorf("answer silence: %w", ErrIllegal)
	}
	next, err := l.Apply(ctx, r, EventRedeem, Change{answer: &a, stands: stands})
	return &next, err
}
