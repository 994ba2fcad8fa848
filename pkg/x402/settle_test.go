package x402

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// TestConclusions checks the conclusion from every combination of a facilitator's reply,
// earlier doubt and the chain's finding.
func TestConclusions(t *testing.T) {
	settled, disproved := wantConclusion{ledger.EventSettled, replyLookUp}, wantConclusion{ledger.EventDisproved, replyRefused}
	refused, doubted := wantConclusion{ledger.EventRefused, replyRefused}, wantConclusion{ledger.EventRefused, replyUnsure}
	door, none := wantConclusion{ledger.EventTurnedAway, replyFault}, wantConclusion{ledger.EventNotSent, replyFault}
	unsure := wantConclusion{ledger.EventUncertain, replyUnsure}
	past := wantConclusion{ledger.EventNotSent, replyUnsure}
	stop, stopDead := wantConclusion{ledger.EventNotSent, replyStopped}, wantConclusion{ledger.EventDisproved, replyStopped}
	// The conclusions are in the order of these fates: no node, paid, never paid, still open,
	// cannot tell.
	asked := map[string][5]wantConclusion{
		"used, no doubt": {refused, settled, disproved, unsure, unsure},
		"used, doubt":    {settled, settled, disproved, unsure, unsure},
		"used, sent":     {settled, settled, disproved, unsure, unsure},
		"no, sent":       {refused, settled, disproved, refused, doubted},
		"late, sent":     {refused, settled, disproved, refused, unsure},
		"past, sent":     {past, settled, disproved, past, past},
		"lost, sent":     {unsure, settled, disproved, unsure, unsure},
		"late, no doubt": {refused, settled, disproved, refused, unsure},
		"late, doubt":    {doubted, settled, disproved, doubted, doubted},
		"no, doubt":      {doubted, settled, disproved, doubted, doubted},
		"door, doubt":    {door, settled, disproved, door, door},
		"none, doubt":    {none, settled, disproved, none, none},
		"past, no doubt": {past, settled, disproved, past, past},
		"past, doubt":    {past, settled, disproved, past, past},
		"lost, no doubt": {unsure, settled, disproved, unsure, unsure},
		"lost, doubt":    {unsure, settled, disproved, unsure, unsure},
		"stop, sent":     {stop, settled, stopDead, past, past},
		"stop, doubt":    {past, settled, stopDead, past, past},
	}
	unasked := map[string]wantConclusion{
		"moved, no doubt": settled, "moved, doubt": settled, "no, no doubt": refused, "door, no doubt": door, "none, no doubt": none,
		"moved, sent": settled, "door, sent": door, "none, sent": none, "stop, no doubt": stop,
	}
	classes := map[string]Class{
		"moved": Moved, "no": Refused, "used": classNonceUsed, "late": classExpired, "door": TurnedAway, "none": NotSent, "past": NotResent, "lost": Unknown,
		"stop": classStopped,
	}
	for className, class := range classes {
		for doubtName, d := range map[string]doubt{"no doubt": noDoubt, "sent": sentBefore, "doubt": inDoubt} {
			name := className + ", " + doubtName
			t.Run(name, func(t *testing.T) {
				want, asks := asked[name]
				if asksChain(class, d) != asks {
					t.Fatalf("it asks the chain %t, want %t", asksChain(class, d), asks)
				}
				if !asks {
					checkConclusion(t, class, d, notAsked, unasked[name])
					return
				}
				for i, v := range []Fate{noNode, Paid, NeverPaid, StillOpen, CannotTell} {
					checkConclusion(t, class, d, v, want[i])
				}
			})
		}
	}
	// An attempt can end before anything is sent and before the chain is asked, even if there
	// is doubt about an earlier attempt.
	checkConclusion(t, NotSent, inDoubt, notAsked, none)
}

// wantConclusion is what a conclusion must decide: the event that is written to the record,
// and the kind of reply.
type wantConclusion struct {
	event ledger.Event
	reply reply
}

// checkConclusion checks which conclusion the Gate draws from three things: the class of a
// reply, the doubt before it, and what the chain shows.
func checkConclusion(t *testing.T, class Class, d doubt, v Fate, want wantConclusion) {
	t.Helper()
	c := new(Gate).conclusion(class, d, v)
	if got := (wantConclusion{c.event, c.reply}); got != want {
		t.Errorf("%s, doubt %d, chain %d: %+v, want %+v", class, d, v, got, want)
	}
}
