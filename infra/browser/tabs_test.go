package browser

import "testing"

// tabScenarios are what the tabs of a browser know of each other.
func tabScenarios() []scenario {
	args := func(pairs ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return m
	}
	overloaded := fails(503, 0, "overloaded", "The concurrency cap is reached.", "false", true)
	const day, month = 24, 31 * 24 // hours
	const before = 1.0 / 6         // a slow machine is faster than that
	signedFor, paidFor := "You have signed for this address", "You have paid for this address"
	unpaid := scenario{name: "unpaid for certain, and a day later", script: "aged", path: wwwPath, signatures: 1, steps: []step{overloaded}}
	unpaid.args = args("comes", "Not charged yet (overloaded)", "offers", signedFor, "until", 1, "from", day)
	refused := paysOnce("refused in one tab, another at the wallet", "refusedElsewhere", wwwPath, 2).with(nil, stripped)
	refused.several, refused.questions = true, 2 // one in each tab
	anew := paysOnce("forgotten in one tab and paid anew, answered in another", "paidAnewMeanwhile", wwwPath, 3).with(args("hears", true), cutAfter)
	anew.several, anew.questions = true, 2
	deaf := anew.with(args("hears", false), cutAfter)
	deaf.name += ", which does not hear of it"
	return []scenario{
		paysOnce("closed in doubt, opened in another tab", "closed", wwwPath, 2).with(args("sending", false, "browser", false), cutAfter),
		paysOnce("closed in doubt, opened in another browser run", "closed", wwwPath, 2).with(args("sending", false, "browser", true), cutAfter),
		paysOnce("closed in doubt and not paid, opened in another tab", "closed", wwwPath, 2).with(args("sending", false, "browser", false), cutBefore),
		paysOnce("closed while sending, opened in another tab", "closed", wwwPath, 1).with(args("sending", true, "browser", false)),
		paysOnce("answered, and a day later", "aged", wwwPath, 1).with(args("comes", "", "offers", paidFor, "until", day-before, "from", day)),
		paysOnce("in doubt, and a month later", "aged", wwwPath, 1).
			with(args("comes", "The connection was lost", "offers", signedFor, "until", month-before, "from", month), cutAfter),
		paysOnce("in doubt, answered days later", "answeredLate", wwwPath, 2).with(args("replayed", false), cutBefore),
		paysOnce("in doubt, replayed days later", "answeredLate", wwwPath, 2).with(args("replayed", true), cutAfter),
		unpaid,
		paysOnce("two tabs at the sign button", "twoAtTheButton", wwwPath, 2).with(args("asked", false)),
		paysOnce("two tabs, one of them at the wallet", "twoAtTheButton", wwwPath, 2).with(args("asked", true)),
		paysOnce("forgotten in one tab", "forgotten", wwwPath, 1).with(args("storage", "on"), cutAfter),
		paysOnce("forgotten in one tab, storage off", "forgotten", wwwPath, 1).with(args("storage", "off"), cutAfter),
		paysOnce("forgotten in one tab, storage full", "forgotten", wwwPath, 1).with(args("storage", "full"), cutAfter),
		paysOnce("forgotten in one tab, answered in another", "forgottenMeanwhile", wwwPath, 2),
		anew, deaf,
		paysOnce("answered in one tab, lost in another", "answeredElsewhere", wwwPath, 2).with(nil, pass, cutBefore),
		paysOnce("lost in one tab, overloaded in another", "doubtElsewhere", wwwPath, 3).with(nil, cutAfter, overloaded),
		refused,
		paysOnce("no storage at all, two tabs", "noStorageAtAll", wwwPath, 2).with(nil, cutAfter),
		paysOnce("hostile storage", "hostileStorage", wwwPath, 2).with(nil, cutAfter),
		paysOnce("many addresses in doubt", "otherAddresses", wwwPath, 1).with(nil, cutAfter),
	}
}

func TestTabs(t *testing.T) { playAll(t, tabScenarios()) }
