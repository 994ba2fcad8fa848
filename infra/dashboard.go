package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/jsii-runtime-go"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// Sizes of the dashboard in units of its grid.
const (
	columns = 24
	wide    = 8
	height  = 6
)

// dashboard has a link to the runbook, a row for what all operations share, one
// for the scheduled function, one for the tools, and one for each operation, whose
// calls as a tool are among its own.
func (e *envelope) dashboard() {
	board := awscloudwatch.NewDashboard(e.Stack, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{
		// Dashboard names are unique in an account, so the region is in it: another
		// region can have a stack of the same name.
		DashboardName: jsii.String(e.settings.stack + "-" + *e.Region()),
		// Longer than the reconcile function may be without data.
		DefaultInterval: awscdk.Duration_Hours(jsii.Number(6)),
	})
	row := func(widgets ...awscloudwatch.IWidget) { board.AddWidgets(widgets...) }
	row(awscloudwatch.NewTextWidget(&awscloudwatch.TextWidgetProps{
		Markdown: jsii.String("What each alarm means and what to do about it: [the runbook](" + catalog.Runbook + ")"),
		Width:    jsii.Number(columns), Height: jsii.Number(1),
	}))
	row(
		e.counts("Settlements", nil, append(service.SettlementMetrics(), service.MetricListed)...),
		e.counts("Faults of others", nil, service.MetricFacilitator, service.MetricUnlisted, service.MetricLedger, service.MetricRateLimited, service.MetricOverloaded),
		e.latencies("Settlement", nil, service.MetricSettle),
	)
	row(
		e.gauges("Reconcile: open and owed", service.MetricOpen, service.MetricOwedUnclaimed, service.MetricRefundsDue),
		e.counts("Reconcile: found", nil, service.MetricSettledLate, service.MetricRefusedLate, service.MetricReconcileFailed),
		e.gauges("Reconcile: not settled", service.MetricStillOpen, service.MetricCannotTell, service.MetricLeft),
	)
	tools := map[string]*string{service.DimensionTransport: jsii.String(service.TransportMCP)}
	row(
		e.counts(catalog.PathMCP, tools, service.MetricRequests, service.MetricChallenges, service.MetricAnswers, service.MetricReplayed),
		e.counts(catalog.PathMCP+": failures", tools, service.MetricFaults, service.MetricUncertain, service.MetricOwed, service.MetricInternal),
		e.latencies(catalog.PathMCP, tools, service.MetricLookup, service.MetricSettle),
	)
	for _, o := range catalog.All() {
		of := map[string]*string{service.DimensionOperation: jsii.String(o.Slug)}
		row(
			e.counts(o.Path, of, service.MetricRequests, service.MetricChallenges, service.MetricAnswers, service.MetricReplayed),
			e.counts(o.Path+": failures", of, service.MetricFaults, service.MetricUncertain, service.MetricOwed, service.MetricInternal),
			e.latencies(o.Path, of, service.MetricLookup, service.MetricSettle),
		)
	}
}

// counts is a graph of how often something happened in each five minutes.
func (e *envelope) counts(title string, of map[string]*string, names ...string) awscloudwatch.IWidget {
	return e.graph(title, of, []string{statSum}, names)
}

// latencies is a graph of durations, median and 95th percentile.
func (e *envelope) latencies(title string, of map[string]*string, names ...string) awscloudwatch.IWidget {
	return e.graph(title+": ms", of, []string{"p50", statP95}, names)
}

// gauges is a graph of numbers at a time.
func (e *envelope) gauges(title string, names ...string) awscloudwatch.IWidget {
	return e.graph(title, nil, []string{statMax}, names)
}

func (e *envelope) graph(title string, of map[string]*string, stats, names []string) awscloudwatch.IWidget {
	var metrics []awscloudwatch.IMetric
	for _, name := range names {
		for _, stat := range stats {
			props := &awscloudwatch.MetricProps{
				Namespace: jsii.String(service.Namespace(e.settings.stack)), MetricName: &name, Statistic: &stat,
				Period: awscdk.Duration_Seconds(jsii.Number(minutes5)),
			}
			if of != nil {
				props.DimensionsMap = &of
			}
			if len(stats) > 1 {
				props.Label = jsii.String(name + " " + stat)
			}
			metrics = append(metrics, awscloudwatch.NewMetric(props))
		}
	}
	return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
		Title: &title, Left: &metrics, Width: jsii.Number(wide), Height: jsii.Number(height),
		LeftYAxis: &awscloudwatch.YAxisProps{Min: jsii.Number(0), ShowUnits: jsii.Bool(false)},
	})
}
