package main

import (
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/jsii-runtime-go"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// Statistics of CloudWatch.
const (
	statSum = "Sum"
	statMax = "Maximum"
	statP95 = "p95"
)

// What an alarm makes of a period without data.
const (
	missingGood   = "notBreaching"
	missingBad    = "breaching"
	missingIgnore = "ignore"
)

// Periods of alarms, seconds.
const (
	minutes5  = 5 * 60
	minutes15 = 15 * 60
)

// series is one metric of CloudWatch with its statistic.
type series struct {
	namespace, name, stat string
	dimension             string  // name; empty: none
	value                 *string // of the dimension
}

// alarm goes off when the sum of its series is beyond a bound.
type alarm struct {
	name  string // in kebab case; unique
	kind  string // heading in the runbook: several operations share one
	means string
	of    []series
	bound float64
	below bool // it goes off below the bound, not above
	// period is in seconds; of the last periods, breaching must be beyond the
	// bound. 0 periods is one.
	period, periods, breaching int
	missing                    string // missingGood when empty
}

// runbook is where an alarm's entry is.
func (a alarm) runbook() string { return catalog.Homepage + "#alarm-" + a.kind }

// add makes an alarm that tells the topic when it begins and when it ends.
func (e *envelope) add(a alarm, topic *string) {
	comparison := "GreaterThanThreshold"
	if a.below {
		comparison = "LessThanThreshold"
	}
	periods, breaching, missing := max(a.periods, 1), max(a.breaching, 1), a.missing
	if a.breaching == 0 {
		breaching = periods
	}
	if missing == "" {
		missing = missingGood
	}
	actions := &[]*string{topic}
	props := &awscloudwatch.CfnAlarmProps{
		AlarmName:          jsii.String(e.settings.stack + "-" + a.name),
		AlarmDescription:   jsii.String(a.means + " " + a.runbook()),
		ComparisonOperator: &comparison,
		Threshold:          &a.bound,
		EvaluationPeriods:  jsii.Number(periods),
		DatapointsToAlarm:  jsii.Number(breaching),
		TreatMissingData:   &missing,
		AlarmActions:       actions,
		OkActions:          actions,
	}
	if len(a.of) == 1 {
		plain(props, a.of[0], a.period)
	} else {
		props.Metrics = sum(a.of, a.period)
	}
	awscloudwatch.NewCfnAlarm(e.Stack, jsii.String(pascal(a.name)+"Alarm"), props)
}

// plain is an alarm on one metric.
func plain(props *awscloudwatch.CfnAlarmProps, s series, period int) {
	props.Namespace, props.MetricName, props.Period = &s.namespace, &s.name, jsii.Number(period)
	if strings.HasPrefix(s.stat, "p") {
		props.ExtendedStatistic = &s.stat
	} else {
		props.Statistic = &s.stat
	}
	if s.dimension != "" {
		props.Dimensions = dimensions(s)
	}
}

func dimensions(s series) []*awscloudwatch.CfnAlarm_DimensionProperty {
	if s.dimension == "" {
		return nil
	}
	return []*awscloudwatch.CfnAlarm_DimensionProperty{{Name: &s.dimension, Value: s.value}}
}

// sum is an alarm on several metrics. Each counts only what happened, so that
// none of them has data all the time: a gap is 0 where another has a point.
func sum(of []series, period int) []*awscloudwatch.CfnAlarm_MetricDataQueryProperty {
	var queries []*awscloudwatch.CfnAlarm_MetricDataQueryProperty
	var terms []string
	for i, s := range of {
		id := fmt.Sprintf("m%d", i)
		metric := &awscloudwatch.CfnAlarm_MetricProperty{Namespace: &s.namespace, MetricName: &s.name}
		if d := dimensions(s); d != nil {
			metric.Dimensions = d
		}
		queries = append(queries, &awscloudwatch.CfnAlarm_MetricDataQueryProperty{
			Id: &id, ReturnData: jsii.Bool(false),
			MetricStat: &awscloudwatch.CfnAlarm_MetricStatProperty{Metric: metric, Period: jsii.Number(period), Stat: &s.stat},
		})
		terms = append(terms, "FILL("+id+", 0)")
	}
	return append(queries, &awscloudwatch.CfnAlarm_MetricDataQueryProperty{
		Id: jsii.String("total"), ReturnData: jsii.Bool(true),
		Expression: jsii.String("SUM([" + strings.Join(terms, ", ") + "])"),
	})
}

// own is a metric of our own, over all operations.
func (e *envelope) own(name, stat string) series {
	return series{namespace: service.Namespace(e.settings.stack), name: name, stat: stat}
}

// lambda is a metric that Lambda keeps of a function.
func (e *envelope) lambda(slug, name string) series {
	return series{
		namespace: "AWS/Lambda", name: name, stat: statSum,
		dimension: "FunctionName", value: e.resource(logicalID(slug)).Ref(),
	}
}

// crashes are the invocations of functions that came to nothing: those that
// failed, timed out or died, and those that Lambda turned away.
func (e *envelope) crashes(slugs ...string) []series {
	var of []series
	for _, slug := range slugs {
		of = append(of, e.lambda(slug, "Errors"), e.lambda(slug, "Throttles"))
	}
	return of
}
