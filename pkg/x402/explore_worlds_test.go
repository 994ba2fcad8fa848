package x402_test

import "time"

// exploredWorlds returns the worlds that TestExplore walks through. Each world varies only a few
// things, because a world that varied everything would have too many states.
func exploredWorlds() []explored {
	const (
		now, moment, leasePast, windowPast, slackPast, dayPast = 0, 2 * time.Second, 35 * time.Second, 70 * time.Second, 12 * time.Minute, 25 * time.Hour
	)
	base := explored{
		node: true, tokens: true, window: 45 * time.Second, auths: 2, atOnce: 1, replies: honestReplies(), works: []work{workAnswers},
		instants: []time.Duration{now, moment, leasePast, windowPast, slackPast, dayPast},
	}
	world := func(name string, change func(w *explored)) explored {
		w := base
		w.name = name
		change(&w)
		return w
	}
	return []explored{
		world("in turn", func(w *explored) {
			w.instants = []time.Duration{now, moment, leasePast, slackPast}
			w.budget = budget{requests: 3, freezes: 1, crashes: 1, silences: 1}
			w.nodeMayFail = true
		}),
		world("in turn, without a node", func(w *explored) {
			w.node = false
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = append(honestReplies(), lyingReplies()...)
			w.budget = budget{requests: 3, freezes: 1, crashes: 1, cancels: 1, lies: 1}
		}),
		world("at once", func(w *explored) {
			w.atOnce = 2
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, movesLater, saysRefused, saysUsed, saysExpired, neverReached}
			w.budget = budget{requests: 2, freezes: 1, crashes: 1}
		}),
		world("three at once", func(w *explored) {
			w.atOnce = 2
			w.instants = []time.Duration{now, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysRefused, saysExpired}
			w.budget = budget{requests: 3, freezes: 1}
		}),
		world("debts", func(w *explored) {
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.works = []work{workAnswers, workFails, workSilent, workOwes, workTooLarge, workRefuses}
			w.budget = budget{requests: 3, crashes: 1, refunds: 1}
		}),
		world("debts with a key", func(w *explored) {
			w.keyed = true
			w.instants = []time.Duration{now, moment, leasePast, dayPast, 50 * time.Hour}
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.works = []work{workAnswers, workFails, workSilent, workOwes, workTooLarge}
			w.budget = budget{requests: 2, crashes: 1, refunds: 1, attests: 1, reconciles: 1}
		}),
		world("in turn with a key", func(w *explored) {
			w.keyed = true
			w.instants = []time.Duration{now, moment, leasePast, slackPast}
			w.budget = budget{requests: 2, crashes: 1, freezes: 1, storeFaults: 1}
		}),
		world("reconcile", func(w *explored) {
			w.atOnce = 2
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.auths = 1
			w.replies = []facilitatorReply{saysMoved, movesLater, saysRefused, saysUsed, saysExpired}
			w.budget = budget{requests: 2, reconciles: 1, freezes: 1, crashes: 1}
		}),
		world("others", func(w *explored) {
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = append([]facilitatorReply{saysMoved, movesLater, saysRefused, saysUsed, saysExpired}, lyingReplies()...)
			w.nodeMayFail = true
			w.budget = budget{requests: 2, reconciles: 1, crashes: 1, lies: 1, thirds: 1, cancels: 1, silences: 1}
		}),
		world("a store that fails", func(w *explored) {
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, movesUnheard, saysRefused, saysUsed, saysExpired, neverReached}
			w.works = []work{workAnswers, workFails}
			w.budget = budget{requests: 3, storeFaults: 2}
		}),
		world("without tokens", func(w *explored) {
			w.tokens = false
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("two facilitators", func(w *explored) {
			w.twoFacilitators = true
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, movesUnheard, saysRefused, saysUsed, turnsAway, neverReached}
			w.budget = budget{requests: 2, crashes: 1}
		}),
		world("two prices", func(w *explored) {
			w.secondEndpoint = true
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.works = []work{workAnswers, workFails}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("two endpoints, without a node", func(w *explored) {
			w.secondEndpoint, w.onePrice, w.node = true, true, false
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("a check", func(w *explored) {
			w.checks = true
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.works = []work{workAnswers, workFails}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("a check, without a node", func(w *explored) {
			w.checks, w.node = true, false
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("two runs at most", func(w *explored) {
			w.mostRuns = 2
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.works = []work{workAnswers, workFails, workSilent}
			w.budget = budget{requests: 3, refunds: 1}
		}),
		world("no purchase", func(w *explored) {
			w.separate = true
			w.auths = 1
			w.instants = []time.Duration{now, leasePast, slackPast}
			w.budget = budget{requests: 3, crashes: 1, freezes: 1}
		}),
	}
}

// ruleWorld returns the world for TestExploreFindsOmittedRules, which changes the world a little
// for each rule. The world is small, but large enough that the violation can happen once the
// rule is omitted.
func ruleWorld() explored {
	return explored{
		name: "rules", node: true, tokens: true, window: 45 * time.Second, auths: 2, atOnce: 1,
		replies: []facilitatorReply{saysMoved, saysNothing, saysUsed, saysExpired}, works: []work{workAnswers, workFails, workSilent},
		instants: []time.Duration{0, 2 * time.Second, 25 * time.Hour}, budget: budget{requests: 2},
	}
}

// cheapWorlds is the number of worlds at the beginning of smallWorlds that take less than a
// second each.
const cheapWorlds = 4

// smallWorlds returns the worlds that TestExploreNoticesRows explores for each changed row. The
// worlds that take the least time come first.
func smallWorlds() []explored {
	const (
		now, moment, leasePast, windowPast, slackPast, dayPast = 0, 2 * time.Second, 35 * time.Second, 70 * time.Second, 12 * time.Minute, 25 * time.Hour
	)
	world := func(name string, change func(w *explored)) explored {
		w := explored{
			node: true, tokens: true, window: 45 * time.Second, auths: 2, atOnce: 1, replies: honestReplies(), works: []work{workAnswers, workFails},
			instants: []time.Duration{now, leasePast, slackPast}, budget: budget{requests: 2},
		}
		w.name = name
		change(&w)
		return w
	}
	return []explored{
		world("lies", func(w *explored) {
			w.nodeMayFail = true
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired, saysRefused, refusesAndMoves, refusesMoved}
			w.budget = budget{requests: 2, lies: 2, silences: 1, freezes: 1}
		}),
		world("refused, without a node", func(w *explored) {
			w.node = false
			w.instants = []time.Duration{now, slackPast}
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysExpired}
			w.budget = budget{requests: 3, crashes: 1}
		}),
		world("debts", func(w *explored) {
			w.instants = []time.Duration{now, moment, leasePast, windowPast, dayPast}
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.works = []work{workAnswers, workFails, workSilent, workOwes, workTooLarge}
			w.budget = budget{requests: 2, refunds: 1, attests: 1, crashes: 1}
		}),
		world("debts of a day with a key", func(w *explored) {
			w.keyed = true
			w.instants = []time.Duration{now, slackPast, 24*time.Hour + 5*time.Minute}
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.works = []work{workFails, workSilent, workTooLarge}
		}),
		world("a check", func(w *explored) {
			w.checks = true
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.works = []work{workAnswers}
		}),
		world("a check, without a node", func(w *explored) {
			w.checks, w.node = true, false
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, saysExpired}
			w.works = []work{workAnswers}
		}),
		world("one run", func(w *explored) {
			w.mostRuns = 1
			w.instants = []time.Duration{now, moment, dayPast}
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired}
			w.budget.refunds = 1
		}),
		world("two facilitators", func(w *explored) {
			w.twoFacilitators = true
			w.replies = []facilitatorReply{saysMoved, saysNothing, saysRefused, saysUsed, turnsAway, neverReached}
			w.budget = budget{requests: 2}
		}),
		world("reconcile", func(w *explored) {
			w.replies = []facilitatorReply{saysMoved, movesLater, saysRefused, saysUsed, saysExpired, refusesAndMoves}
			w.budget = budget{requests: 2, reconciles: 1, crashes: 1, lies: 1}
		}),
		world("others", func(w *explored) {
			w.replies = []facilitatorReply{saysMoved, saysUsed, saysExpired, neverReached}
			w.budget = budget{requests: 2, reconciles: 1, thirds: 1, crashes: 1}
		}),
		world("in turn, without a node", func(w *explored) {
			w.node = false
			w.replies = append(honestReplies(), refusesAndMoves)
			w.budget.cancels, w.budget.lies, w.budget.freezes = 1, 1, 1
		}),
		world("at once", func(w *explored) {
			w.atOnce = 2
			w.instants = []time.Duration{now, leasePast}
			w.replies = []facilitatorReply{saysMoved, movesLater, saysRefused, saysUsed}
			w.budget.freezes = 1
		}),
		world("in turn", func(w *explored) {
			w.budget.crashes, w.budget.silences, w.nodeMayFail, w.budget.cancels = 1, 1, true, 1
		}),
	}
}
