package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/gameday"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// trouble is a lasting fault and the alarm that reports it.
type trouble struct {
	alarm  string
	metric string // a metric that reconcile sets in each run: 1 while all is well
	silent bool   // whether the fault is that reconcile completes no more runs
}

// TestTimes checks that the runbook states the shortest and the longest time until an alarm
// goes off. The test simulates how CloudWatch evaluates the alarm, with metrics that arrive at
// once or two minutes late. AWS does not document how many additional data points CloudWatch
// fetches. So the test tries the number in AWS's examples, and twice that number.
func TestTimes(t *testing.T) {
	t.Parallel()
	alarms, text := readAlarms(t), string(must(os.ReadFile("../RUNBOOK.md"))(t))
	for _, c := range []trouble{
		{alarm: "resolvers", metric: service.ReadyMetric(service.ProbeResolvers)},
		{alarm: "facilitator-faults", metric: service.ReadyMetric(service.ProbeFacilitator)},
		{alarm: "ledger-faults", metric: service.ReadyMetric(service.ProbeLedger)},
		{alarm: "chain", metric: service.ReadyMetric(service.ProbeChain)},
		{alarm: "reconcile-silent", metric: service.MetricReady, silent: true},
	} {
		at := slices.IndexFunc(alarms, func(a gameday.Alarm) bool { return strings.HasSuffix(a.Name, "-"+c.alarm) })
		if at < 0 {
			t.Fatalf("there is no alarm %s", c.alarm)
		}
		least, most := c.takes(t, alarms[at])
		says := fmt.Sprintf("%d to %d minutes", least, most)
		if least == most {
			says = fmt.Sprintf("%d minutes", least)
		}
		entry := regexp.MustCompile(`(?s)<a id="alarm-` + c.alarm + `"></a>\n(.*?)\n(?:<a id=|#)`).FindStringSubmatch(text)
		if len(entry) != 2 || !strings.Contains(strings.Join(strings.Fields(entry[1]), " "), says) {
			t.Errorf("%s goes off after %s; its entry in the runbook does not say so", c.alarm, says)
		}
	}
}

// takes returns the least and the greatest number of minutes until the alarm goes off. The
// minutes count from the first run of reconcile that finds the fault or, if reconcile stops,
// from its last run.
func (c trouble) takes(t *testing.T, a gameday.Alarm) (least, most int) {
	t.Helper()
	const well, minutes, every = 180, 400, 5
	metric := gameday.Metric{Namespace: service.Namespace(defaultStack), Name: c.metric}
	least = minutes
	for _, a.Extra = range []int{gameday.LeastExtra, 2 * gameday.LeastExtra} {
		for _, late := range []int{0, 2} {
			line := &gameday.Timeline{Late: late}
			since := well
			for minute := 0; minute < minutes; minute += every {
				at := time.Duration(minute) * time.Minute
				if minute <= well {
					line.Add(metric, at, 1)
				} else if !c.silent {
					since = well + every
					line.Add(metric, at, 0)
				}
			}
			first := slices.Index(a.Minutes(line, minutes), gameday.Firing) + 1
			if first <= since {
				t.Fatalf("%s goes off in minute %d, the trouble begins in minute %d", c.alarm, first, since)
			}
			least, most = min(least, first-since), max(most, first-since)
		}
	}
	return least, most
}
