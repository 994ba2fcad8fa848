package clients

import "testing"

// tabVisits are what the tabs of a browser know of each other.
func tabVisits(*testing.T) []visit {
	args := func(pairs ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return m
	}
	overloaded := fails(503, 0, "overloaded", "false", true)
	const day, month = 24, 31 * 24 // hours
	const before = 1.0 / 6         // a slow machine is faster than that
	signedFor, paidFor := "You have signed for this address", "You have paid for this address"
	unpaid := visit{name: "unpaid for certain, and a day later", script: "aged", path: wwwPath, signatures: 1, plan: []step{overloaded}}
	unpaid.args = args("comes", "Not charged yet (overloaded)", "offers", signedFor, "until", 1, "from", day)
	refused := pays("refused in one tab, another at the wallet", "refusedElsewhere", wwwPath, 2).with(nil, stripped)
	refused.several, refused.questions = true, 2 // one in each tab
	anew := pays("forgotten in one tab and paid anew, answered in another", "paidAnewMeanwhile", wwwPath, 3).with(args("hears", true), cutAfter)
	anew.several, anew.questions = true, 2
	deaf := anew.with(args("hears", false), cutAfter)
	deaf.name += ", which does not hear of it"
	return []visit{
		pays("closed in doubt, opened in another tab", "closed", wwwPath, 2).with(args("sending", false, "browser", false), cutAfter),
		pays("closed in doubt, opened in another browser run", "closed", wwwPath, 2).with(args("sending", false, "browser", true), cutAfter),
		pays("closed in doubt and not paid, opened in another tab", "closed", wwwPath, 2).with(args("sending", false, "browser", false), cutBefore),
		pays("closed while sending, opened in another tab", "closed", wwwPath, 1).with(args("sending", true, "browser", false)),
		pays("answered, and a day later", "aged", wwwPath, 1).with(args("comes", "", "offers", paidFor, "until", day-before, "from", day)),
		pays("in doubt, and a month later", "aged", wwwPath, 1).
			with(args("comes", "The connection was lost", "offers", signedFor, "until", month-before, "from", month), cutAfter),
		pays("in doubt, answered days later", "answeredLate", wwwPath, 2).with(args("replayed", false), cutBefore),
		pays("in doubt, replayed days later", "answeredLate", wwwPath, 2).with(args("replayed", true), cutAfter),
		unpaid,
		pays("two tabs at the sign button", "twoAtTheButton", wwwPath, 2).with(args("asked", false)),
		pays("two tabs, one of them at the wallet", "twoAtTheButton", wwwPath, 2).with(args("asked", true)),
		pays("forgotten in one tab", "forgotten", wwwPath, 1).with(args("storage", "on"), cutAfter),
		pays("forgotten in one tab, storage off", "forgotten", wwwPath, 1).with(args("storage", "off"), cutAfter),
		pays("forgotten in one tab, storage full", "forgotten", wwwPath, 1).with(args("storage", "full"), cutAfter),
		pays("forgotten in one tab, answered in another", "forgottenMeanwhile", wwwPath, 2),
		anew, deaf,
		pays("answered in one tab, lost in another", "answeredElsewhere", wwwPath, 2).with(nil, pass, cutBefore),
		pays("lost in one tab, overloaded in another", "doubtElsewhere", wwwPath, 3).with(nil, cutAfter, overloaded),
		refused,
		pays("no storage at all, two tabs", "noStorageAtAll", wwwPath, 2).with(nil, cutAfter),
		pays("hostile storage", "hostileStorage", wwwPath, 2).with(nil, cutAfter),
		pays("many addresses in doubt", "otherAddresses", wwwPath, 1).with(nil, cutAfter),
	}
}
