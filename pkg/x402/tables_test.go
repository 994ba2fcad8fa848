package x402

import (
	"fmt"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

// Every combination of terms, signer and record that can occur, with what it
// must come to, written down independently of the table.
func TestAdmissions(t *testing.T) {
	signers := map[string]signer{"recovered": signerRecovered, "strange": signerUnknown, "vouched": signerVouched, "unvouched": signerUnvouched}
	rows := map[string]row{"unread": rowUnread, "absent": rowAbsent, "foreign": rowForeign, "declined": rowDeclined, "stands": rowStands}
	want := map[string]admission{
		"ok recovered unread": admitToday, "ok strange unread": admitFetch,
		"bad recovered unread": admitFetch, "bad strange unread": admitFetch,

		"bad recovered absent": refuseTerms, "bad strange absent": refuseTerms, "ok strange absent": admitVerify,

		"ok strange foreign": refuseNonce, "bad strange foreign": refuseNonce, "bad recovered foreign": refuseNonce,

		"ok unvouched declined": refuseUsed, "bad unvouched declined": refuseUsed,
		"ok unvouched stands": refuseUsed, "bad unvouched stands": refuseUsed,

		"ok vouched declined": admitToday, "bad vouched declined": admitChain,
		"ok vouched stands": admitRecord, "bad vouched stands": admitRecord,
	}
	// Who vouches is the record of the authorization, where there is one, and a
	// recovered signature under today's terms is claimed unread.
	never := func(fit termsFit, by signer, at row) bool {
		recorded := at == rowDeclined || at == rowStands
		return recorded != (by == signerVouched || by == signerUnvouched) ||
			by == signerRecovered && fit == termsOK && at != rowUnread
	}
	for fitName, fit := range map[string]termsFit{"ok": termsOK, "bad": termsBad} {
		for byName, by := range signers {
			for atName, at := range rows {
				name := fmt.Sprint(fitName, " ", byName, " ", atName)
				if never(fit, by, at) {
					continue
				}
				if got := admissionOf(fit, by, at); got != want[name] || got == 0 {
					t.Errorf("%s: %d, want %d", name, got, want[name])
				}
				delete(want, name)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no combinations: %v", want)
	}
}

// Every combination of the facilitator's answer, earlier doubt and the chain's
// verdict, with the expected conclusion.
func TestConclusions(t *testing.T) {
	type to struct {
		event ledger.Event
		reply reply
	}
	settled, disproved := to{ledger.EventSettled, replyLookUp}, to{ledger.EventDisproved, replyRefused}
	refused, doubted := to{ledger.EventRefused, replyRefused}, to{ledger.EventRefused, replyUnsure}
	door, none := to{ledger.EventTurnedAway, replyFault}, to{ledger.EventNotSent, replyFault}
	unsure := to{ledger.EventUncertain, replyUnsure}
	past := to{ledger.EventNotSent, replyUnsure}
	// In the order: missing, paid, never paid, still open, cannot tell.
	asked := map[string][5]to{
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
	}
	unasked := map[string]to{
		"moved, no doubt": settled, "moved, doubt": settled, "no, no doubt": refused, "door, no doubt": door, "none, no doubt": none,
		"moved, sent": settled, "door, sent": door, "none, sent": none,
	}
	words := map[string]facilitatorWord{
		"moved": wordMoved, "no": wordRefused, "used": wordUsed, "late": wordExpired, "door": wordTurnedAway, "none": wordNotSent, "past": wordNotResent, "lost": wordUnknown,
	}
	for wordName, w := range words {
		for doubtName, d := range map[string]doubtful{"no doubt": noDoubt, "sent": sentBefore, "doubt": inDoubt} {
			name := wordName + ", " + doubtName
			if _, asks_ := asked[name]; asks(w, d) != asks_ {
				t.Errorf("%s: asks the chain %t, want %t", name, asks(w, d), asks_)
			}
			if !asks(w, d) {
				if c := conclusionOf(w, d, chainNotAsked); (to{c.event, c.reply}) != unasked[name] {
					t.Errorf("%s: %s, %d; want %v", name, c.event, c.reply, unasked[name])
				}
				continue
			}
			for i, s := range []chainAnswer{chainMissing, chainPaid, chainNeverPaid, chainStillOpen, chainCannotTell} {
				if c := conclusionOf(w, d, s); (to{c.event, c.reply}) != asked[name][i] {
					t.Errorf("%s, chain %d: %s, %d; want %v", name, s, c.event, c.reply, asked[name][i])
				}
			}
		}
	}
	// An attempt that is given up before anything is sent, in doubt or not.
	if c := conclusionOf(wordNotSent, inDoubt, chainNotAsked); (to{c.event, c.reply}) != none {
		t.Errorf("given up in doubt: %+v", c)
	}
}

// What charged can be with each code, written down independently of the tables
// that it is derived from.
func TestChargeOf(t *testing.T) {
	yes, no := charged(true), charged(false)
	any3 := Charge{No: true, Yes: true, Unknown: true}
	special := map[fault.Code]Charge{
		fault.PaymentInProgress:        {Yes: true, Unknown: true},
		fault.SettlementUncertain:      {Yes: true, Unknown: true},
		fault.FacilitatorUnavailable:   {No: true, Unknown: true},
		fault.FacilitatorMisconfigured: {No: true, Unknown: true},
		fault.FacilitatorUnauthorized:  {No: true, Unknown: true},
		fault.InternalError:            any3,
	}
	for _, info := range catalog.Codes() {
		want, ok := special[info.Code]
		switch {
		case ok:
		case info.Class == fault.Answer || info.Class == fault.Owed:
			want = Charge{Yes: true}
		default:
			want = any3
		}
		got := ChargeOf(info)
		if got != want {
			t.Errorf("%s: %+v, want %+v", info.Code, got, want)
		}
		if got.Allows(yes) != want.Yes || got.Allows(no) != want.No || got.Allows(nil) != want.Unknown {
			t.Errorf("%s: Allows does not follow %+v", info.Code, got)
		}
	}
	for c, want := range map[Charge]string{
		any3: "see body", {Yes: true}: "yes", {No: true}: "no", {Unknown: true, Yes: true}: "not known yet or yes", {No: true, Unknown: true}: "no or not known yet",
	} {
		if c.String() != want {
			t.Errorf("%+v is %q, want %q", c, c, want)
		}
	}
}
