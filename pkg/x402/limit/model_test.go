package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/pkg/x402/limit"
)

// TestRateAgreesWithModel makes random requests at random times in one environment, and
// compares each decision with a model.
//
// A request passes if its units, together with the units already counted in the window, do not
// exceed the limit. A request without a payment is one unit. A request with a payment counts
// with its weight until it is decided, and with its final units afterwards. If a request turns
// out to be at fault only in a later window, it counts in full in the later window, and the
// earlier window gets nothing back.
//
// A refused client learns how long it has to wait. It has to wait until the window ends,
// unless the undecided requests may give back enough units for its request.
//
// If the clock is set back across the change of a minute, no units are forgotten. If the clock
// was wrong by hours, no client stays excluded.
func TestRateAgreesWithModel(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		perMinute := []int{1, 10, 61, 300}[random.IntN(4)]
		clock := clockAt(0)
		m := rateModel{
			seed: seed, random: random, clock: clock, perMinute: perMinute,
			// Forgiving, because this model knows no debts: TestDebts checks them.
			rate: newRate(perMinute, &limit.Memory{}, clock).Forgiving(), window: clock.now(), windowOf: map[*limit.Request]time.Time{},
		}
		for step := range 300 {
			m.passTime(step)
			m.send(t)
		}
	}
}

// rateModel is what a Rate should know about one client.
type rateModel struct {
	seed      uint64
	random    *rand.Rand
	clock     *clock
	perMinute int
	rate      *limit.Rate
	window    time.Time
	used      limit.Units // the units that were used in the window
	undecided []*limit.Request
	windowOf  map[*limit.Request]time.Time // for each undecided request, when its window began
}

// check compares the decision on a request with the model. The request must pass if the window
// has room for neededUnits. The model then adds countedUnits to its own count. A refused
// client must be told to come back soon if the window has room for minUnits once the undecided
// requests have given their units back.
func (m *rateModel) check(t *testing.T, v limit.Decision, neededUnits, minUnits int, countedUnits limit.Units) {
	t.Helper()
	end := max(m.window.Add(limit.Window).Sub(m.clock.now()), time.Second)
	want := limit.Decision{OK: m.used.All+neededUnits <= m.perMinute, Limit: m.perMinute, Reset: end}
	if want.OK {
		m.used = limit.Units{All: m.used.All + countedUnits.All, Open: m.used.Open + countedUnits.Open}
		want.Remaining = max(m.perMinute-m.used.All, 0)
	} else {
		want.RetryAfter = end
		if m.used.All-m.used.Open+minUnits <= m.perMinute {
			want.RetryAfter = min(2*time.Second, end)
		}
	}
	if v != want {
		t.Fatalf("seed %d, at %s in the window of %s, %+v of %d: %+v, want %+v", m.seed, m.clock, m.window, m.used, m.perMinute, v, want)
	}
}

// passTime moves the clock a little forward, and sometimes far forward or back.
func (m *rateModel) passTime(step int) {
	m.clock.advance(time.Millisecond)
	switch m.random.IntN(min(12*step, 12) + 1) {
	case 0:
		m.clock.Time = m.window.Add(limit.Window + time.Duration(m.random.Int64N(int64(2*limit.Window))))
	case 1:
		if !m.clock.Before(m.window) {
			m.clock.advance(-20 * time.Second)
		}
	case 2:
		m.clock.advance(-time.Duration(100+m.random.IntN(1000)) * time.Hour)
		m.undecided = nil // these requests belong to windows that a Memory may have dropped by now
	}
	now := m.clock.Truncate(limit.Window)
	if !now.Equal(m.window) && !now.Equal(m.window.Add(-limit.Window)) {
		m.window = now
		m.used = limit.Units{}
	}
}

// send sends a request of any kind, or decides one.
func (m *rateModel) send(t *testing.T) {
	t.Helper()
	undecided, _ := limit.Weights(m.perMinute)
	switch kind := m.random.IntN(6); {
	case kind == 0:
		q := limit.Request{Rate: m.rate, Client: client, Paid: true}
		q.Admit(t.Context())
		m.check(t, q.Decision, 1, undecided, limit.Units{})
	case kind < 3:
		q, err := open(t, m.rate, client)
		m.check(t, q.Decision, undecided, undecided, limit.Units{All: undecided, Open: undecided - 1})
		if err == nil {
			m.undecided = append(m.undecided, q)
			m.windowOf[q] = m.window
		}
	case kind < 4 && len(m.undecided) > 0:
		m.decide(t, m.random.IntN(2) == 0)
	default:
		m.check(t, allow(t, m.rate, client).Decision, 1, 1, limit.Units{All: 1})
	}
}

// decide decides the oldest undecided request.
func (m *rateModel) decide(t *testing.T, fault bool) {
	t.Helper()
	undecided, atFault := limit.Weights(m.perMinute)
	q := m.undecided[0]
	m.undecided = m.undecided[1:]
	in, now := m.windowOf[q], m.clock.Truncate(limit.Window)
	counts := limit.Units{All: 1 - undecided, Open: 1 - undecided}
	if fault {
		counts.All = atFault - undecided
	}
	if now.After(in) {
		in = now
		counts = limit.Units{}
		if fault {
			counts.All = atFault
		}
	}
	if !in.Equal(m.window) {
		counts = limit.Units{}
	}
	q.Close(t.Context(), fault)
	m.check(t, q.Decision, -1<<20, 0, counts)
}
