package x402_test

import "time"

// exploredWorlds returns the worlds that TestExplore walks through. Each world varies only a few
// things, because a world that varied everything would have too many states.
func exploredWorlds() []exploredWorld {
	const (
		now, moment, leasePast, windowPast, slackPast, dayPast = 0, 2 * time.Second, 35 * time.Second, 70 * time.Second, 12 * time.Minute, 25 * time.Hour
	)
	base := exploredWorld{
		hasNode: true, echoesTokens: true, window: 45 * time.Second, authCount: 2, maxProcesses: 1, replies: honestReplies(), workEnds: []workEnd{workAnswers},
		instants: []time.Duration{now, moment, leasePast, windowPast, slackPast, dayPast},
	}
	world := func(name string, change func(w *exploredWorld)) exploredWorld {
		w := base
		w.name = name
		change(&w)
		return w
	}
	return []exploredWorld{
		world("in turn", func(w *exploredWorld) {
			w.instants = []time.Duration{now, moment, leasePast, slackPast}
			w.budget = budget{requests: 3, freezes: 1, crashes: 1, nodeFailures: 1}
			w.nodeMayFail = true
		}),
		world("in turn, without a node", func(w *exploredWorld) {
			w.hasNode = false
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = append(honestReplies(), lyingReplies()...)
			w.budget = budget{requests: 3, freezes: 1, crashes: 1, cancellations: 1, falseReplies: 1}
		}),
		world("at once", func(w *exploredWorld) {
			w.maxProcesses = 2
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, movesLater, saysRefused, saysUsed, saysExpired, neverReached}
			w.budget = budget{requests: 2, freezes: 1, crashes: 1}
		}),
		world("three at once", func(w *exploredWorld) {
			w.maxProcesses = 2
			w.instants = []time.Duration{now, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysRefused, saysExpired}
			w.budget = budget{requests: 3, freezes: 1}
		}),
		world("debts", func(w *exploredWorld) {
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.workEnds = []workEnd{workAnswers, workFails, workSilent, workOwes, workTooLarge, workRefuses}
			w.budget = budget{requests: 3, crashes: 1, refunds: 1}
		}),
		world("debts with a key", func(w *exploredWorld) {
			w.hasKey = true
			w.instants = []time.Duration{now, moment, leasePast, dayPast, 50 * time.Hour}
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.workEnds = []workEnd{workAnswers, workFails, workSilent, workOwes, workTooLarge}
			w.budget = budget{requests: 2, crashes: 1, refunds: 1, attestations: 1, reconcilerRuns: 1}
		}),
		world("in turn with a key", func(w *exploredWorld) {
			w.hasKey = true
			w.instants = []time.Duration{now, moment, leasePast, slackPast}
			w.budget = budget{requests: 2, crashes: 1, freezes: 1, storeFaults: 1}
		}),
		world("reconcile", func(w *exploredWorld) {
			w.maxProcesses = 2
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.authCount = 1
			w.replies = []facilitatorReply{saysMoved, movesLater, saysRefused, saysUsed, saysExpired}
			w.budget = budget{requests: 2, reconcilerRuns: 1, freezes: 1, crashes: 1}
		}),
		world("others", func(w *exploredWorld) {
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = append([]facilitatorReply{saysMoved, movesLater, saysRefused, saysUsed, saysExpired}, lyingReplies()...)
			w.nodeMayFail = true
			w.budget = budget{requests: 2, reconcilerRuns: 1, crashes: 1, falseReplies: 1, strangerSubmissions: 1, cancellations: 1, nodeFailures: 1}
		}),
		world("a store that fails", func(w *exploredWorld) {
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, movesUnheard, saysRefused, saysUsed, saysExpired, neverReached}
			w.workEnds = []workEnd{workAnswers, workFails}
			w.budget = budget{requests: 3, storeFaults: 2}
		}),
		world("without tokens", func(w *exploredWorld) {
			w.echoesTokens = false
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("two facilitators", func(w *exploredWorld) {
			w.twoFacilitators = true
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, movesUnheard, saysRefused, saysUsed, turnsAway, neverReached}
			w.budget = budget{requests: 2, crashes: 1}
		}),
		world("two prices", func(w *exploredWorld) {
			w.hasSecondEndpoint = true
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.workEnds = []workEnd{workAnswers, workFails}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("two endpoints, without a node", func(w *exploredWorld) {
			w.hasSecondEndpoint, w.onePrice, w.hasNode = true, true, false
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("a check", func(w *exploredWorld) {
			w.hasCheck = true
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.workEnds = []workEnd{workAnswers, workFails}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("a check, without a node", func(w *exploredWorld) {
			w.hasCheck, w.hasNode = true, false
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("two runs at most", func(w *exploredWorld) {
			w.mostRuns = 2
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.workEnds = []workEnd{workAnswers, workFails, workSilent}
			w.budget = budget{requests: 3, refunds: 1}
		}),
		world("no purchase", func(w *exploredWorld) {
			w.separatePurchases = true
			w.authCount = 1
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.budget = budget{requests: 3, crashes: 1, freezes: 1}
		}),
	}
}

// ruleWorld returns the world for TestExploreFindsOmittedRules, which changes the world a little
// for each rule. The world is small, but large enough that the violation can happen once the
// rule is omitted.
func ruleWorld() exploredWorld {
	return exploredWorld{
		name: "rules", hasNode: true, echoesTokens: true, window: 45 * time.Second, authCount: 2, maxProcesses: 1,
		replies: []facilitatorReply{saysMoved, saysNothing, saysUsed, saysExpired}, workEnds: []workEnd{workAnswers, workFails, workSilent},
		instants: []time.Duration{0, 2 * time.Second, 25 * time.Hour}, budget: budget{requests: 2},
	}
}

// cheapWorldCount is the number of worlds at the beginning of smallWorlds that take less than a
// second each.
const cheapWorldCount = 4

// smallWorlds returns the worlds that TestExploreNoticesRows explores for each changed row. The
// worlds that take the least time come first.
func smallWorlds() []exploredWorld {
	const (
		now, moment, leasePast, windowPast, slackPast, dayPast = 0, 2 * time.Second, 35 * time.Second, 70 * time.Second, 12 * time.Minute, 25 * time.Hour
	)
	world := func(name string, change func(w *exploredWorld)) exploredWorld {
		w := exploredWorld{
			hasNode: true, echoesTokens: true, window: 45 * time.Second, authCount: 2, maxProcesses: 1, replies: honestReplies(), workEnds: []workEnd{workAnswers, workFails},
			instants: []time.Duration{now, leasePast, slackPast}, budget: budget{requests: 2},
		}
		w.name = name
		change(&w)
		return w
	}
	return []exploredWorld{
		world("lies", func(w *exploredWorld) {
			w.nodeMayFail = true
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired, saysRefused, refusesAndMoves, refusesMoved}
			w.budget = budget{requests: 2, falseReplies: 2, nodeFailures: 1, freezes: 1}
		}),
		world("refused, without a node", func(w *exploredWorld) {
			w.hasNode = false
			w.instants = []time.Duration{now, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysExpired}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("debts", func(w *exploredWorld) {
			w.instants = []time.Duration{now, moment, leasePast, windowPast, dayPast}
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.workEnds = []workEnd{workAnswers, workFails, workSilent, workOwes, workTooLarge}
			w.budget = budget{requests: 2, refunds: 1, attestations: 1, crashes: 1}
		}),
		world("debts of a day with a key", func(w *exploredWorld) {
			w.hasKey = true
			w.instants = []time.Duration{now, slackPast, 24*time.Hour + 5*time.Minute}
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.workEnds = []workEnd{workFails, workSilent, workTooLarge}
		}),
		world("a check", func(w *exploredWorld) {
			w.hasCheck = true
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.workEnds = []workEnd{workAnswers}
		}),
		world("a check, without a node", func(w *exploredWorld) {
			w.hasCheck, w.hasNode = true, false
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.workEnds = []workEnd{workAnswers}
		}),
		world("one run", func(w *exploredWorld) {
			w.mostRuns = 1
			w.instants = []time.Duration{now, moment, dayPast}
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.budget.refunds = 1
		}),
		world("two facilitators", func(w *exploredWorld) {
			w.twoFacilitators = true
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, turnsAway, neverReached}
			w.budget = budget{requests: 2}
		}),
		world("reconcile", func(w *exploredWorld) {
			w.replies = []facilitatorReply{saysMoved, movesLater, saysRefused, saysUsed, saysExpired, refusesAndMoves}
			w.budget = budget{requests: 2, reconcilerRuns: 1, crashes: 1, falseReplies: 1}
		}),
		world("others", func(w *exploredWorld) {
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired, neverReached}
			w.budget = budget{requests: 2, reconcilerRuns: 1, strangerSubmissions: 1, crashes: 1}
		}),
		world("in turn, without a node", func(w *exploredWorld) {
			w.hasNode = false
			w.replies = append(honestReplies(), refusesAndMoves)
			w.budget.cancellations, w.budget.falseReplies, w.budget.freezes = 1, 1, 1
		}),
		world("at once", func(w *exploredWorld) {
			w.maxProcesses = 2
			w.instants = []time.Duration{now, leasePast}
			w.replies = []facilitatorReply{saysMoved, movesLater, saysRefused, saysUsed}
			w.budget.freezes = 1
		}),
		world("in turn", func(w *exploredWorld) {
			w.budget.crashes, w.budget.nodeFailures, w.nodeMayFail, w.budget.cancellations = 1, 1, true, 1
		}),
	}
}
