package x402

import (
	"testing"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// TestConclusions checks the conclusion from every combination of a facilitator's reply,
// earlier doubt and the chain's finding.
func TestConclusions(t *testing.T) {
	settled, disproved := concluded{ledger.EventSettled, replyLookUp}, concluded{ledger.EventDisproved, replyRefused}
	refused, doubted := concluded{ledger.EventRefused, replyRefused}, concluded{ledger.EventRefused, replyUnsure}
	door, none := concluded{ledger.EventTurnedAway, replyFault}, concluded{ledger.EventNotSent, replyFault}
	unsure := concluded{ledger.EventUncertain, replyUnsure}
	past := concluded{ledger.EventNotSent, replyUnsure}
	stop, stopDead := concluded{ledger.EventNotSent, replyStopped}, concluded{ledger.EventDisproved, replyStopped}
	// The conclusions are in the order of these fates: no node, paid, never paid, still open,
	// cannot tell.
	asked := map[string][5]concluded{
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
	unasked := map[string]concluded{
		"moved, no doubt": settled, "moved, doubt": settled, "no, no doubt": refused, "door, no doubt": door, "none, no doubt": none,
		"moved, sent": settled, "door, sent": door, "none, sent": none, "stop, no doubt": stop,
	}
	classes := map[string]Class{
		"moved": Moved, "no": Refused, "used": used, "late": expired, "door": TurnedAway, "none": NotSent, "past": NotResent, "lost": Unknown,
		"stop": stopped,
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
					concludes(t, class, d, notAsked, unasked[name])
					return
				}
				for i, v := range []Fate{noNode, Paid, NeverPaid, StillOpen, CannotTell} {
					concludes(t, class, d, v, want[i])
				}
			})
		}
	}
	// An attempt can end before anything is sent and before the chain is asked, even if there
	// is doubt about an earlier attempt.
	concludes(t, NotSent, inDoubt, notAsked, none)
}

// concluded is what a conclusion decides: the event that is written to the record, and the
// kind of reply.
type concluded struct {
	event ledger.Event
	reply reply
}

// concludes checks the conclusion from a reply, earlier doubt and the chain's finding.
func concludes(t *testing.T, class Class, d doubt, v Fate, want concluded) {
	t.Helper()
	c := new(Gate).conclusion(class, d, v)
	if got := (concluded{c.event, c.reply}); got != want {
		t.Errorf("%s, doubt %d, chain %d: %+v, want %+v", class, d, v, got, want)
	}
}
