package main

import (
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// Sizes of the dashboard in units of its grid.
const (
	columns = 24
	wide    = 8
	height  = 6
)

// dashboard has a link to the runbook, a row for revenue, concurrency and readiness,
// one for the gateway, one for what all operations share, one for the scheduled
// function, one for the tools, and one for each operation, whose calls as a tool are
// among its own.
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
	row(e.revenue(), e.concurrency(), e.gauges("Ready", readyMetrics()...))
	row(
		e.gateway("Gateway: requests", statSum, "Count", "4xx", "5xx"),
		e.counts("Gateway: its own failures", nil, metricGatewayErrors),
		e.gateway("Gateway: ms", statP95, "Latency", "IntegrationLatency"),
	)
	row(
		e.counts("Settlements", nil, append(service.SettlementMetrics(), service.MetricListed)...),
		e.counts("Faults of others", nil, service.MetricFacilitator, service.MetricPrimaryFailed, service.MetricFallbackSettled, service.MetricFallbackFailed, service.MetricUsedAsPaid, service.MetricUnlisted, service.MetricUnreceipted, service.MetricLedger, service.MetricRateLimited, service.MetricOverloaded),
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
			m := series{namespace: service.Namespace(e.settings.stack), name: name, stat: stat}
			label := ""
			if len(stats) > 1 {
				label = name + " " + stat
			}
			metrics = append(metrics, m.metric(of, label))
		}
	}
	return widget(title, metrics)
}

// metric is the series of a dimension's value, or of all of them, under a label; without
// one CloudWatch chooses it.
func (s series) metric(of map[string]*string, label string) awscloudwatch.IMetric {
	props := &awscloudwatch.MetricProps{
		Namespace: &s.namespace, MetricName: &s.name, Statistic: &s.stat, Period: awscdk.Duration_Seconds(jsii.Number(minutes5)),
	}
	if of != nil {
		props.DimensionsMap = &of
	}
	if label != "" {
		props.Label = &label
	}
	return awscloudwatch.NewMetric(props)
}

// widget is a graph of metrics, from 0 on.
func widget(title string, metrics []awscloudwatch.IMetric) awscloudwatch.IWidget {
	return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
		Title: &title, Left: &metrics, Width: jsii.Number(wide), Height: jsii.Number(height),
		LeftYAxis: &awscloudwatch.YAxisProps{Min: jsii.Number(0), ShowUnits: jsii.Bool(false)},
	})
}

// metricGatewayErrors is what the template counts in the gateway's log.
const metricGatewayErrors = "GatewayErrors"

// readyMetrics are 1 or 0 in each run of reconcile.
func readyMetrics() []string {
	all := []string{service.MetricReady}
	for _, probe := range []string{service.ProbeLedger, service.ProbeFacilitator, service.ProbeResolvers, service.ProbeChain} {
		all = append(all, service.ReadyMetric(probe))
	}
	return all
}

// gateway is a graph of what API Gateway measures of the API.
func (e *envelope) gateway(title, stat string, names ...string) awscloudwatch.IWidget {
	var metrics []awscloudwatch.IMetric
	for _, name := range names {
		m := series{namespace: "AWS/ApiGateway", name: name, stat: stat}
		metrics = append(metrics, m.metric(map[string]*string{"ApiId": e.resource(idAPI).Ref()}, ""))
	}
	return widget(title, metrics)
}

// concurrency is a graph of how many invocations there are at once, by function, and
// of those that Lambda turned away.
func (e *envelope) concurrency() awscloudwatch.IWidget {
	var metrics []awscloudwatch.IMetric
	for _, slug := range functionSlugs() {
		of := map[string]*string{"FunctionName": e.resource(sam.LogicalID(slug)).Ref()}
		for _, m := range []series{{name: "ConcurrentExecutions", stat: statMax}, {name: "Throttles", stat: statSum}} {
			m.namespace = "AWS/Lambda"
			metrics = append(metrics, m.metric(of, slug+" "+m.name))
		}
	}
	return widget("Concurrency", metrics)
}

// revenue is a graph of what the settlements of an hour come to in US dollars, by
// the prices of the catalog. make books has the amounts that were really paid.
func (e *envelope) revenue() awscloudwatch.IWidget {
	using := map[string]awscloudwatch.IMetric{}
	var terms []string
	for i, o := range catalog.All() {
		id := fmt.Sprintf("m%d", i)
		using[id] = e.own(id, service.SettlementMetrics()[0], statSum).metric(map[string]*string{service.DimensionOperation: &o.Slug}, "")
		terms = append(terms, fmt.Sprintf("FILL(%s, 0) * %s", id, o.Amount))
	}
	return widget("Revenue: USD", []awscloudwatch.IMetric{awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: jsii.String("(" + strings.Join(terms, " + ") + ") / 1000000"), UsingMetrics: &using,
		Label: jsii.String("an hour"), Period: awscdk.Duration_Seconds(jsii.Number(hour)),
	})})
}

// savedQuery is a query of CloudWatch Logs Insights.
type savedQuery struct {
	name, text string
	gateway    bool // over the gateway's log, not those of the functions
}

// savedQueries are those that the runbook begins with. A word in capitals is to be
// filled in.
func savedQueries() []savedQuery {
	return []savedQuery{{
		name: "failures",
		text: `fields @timestamp, operation, transport, status, code, states, settlement, evidence, reason, error, cause, request_id
| filter msg = "request" and status >= 500
| sort @timestamp desc`,
	}, {
		name: "failures by code",
		text: `filter msg = "request" and status >= 500
| stats count(*) as requests by operation, code
| sort requests desc`,
	}, {
		name: "one wallet",
		text: `fields @timestamp, operation, status, code, states, settlement, evidence, purchase, reason, nonce, transaction, request_id
| filter payer = "0xWALLET-IN-LOWER-CASE"
| sort @timestamp asc`,
	}, {
		name: "one request",
		text: `fields @timestamp, @message
| filter request_id = "REQUEST-ID"
| sort @timestamp asc`,
	}, {
		name: "payments in doubt",
		text: `fields @timestamp, operation, payer, states, settlement, evidence, reason, cause, request_id
| filter code = "settlement_uncertain"
| sort @timestamp desc`,
	}, {
		name: "answers owed",
		text: `fields @timestamp, operation, payer, code, cause, request_id
| filter msg = "request" and Owed = 1
| sort @timestamp desc`,
	}, {
		name: "slow calls",
		text: `filter msg = "request" and (settle_ms > 0 or lookup_ms > 0)
| stats count(*) as calls, pct(settle_ms, 95) as settle_p95, pct(lookup_ms, 95) as lookup_p95 by operation`,
	}, {
		name: "bugs",
		text: `fields @timestamp, @logStream, msg, code, stack, record.status, record.metrics.durationMs, @message
| filter code = "internal_error" or msg = "panic" or (type = "platform.report" and record.status != "success")
| sort @timestamp desc`,
	}, {
		name: "reconcile",
		text: `fields @timestamp, open, settled_late, refused_late, still_open, cannot_tell, owed, exhausted, failed, not_ready, error, ms
| filter msg = "reconcile"
| sort @timestamp desc`,
	}, {
		name: "gateway", gateway: true,
		text: `fields @timestamp, route, status, integration_status, integration_error, error, ms
| filter status like /^5/ or status = "429"
| sort @timestamp desc`,
	}}
}

// queries saves them, in a folder of the stack's name.
func (e *envelope) queries() {
	for _, q := range savedQueries() {
		group := idFunctionsLog
		if q.gateway {
			group = idLog
		}
		awslogs.NewCfnQueryDefinition(e.Stack, jsii.String(q.id()), &awslogs.CfnQueryDefinitionProps{
			Name: jsii.String(e.settings.stack + "/" + q.name), QueryString: &q.text, LogGroupNames: &[]*string{e.resource(group).Ref()},
		})
	}
}

// id is the logical id of a saved query.
func (q savedQuery) id() string { return sam.Pascal(strings.ReplaceAll(q.name, " ", "-")) + "Query" }
