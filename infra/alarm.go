package main

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/jsii-runtime-go"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// Statistics of CloudWatch.
const (
	statSum   = "Sum"
	statMin   = "Minimum"
	statMax   = "Maximum"
	statCount = "SampleCount"
	statP95   = "p95"
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
	hour      = 60 * 60
	day       = 24 * hour
)

// series is one metric of CloudWatch with its statistic.
type series struct {
	id              string // in the alarm's expression
	namespace, name string
	stat            string
}

// alarm goes off when its one series, or its expression over them, is above a bound.
type alarm struct {
	name  string // in kebab case; unique; also its entry in the runbook
	means string
	// page says that somebody is to act now; else it is a ticket for the next day.
	page       bool
	of         []series
	expression string
	bound      float64
	below      bool // it goes off below the bound, not above
	// period is in seconds. The alarm goes off when, of the last periods (1 when
	// 0), breaching (all when 0) are beyond the bound.
	period, periods, breaching int
	missing                    string // missingGood when empty
}

// runbook is the address of an alarm's entry in infra/RUNBOOK.md.
func (a alarm) runbook() string { return catalog.Runbook + "#alarm-" + a.name }

// add makes an alarm that notifies a topic when it begins and when it ends.
func (e *envelope) add(a alarm, to topics) {
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
	actions := &[]*string{to.ticket}
	if a.page {
		actions = &[]*string{to.page}
	}
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
	if a.expression == "" {
		plain(props, a.of[0], a.period)
	} else {
		props.Metrics = a.queries()
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
}

// queries are the series and the expression, as an alarm on metric math has them.
func (a alarm) queries() []*awscloudwatch.CfnAlarm_MetricDataQueryProperty {
	var all []*awscloudwatch.CfnAlarm_MetricDataQueryProperty
	for _, s := range a.of {
		all = append(all, &awscloudwatch.CfnAlarm_MetricDataQueryProperty{
			Id: &s.id, ReturnData: jsii.Bool(false),
			MetricStat: &awscloudwatch.CfnAlarm_MetricStatProperty{
				Metric: &awscloudwatch.CfnAlarm_MetricProperty{Namespace: &s.namespace, MetricName: &s.name},
				Period: jsii.Number(a.period), Stat: &s.stat,
			},
		})
	}
	return append(all, &awscloudwatch.CfnAlarm_MetricDataQueryProperty{
		Id: jsii.String("value"), ReturnData: jsii.Bool(true), Expression: &a.expression,
	})
}

// own is a metric of the service over all operations, under an id for expressions.
func (e *envelope) own(id, name, stat string) series {
	return series{id: id, namespace: service.Namespace(e.settings.stack), name: name, stat: stat}
}
