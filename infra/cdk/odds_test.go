package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/gameday"
	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// release simulates a new release, which replaces an older one while payments go on.
type release struct {
	rate     float64                  // payments a minute
	ordinary float64                  // the share of payments that fail, whichever release gets them
	breaks   float64                  // of all other payments, the share that the new versions break
	garbage  float64                  // requests a minute that both releases refuse; a stranger signs each with a new key
	refuses  bool                     // whether the new versions refuse the payments that they break; otherwise these payments fail
	first    bool                     // whether there is no older release
	shares   func(minute int) float64 // the share of the payments that the new versions get; minutes count from the start of the canary
	// payers is the number of payers who send the requests that the new versions do not
	// answer. If payers is 0, each of these requests comes from another payer.
	payers int
}

// The lengths of the two parts of a simulation, in minutes. In the first part, the old release
// serves alone. In the second part, the canary, the new versions get a share of the requests.
const before, lasts = 10, 10

// canary returns the share of the requests that the new versions get in a minute of a canary:
// always a tenth.
func canary(int) float64 { return 0.1 }

// linear returns the share of the requests that the new versions get in a minute of a linear
// release: a tenth in the first minute, and a tenth more in each further minute.
func linear(minute int) float64 { return float64(minute+1) / 10 }

// judge is the alarm that compares a new release with the older one. The keys of metrics are
// the ids in the alarm's expression.
type judge struct {
	gameday.Alarm
	metrics map[string]gameday.Metric
}

func releaseJudge(t *testing.T) judge {
	t.Helper()
	alarms := readAlarms(t)
	at := slices.IndexFunc(alarms, func(a gameday.Alarm) bool { return strings.HasSuffix(a.Name, "-release-faults") })
	if at < 0 {
		t.Fatal("there is no alarm release-faults")
	}
	metrics := map[string]gameday.Metric{}
	for _, q := range alarms[at].Queries {
		metrics[q.ID] = q.Metric
	}
	return judge{alarms[at], metrics}
}

// play simulates the release and returns the data for CloudWatch. CloudWatch has the data of a
// minute only two minutes after that minute has ended.
func (r release) play(random *rand.Rand, metrics map[string]gameday.Metric) *gameday.Timeline {
	line := &gameday.Timeline{Late: 2}
	for minute := range before + lasts {
		share := 0.0
		if minute >= before {
			share = r.shares(minute - before)
		} else if r.first {
			continue
		}
		at := time.Duration(minute) * time.Minute
		add := func(id string, value float64) {
			if value > 0 {
				line.Add(metrics[id], at, value)
			}
		}
		unanswered := func(n int) {
			for range n {
				number := random.Intn(1 << 24)
				if r.payers > 0 {
					number = 1000 * random.Intn(r.payers)
				}
				line.Add(metrics["least"], at, float64(number))
			}
		}
		fresh, former := poisson(random, r.rate*share), poisson(random, r.rate*(1-share))
		failed := binomial(random, fresh, r.ordinary)
		broken := binomial(random, fresh-failed, r.breaks)
		formerFailed := binomial(random, former, r.ordinary)
		strange, formerStrange := poisson(random, r.garbage*share), poisson(random, r.garbage*(1-share))
		refused := strange
		if r.refuses {
			refused += broken
		} else {
			failed += broken
		}
		add("new", float64(fresh+strange))
		add("all", float64(fresh+former+strange+formerStrange))
		add("broken", float64(failed))
		add("faults", float64(failed+formerFailed))
		add("refusals", float64(refused+formerStrange))
		unanswered(failed + refused)
	}
	return line
}

func poisson(random *rand.Rand, mean float64) (n int) {
	const most = 500 // a larger mean is split into parts; for the whole mean, the product below would underflow
	for ; mean > most; mean -= most {
		n += poisson(random, most)
	}
	for product := random.Float64(); product > math.Exp(-mean); product *= random.Float64() {
		n++
	}
	return n
}

func binomial(random *rand.Rand, of int, part float64) (n int) {
	for range of {
		if random.Float64() < part {
			n++
		}
	}
	return n
}

// rollbackPercentage simulates a release several times, and returns the percentage of the
// simulations in which the release is rolled back before the canary ends.
func (j judge) rollbackPercentage(r release, times int) float64 {
	random, back := rand.New(rand.NewSource(51)), 0 //nolint:gosec // every run must have the same numbers
	for range times {
		if slices.Contains(j.Minutes(r.play(random, j.metrics), before+lasts), gameday.Firing) {
			back++
		}
	}
	return 100 * float64(back) / float64(times)
}

// TestReleaseOdds simulates releases, and checks how many of 100 are rolled back. A good
// release is one in which a payment fails no more often than before. Of 100 good releases, at
// most one may be rolled back. This limit applies at each tested rate of payments, to canary
// and linear releases, and while a stranger sends requests that are refused. Of 100 releases
// that break a third of the payments at 60 payments a minute, or a tenth of them at 600, at
// least 95 must be rolled back. Of 100 releases that break all payments at 10 payments a
// minute, at least 90 must be rolled back. The runbook has the same figures.
func TestReleaseOdds(t *testing.T) {
	t.Parallel()
	const times = 400
	j := releaseJudge(t)
	type row struct {
		release
		least, most float64
	}
	var rows []row
	for _, ordinary := range []float64{0.01, 0.02} {
		for _, rate := range []float64{2, 10, 60, 200, 600} {
			rows = append(rows, row{release{rate: rate, ordinary: ordinary, shares: canary}, 0, 1})
		}
		for _, rate := range []float64{10, 200} {
			rows = append(rows, row{release{rate: rate, ordinary: ordinary, garbage: 60, shares: canary}, 0, 1},
				row{release{rate: rate, ordinary: ordinary, shares: linear}, 0, 1})
		}
		for _, refuses := range []bool{false, true} {
			rows = append(rows,
				row{release{rate: 60, ordinary: ordinary, breaks: 1.0 / 3, refuses: refuses, shares: canary}, 95, 100},
				row{release{rate: 600, ordinary: ordinary, breaks: 0.1, refuses: refuses, shares: canary}, 95, 100},
				row{release{rate: 10, ordinary: ordinary, breaks: 1, refuses: refuses, shares: canary}, 90, 100},
			)
		}
	}
	for _, c := range rows {
		name := fmt.Sprintf("%v a minute, %v fail, %v broken, %v of a stranger, refused %v, linear %v", c.rate, c.ordinary, c.breaks, c.garbage, c.refuses, c.shares(5) > 0.1)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := j.rollbackPercentage(c.release, times)
			t.Logf("%.1f %% are moved back", got)
			if got < c.least || got > c.most {
				t.Errorf("%.1f %% are moved back, want %v to %v", got, c.least, c.most)
			}
		})
	}
}

// TestReleaseIsCompared checks that a release is rolled back if it breaks the payments of
// several payers. It must not be rolled back if the older release has the same faults, if only
// one or two payers meet its faults, or if there is no older release.
func TestReleaseIsCompared(t *testing.T) {
	t.Parallel()
	all := func(int) float64 { return 1 }
	j := releaseJudge(t)
	for name, c := range map[string]struct {
		release
		back float64
	}{
		"the facilitator is down for everybody":      {release{rate: 60, ordinary: 1, shares: canary}, 0},
		"the release is broken":                      {release{rate: 60, breaks: 1, shares: canary}, 100},
		"the release refuses what others sell":       {release{rate: 60, breaks: 1, refuses: true, shares: canary}, 100},
		"one payer meets a bug of the release":       {release{rate: 60, breaks: 1, payers: 1, shares: canary}, 0},
		"two payers meet one":                        {release{rate: 60, breaks: 1, payers: 2, shares: canary}, 0},
		"a few payers meet one":                      {release{rate: 60, breaks: 1, payers: 4, shares: canary}, 100},
		"the first deployment is broken":             {release{rate: 60, breaks: 1, shares: all, first: true}, 0},
		"a stranger alone, with a key for each":      {release{garbage: 300, shares: canary}, 0},
		"a stranger while everything else is broken": {release{rate: 60, breaks: 1, garbage: 60, shares: canary}, 100},
	} {
		if got := j.rollbackPercentage(c.release, 50); got != c.back {
			t.Errorf("%s: %v %% are moved back, want %v", name, got, c.back)
		}
	}
}

// TestCrashes checks that three crashes of new versions, each in a different function, roll the
// release back, and that two crashes do not.
func TestCrashes(t *testing.T) {
	t.Parallel()
	alarms := readAlarms(t)
	at := slices.IndexFunc(alarms, func(a gameday.Alarm) bool { return strings.HasSuffix(a.Name, "-release-crashes") })
	if at < 0 {
		t.Fatal("there is no alarm release-crashes")
	}
	for crashes, want := range map[int]bool{2: false, 3: true} {
		line := &gameday.Timeline{Late: 2}
		for i := range crashes {
			line.Add(alarms[at].Queries[i%3].Metric, before*time.Minute+time.Duration(i)*time.Minute, 1)
		}
		if got := slices.Contains(alarms[at].Minutes(line, before+lasts), gameday.Firing); got != want {
			t.Errorf("%d crashes: it is moved back %v", crashes, got)
		}
	}
}

// TestGuards checks the alarms that roll a release back. These are the alarms that notify
// nobody, and a deployment must watch all of them. Each must evaluate one period of five
// minutes, which fits into a canary. The default of the parameter Release must be a canary
// that takes as many minutes as the simulated canary.
func TestGuards(t *testing.T) {
	t.Parallel()
	guards := slices.DeleteFunc(readAlarms(t), func(a gameday.Alarm) bool { return len(a.Tells) > 0 })
	release := template(t).Parameters["Release"]
	m := regexp.MustCompile(`^Canary10Percent(\d+)Minutes$`).FindStringSubmatch(*release.Default)
	if m == nil || must(strconv.Atoi(m[1]))(t) != lasts || len(guards) != len(releaseAlarms(t)) {
		t.Errorf("%s is guarded by %d alarms", *release.Default, len(guards))
	}
	for _, a := range guards {
		if a.Period != minutes5 || a.Periods != 1 {
			t.Errorf("%s looks at %d periods of %d s", a.Name, a.Periods, a.Period)
		}
	}
}

// TestNewest checks which log lines count in the metrics of the alarm release-faults. The lines
// of each selling function's newest version must count. The lines of other versions must not.
func TestNewest(t *testing.T) {
	t.Parallel()
	doc := must(json.Marshal(exampleTemplate(t)))(t)
	filters := must(gameday.ReadFilters(doc, defaultStack))(t)
	metrics := releaseJudge(t).metrics
	counted := func(line string) map[gameday.Metric]float64 {
		found := map[gameday.Metric]float64{}
		for _, f := range filters {
			if value, yes := f.Finds([]byte(line)); yes && f.LogGroup == idFunctionsLog {
				found[f.Metric] += value
			}
		}
		return found
	}
	sells := []string{sam.MCP}
	for _, o := range catalog.All() {
		sells = append(sells, o.Slug)
	}
	for _, slug := range sells {
		name := sam.LogicalID(slug)
		for line, want := range linesOf(name, name+".Version.Version", metrics) {
			if d := cmp.Diff(want, counted(line)); d != "" {
				t.Errorf("%s (-want +got):\n%s", line, d)
			}
		}
		for line := range linesOf(name, "6", metrics) {
			if found := counted(line); len(found) > 0 {
				t.Errorf("%s is counted: %v", line, found)
			}
		}
	}
}

// linesOf returns log lines of a version of a function, each with the values that the line
// adds to the metrics if the version is the newest.
func linesOf(function, version string, metrics map[string]gameday.Metric) map[string]map[gameday.Metric]float64 {
	const payer = 4711
	answered := fmt.Sprintf(`{"%s":1,"%s":"%s:%s"`, service.MetricJudged, service.MemberRelease, function, version)
	broken := fmt.Sprintf(`%s,"%s":1,"%s":%d}`, answered, service.MetricBroken, service.MemberUnanswered, payer)
	refused := fmt.Sprintf(`%s,"%s":1,"%s":%d}`, answered, service.MetricRefused, service.MemberUnanswered, payer)
	return map[string]map[gameday.Metric]float64{
		answered + "}": {metrics["new"]: 1},
		broken:         {metrics["new"]: 1, metrics["broken"]: 1, metrics["least"]: payer},
		refused:        {metrics["new"]: 1, metrics["least"]: payer},
	}
}
