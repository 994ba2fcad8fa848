package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/gameday"
	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

var version = regexp.MustCompile(`^(\w+Function)Version[0-9a-f]{10}$`)

// versions are the logical ids of the versions, by function.
func versions(d document) map[string]string {
	found := map[string]string{}
	for _, id := range ofType(d, "AWS::Lambda::Version") {
		if m := version.FindStringSubmatch(id); m != nil {
			found[m[1]] = id
		}
	}
	return found
}

// TestWhatPublishes: SAM has a version published when code or a property changes. For the
// values of parameters see TestEveryParameterTakesEffect.
func TestWhatPublishes(t *testing.T) {
	t.Parallel()
	before := versions(transformed(t, templatePath, payTo))
	if len(before) != len(functionSlugs()) {
		t.Fatalf("%d versions of %d functions", len(before), len(functionSlugs()))
	}
	for what, c := range map[string]struct {
		path string
		want bool
	}{
		"a property": {changed(t, templatePath, "MemorySize: 512", "MemorySize: 1024"), true},
		"the code":   {changed(t, templatePath, "CodeUri: functions/dns", "CodeUri: {Bucket: bucket, Key: another}"), true},
		"nothing":    {templatePath, false},
	} {
		after := versions(transformed(t, c.path, payTo))
		if got := after["DnsFunction"] != before["DnsFunction"]; got != c.want {
			t.Errorf("%s is changed: a version is published: %v, want %v", what, got, c.want)
		}
	}
}

// canary is a release while a tenth of the requests go to its versions: the values of
// metrics with when they were written, from the minute on in which it began.
type canary map[gameday.Metric][]sample

type sample struct {
	at    time.Duration
	value float64
}

// Values implements gameday.Source with periods of a minute.
func (c canary) Values(m gameday.Metric, minute int) (values []float64) {
	for _, s := range c[m] {
		if int(s.at/time.Minute) == minute {
			values = append(values, s.value)
		}
	}
	return values
}

// of adds a value of the newest version of a function.
func (c canary) of(slug, name string, at time.Duration, value float64) {
	m := gameday.Metric{Namespace: service.Namespace(defaultStack), Name: name}
	resource := ""
	if name == "Errors" {
		m.Namespace, resource = "AWS/Lambda", "Resource=${"+sam.LogicalID(slug)+"}:"+alias+";"
	}
	m.Of = fmt.Sprintf("FunctionName=%[1]s;%[2]sExecutedVersion=%[1]s.Version.Version;", sam.LogicalID(slug), resource)
	c[m] = append(c[m], sample{at, value})
}

// rolledBack is how long after it began a release is rolled back. CloudWatch has the
// values of a minute some time after its end.
func (c canary) rolledBack(guards []gameday.Alarm, begun, late time.Duration) (after time.Duration, yes bool) {
	const minutes = 30
	first := minutes
	for _, a := range guards {
		if at := slices.Index(a.History(c, minutes), gameday.Firing); at >= 0 {
			first = min(first, at)
		}
	}
	return time.Duration(first+1)*time.Minute + late - begun, first < minutes
}

// The weights of a payment in the metric of a version, which pkg/service tests.
const failed, answered, notReady = 1, -0.05, 1000

// TestRollback: a release that breaks payment is rolled back before its canary ends, at
// every phase of the minute and of reconcile, with metrics that come two minutes late,
// whatever is sold: by the first of its payments, or by reconcile, which comes every five
// minutes. Below 1.5 payments a minute its versions get none in time, and what reconcile
// does not see stays unseen. One that works is not, though one payment in a thousand
// fails.
func TestRollback(t *testing.T) {
	t.Parallel()
	guards := slices.DeleteFunc(readAlarms(t), func(a gameday.Alarm) bool { return len(a.Tells) > 0 })
	release := template(t).Parameters["Release"]
	m := regexp.MustCompile(`^Canary10Percent(\d+)Minutes$`).FindStringSubmatch(*release.Default)
	if m == nil || len(guards) != len(releaseAlarms(t)) { // with periods of a minute, see testdata/transformed.json
		t.Fatalf("%s is guarded by %v", *release.Default, guards)
	}
	lasts := time.Duration(must(strconv.Atoi(m[1]))(t)) * time.Minute
	worst := map[string]time.Duration{}
	for _, rate := range []float64{0.5, 2, 10, 60, 600} { // payments a minute
		for _, breaks := range []string{"a facilitator that is lost", "payment alone", "a process", "one of ten operations", "nothing"} {
			if rate < 1.5 && breaks != "a facilitator that is lost" && breaks != "nothing" || rate < 60 && breaks == "one of ten operations" {
				continue
			}
			worst[breaks] = max(worst[breaks], latest(t, guards, breaks, rate, lasts))
		}
	}
	delete(worst, "nothing")
	t.Log("rolled back at the latest after ", worst)
}

// latest sells with a release in which something breaks, begun at any second of a minute, and
// returns how long it takes at most until it is rolled back.
func latest(t *testing.T, guards []gameday.Alarm, breaks string, rate float64, lasts time.Duration) time.Duration {
	t.Helper()
	const late = 2 * time.Minute
	worst := time.Duration(0)
	for begun := time.Duration(0); begun < time.Minute; begun += 10 * time.Second {
		for run := begun; run < begun+5*time.Minute; run += 30 * time.Second {
			after, yes := sold(breaks, rate, begun, run, lasts).rolledBack(guards, begun, late)
			worst = max(worst, after)
			if yes != (breaks != "nothing") || yes && after >= lasts {
				t.Fatalf("%v a minute, %s breaks %v after the minute, reconcile %v: rolled back %v, after %v of %v", rate, breaks, begun, run, yes, after, lasts)
			}
		}
	}
	return worst
}

// sold is what the metrics say of a canary that breaks something, at a rate of payments a
// minute and with the first run of reconcile at a time.
func sold(breaks string, rate float64, begun, run, lasts time.Duration) canary {
	c := canary{}
	for i, every := 1, time.Duration(float64(10*time.Minute)/rate); time.Duration(i)*every < lasts; i++ {
		at, slug := begun+time.Duration(i)*every, functionSlugs()[i%len(catalog.All())]
		switch {
		case breaks == "a process":
			c.of(slug, "Errors", at, 1)
		case strings.Contains(breaks, "facilitator"), breaks == "payment alone",
			breaks == "one of ten operations" && i%10 == 0, breaks == "nothing" && i%1000 == 500:
			c.of(slug, service.MetricVersion, at, failed)
		default:
			c.of(slug, service.MetricVersion, at, answered)
		}
	}
	for ; run < begun+lasts; run += 5 * time.Minute {
		value := 0.0
		if strings.Contains(breaks, "facilitator") {
			value = notReady
		}
		c.of(sam.Reconcile, service.MetricVersion, run, value)
	}
	return c
}
