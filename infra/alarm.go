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

// How an alarm treats a period without data.
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

// alarm goes off when the sum of its series is above a bound.
type alarm struct {
	name  string // in kebab case; unique
	kind  string // its entry in the runbook; several operations share one
	means string
	of    []series
	bound float64
	below bool // it goes off below the bound, not above
	// period is in seconds. The alarm goes off when, of the last periods (1 when
	// 0), breaching (all when 0) are beyond the bound.
	period, periods, breaching int
	missing                    string // missingGood when empty
}

// runbook is the address of an alarm's entry in infra/RUNBOOK.md.
func (a alarm) runbook() string { return catalog.Runbook + "#alarm-" + a.kind }

// add makes an alarm that notifies the topic when it begins and when it ends.
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

// plain sets the metric of an alarm on one series.
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

// sum is the metric math of an alarm on several series. A series has no data in a
// period in which nothing happened, so gaps are filled with 0.
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

// own is a metric of the service, over all operations.
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

// crashes are the failed invocations of functions: errors, time-outs, crashes, and
// calls that Lambda throttled.
func (e *envelope) crashes(slugs ...string) []series {
	var of []series
	for _, slug := range slugs {
		of = append(of, e.lambda(slug, "Errors"), e.lambda(slug, "Throttles"))
	}
	return of
}
