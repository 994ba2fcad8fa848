package ledger

import (
	"errors"
	"testing"
	"time"
)

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// situations are the states with everything that an edge can depend on.
func situations() map[string]Record {
	live, past := epoch.Add(time.Minute), epoch.Add(-time.Minute)
	base := Record{Key: "k", Proof: &Proof{}, Version: 7, WriteID: "w", Attempt: 1, Lookups: 1, ValidBefore: epoch.Add(time.Hour), LookupAt: past, SettledAt: past}
	with := func(s State, change func(*Record)) Record {
		r := base
		r.State = s
		change(&r)
		return r
	}
	return map[string]Record{
		"settling, live":            with(Settling, func(r *Record) { r.LeaseUntil = live }),
		"settling, live, in doubt":  with(Settling, func(r *Record) { r.LeaseUntil = live; r.Doubt, r.Sent = true, true }),
		"settling, past":            with(Settling, func(r *Record) { r.LeaseUntil = past }),
		"uncertain":                 with(Uncertain, func(r *Record) { r.Doubt, r.Sent = true, true }),
		"refused":                   with(Refused, func(*Record) {}),
		"refused, disproved":        with(Refused, func(r *Record) { r.Disproved = true }),
		"settled, live":             with(Settled, func(r *Record) { r.LeaseUntil = live }),
		"settled, released":         with(Settled, func(*Record) {}),
		"settled, spent":            with(Settled, func(r *Record) { r.Lookups = MaxLookups }),
		"settled, spent, live":      with(Settled, func(r *Record) { r.Lookups = MaxLookups; r.LeaseUntil = live }),
		"refunded":                  with(Refunded, func(*Record) {}),
		"scanned":                   with(Scanned, func(*Record) {}),
		"repaid":                    with(Repaid, func(*Record) {}),
		"redeemed":                  with(Redeemed, func(r *Record) { r.Answer = &Answer{Stored: true} }),
		"redeemed, without a body":  with(Redeemed, func(r *Record) { r.Answer = &Answer{} }),
		"redeemed, bodyless, live":  with(Redeemed, func(r *Record) { r.Answer = &Answer{}; r.LeaseUntil = live }),
		"unknown":                   with("paid", func(*Record) {}),
		"bought":                    with(Bought, func(*Record) {}),
		"superseded":                with(Superseded, func(*Record) {}),
		"redeemed, parts owed":      with(Redeemed, func(r *Record) { r.Answer = &Answer{Stored: true, Owed: []string{"ssl"}} }),
		"settling, abandoned doubt": with(Settling, func(r *Record) { r.LeaseUntil = past; r.Doubt, r.Sent = true, true }),
	}
}

// legal is every (situation, event) pair that may happen, and where it leads.
// All others must be illegal.
func legal() map[string]State {
	return map[string]State{
		"settling, live/settled": Settled, "settling, live/refused": Refused, "settling, live/disproved": Refused,
		"settling, live/not_sent": Refused, "settling, live/uncertain": Uncertain, "settling, live/supersede": Superseded,
		"settling, live/turned_away": Refused, "settling, past/turned_away": Refused,
		"settling, live, in doubt/turned_away": Uncertain, "settling, abandoned doubt/turned_away": Uncertain,

		"settling, live, in doubt/settled": Settled, "settling, live, in doubt/refused": Uncertain,
		"settling, live, in doubt/disproved": Refused, "settling, live, in doubt/not_sent": Uncertain,
		"settling, live, in doubt/uncertain": Uncertain,

		"settling, live/ask": Settling, "settling, live, in doubt/ask": Settling,

		"settling, past/claim": Settling, "settling, past/settled": Settled, "settling, past/refused": Refused,
		"settling, past/disproved": Refused, "settling, past/not_sent": Refused, "settling, past/uncertain": Uncertain,
		"settling, past/supersede": Superseded,

		"settling, abandoned doubt/claim": Settling, "settling, abandoned doubt/settled": Settled,
		"settling, abandoned doubt/refused": Uncertain, "settling, abandoned doubt/disproved": Refused,
		"settling, abandoned doubt/not_sent": Uncertain, "settling, abandoned doubt/uncertain": Uncertain,

		"uncertain/claim": Settling, "uncertain/settled": Settled,
		"refused/claim": Settling, "refused/settled": Settled, "refused, disproved/settled": Settled,
		"refused/supersede": Superseded, "refused, disproved/supersede": Superseded, "superseded/settled": Settled,

		"settled, live/redeem": Redeemed, "settled, live/release": Settled,
		"settled, released/claim": Settled, "settled, released/redeem": Redeemed, "settled, released/release": Settled,

		"settled, spent/claim": Settled, "settled, spent/redeem": Redeemed, "settled, spent/release": Settled,
		"settled, spent/refund":       Refunded,
		"settled, spent, live/redeem": Redeemed, "settled, spent, live/release": Settled,

		"redeemed, without a body/claim": Redeemed, "redeemed, without a body/redeem": Redeemed,
		"redeemed, without a body/release": Redeemed,
		"redeemed, bodyless, live/claim":   Redeemed, "redeemed, bodyless, live/redeem": Redeemed,
		"redeemed, bodyless, live/release": Redeemed,
		"redeemed, parts owed/claim":       Redeemed, "redeemed, parts owed/redeem": Redeemed,
		"redeemed, parts owed/release": Redeemed,
	}
}

func TestEveryStateAndEvent(t *testing.T) {
	table := legal()
	pairs := 0
	for name, r := range situations() {
		for _, ev := range Events() {
			pairs++
			key := name + "/" + string(ev)
			c := change{now: epoch, lease: epoch.Add(time.Minute), receipt: &Receipt{Transaction: "0x1"}, reason: "r", answer: &Answer{}, failure: &Failure{}}
			next, err := step(r, ev, c)
			want, ok := table[key]
			if !ok {
				if !errors.Is(err, ErrIllegal) {
					t.Errorf("%s: %v to %s, want illegal", key, err, next.State)
				}
				continue
			}
			delete(table, key)
			if err != nil || next.State != want {
				t.Errorf("%s: %s, %v; want %s", key, next.State, err, want)
				continue
			}
			checkStep(t, key, r, next, ev)
		}
	}
	if want := len(situations()) * len(Events()); pairs != want {
		t.Errorf("%d pairs, want %d", pairs, want)
	}
	for key := range table {
		t.Errorf("%s is in the table of legal pairs and is no pair", key)
	}
}

// checkStep holds every transition to what is true of all of them.
func checkStep(t *testing.T, key string, old, next Record, ev Event) {
	t.Helper()
	if next.Version != old.Version+1 {
		t.Errorf("%s: version %d after %d", key, next.Version, old.Version)
	}
	if old.Doubt && !next.Doubt && ev != EventSettled && ev != EventDisproved {
		t.Errorf("%s: doubt was cleared without evidence", key)
	}
	if next.State == Refused && next.Doubt {
		t.Errorf("%s: refused and in doubt", key)
	}
	if next.State == Uncertain && !next.Doubt {
		t.Errorf("%s: uncertain without doubt", key)
	}
	if next.State == Settled && ev == EventSettled && next.Receipt == nil {
		t.Errorf("%s: settled without a receipt", key)
	}
	if next.Disproved != (ev == EventDisproved || ev == EventSupersede && old.Disproved) {
		t.Errorf("%s: disproved %v", key, next.Disproved)
	}
	if old.Sent && !next.Sent || next.Sent && !old.Sent && ev == EventNotSent {
		t.Errorf("%s: sent %v after %v", key, next.Sent, old.Sent)
	}
	if told := ev == EventRefused || ev == EventTurnedAway || ev == EventUncertain || next.Doubt; told && !next.Sent {
		t.Errorf("%s: what may have been sent counts as not sent", key)
	}
	ends := map[State]time.Time{Settling: {}, Uncertain: {}, Settled: {}}
	want, endless := ends[next.State]
	if !endless {
		want = old.ValidBefore.Add(keep)
	}
	if !next.ExpiresAt.Equal(want) {
		t.Errorf("%s: expires at %s, want %s", key, next.ExpiresAt, want)
	}
}
