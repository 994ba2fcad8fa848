package ledger

import (
	"context"
	"fmt"
	"time"
)

// LastLookup says that a lookup which ends now is the last one that a settled
// record has. Where its target was silent, that is the answer.
func LastLookup(r Record, now time.Time) bool {
	r.LookupAt, r.LeaseUntil = now, time.Time{}
	return r.State == Settled && Spent(r, now)
}

// SilenceStands says that a paid record has no lookup left, by number or by time,
// and that the target was silent in the last one, which ran to its end: its payer
// is owed neither a lookup nor a refund, and AnswerSilence may store the answer.
func SilenceStands(r Record, now time.Time) bool {
	return r.State == Settled && r.LeaseUntil.IsZero() && r.LastFault != nil && r.LastFault.Silence && Spent(r, now)
}

// AnswerSilence stores the silence of the target as the answer of a payment for
// which SilenceStands. stands is as with Hold.Redeem. It returns the record as it is written. ErrConflict
// means that somebody else has written it, and ErrIllegal that the silence does not
// stand.
func (l *Ledger) AnswerSilence(ctx context.Context, r Record, a Answer, stands time.Duration) (*Record, error) {
	if !SilenceStands(r, l.now()) {
		return nil, fmt.Errorf("answer silence: %w", ErrIllegal)
	}
	next, err := l.apply(ctx, r, EventRedeem, change{answer: &a, stands: stands})
	if err != nil {
		return nil, fmt.Errorf("answer silence: %w", err)
	}
	return &next, nil
}
