package x402_test

import (
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// canonicalState simplifies a state, so that states with the same possible future become
// equal. It puts the two processes in a fixed order. While no process runs, it also resets the
// versions, write ids and numbers of attempts in the records: a process compares these only
// with values that it has read itself. If the exact value of a
// time in a record makes no difference any more, canonicalState replaces it with longAgo.
func (x *explorer) canonicalState(s state) state {
	if s.quiet() {
		s.nextSerial = 0
		for key, rec := range s.recs {
			s.recs[key] = x.canonicalRecord(rec, s.now)
		}
	}
	if s.procs[0].node < s.procs[1].node {
		s.procs[0], s.procs[1] = s.procs[1], s.procs[0]
	}
	return s
}

func (x *explorer) canonicalRecord(rec int32, now int8) int32 {
	at := canonicalKey{rec, now}
	n, ok := x.canonical[at]
	if !ok {
		n = x.canonicalNumber(x.records[rec], x.instants[now])
		x.canonical[at] = n
	}
	return n
}

// longAgo is a fixed time before the exploration begins. It replaces times whose exact value
// makes no difference any more.
var longAgo = explorationStart.Add(-time.Hour)

func (x *explorer) canonicalNumber(r ledger.Record, now time.Time) int32 {
	switch r := r.(type) {
	case ledger.Payment:
		held := r.LeaseUntil.After(r.UpdatedAt)
		r.Row = canonicalRow(r.Row)
		r.Attempt = 1
		r.Refusals = min(r.Refusals, 3)
		r.Reason = ""
		x.canonicalTimes(&r, now)
		if !r.RefusedAt.IsZero() && now.Sub(r.RefusedAt) > time.Minute {
			r.RefusedAt = time.Time{}
		}
		if r.LeaseUntil.IsZero() {
			return x.recordNumber(r)
		}
		if !r.LeaseUntil.After(now) {
			r.LeaseUntil = longAgo
		}
		if held {
			r.UpdatedAt = longAgo.Add(-time.Hour)
		}
		return x.recordNumber(r)
	case ledger.Purchase:
		r.Row = canonicalRow(r.Row)
		r.CreatedAt = longAgo
		return x.recordNumber(r)
	case ledger.Cursor:
		r.Row = canonicalRow(r.Row)
		return x.recordNumber(r)
	case nil:
		return 0
	}
	panic("a record of another kind")
}

// canonicalTimes replaces the times in a payment's record that no longer make a difference.
//
// Some periods of a payment last one day. If wholeDays is set, the world has no instant from one
// hour to 25 hours after the exploration begins. A one-day period that begins in the first hour
// ends within this gap, whenever exactly it begins. So its beginning matters only while a
// shorter period with the same beginning still runs. After that, canonicalTimes replaces the
// beginning with the time at which the exploration begins.
func (x *explorer) canonicalTimes(r *ledger.Payment, now time.Time) {
	first := func(at *time.Time, least time.Duration) {
		if x.wholeDays && !at.IsZero() && at.Before(explorationStart.Add(time.Hour)) && !at.Add(least).After(now) {
			*at = explorationStart
		}
	}
	first(&r.SettledAt, 0)
	first(&r.AnsweredAt, 0)
	first(&r.LookupAt, 10*time.Minute)
	if !r.AnswerValidUntil.IsZero() && !r.AnswerValidUntil.After(now) {
		r.AnswerValidUntil = longAgo
	}
	if x.world.budget.strangerSubmissions == 0 {
		r.CreatedAt = longAgo
	}
}

func canonicalRow(r ledger.Row) ledger.Row {
	r.Version, r.WriteID, r.UpdatedAt, r.ExpiresAt = 1, "before", longAgo, time.Time{}
	return r
}
