package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// The width of the dashboard, and the width and height of a graph, in units of the dashboard's
// grid.
const (
	columns     = 24
	graphWidth  = 8
	graphHeight = 6
)

// dashboard creates the dashboard: a link to the runbook; a row for revenue, concurrency and
// readiness; a row for the gateway; a row for what all operations share; a row for the
// scheduled function; a row for the tools; and a row for each operation. The row of an
// operation includes calls of the operation as a tool.
func (e *envelope) dashboard() {
	text := "What each alarm means and what to do about it: [the runbook](" + catalog.Runbook + ")"
	widgets := []any{object{
		"type":       "text",
		"width":      columns,
		"height":     1,
		"x":          0,
		"y":          0,
		"properties": object{"markdown": text},
	}}
	y := 1
	row := func(graphs ...object) {
		for i, g := range graphs {
			g["region"] = awscdk.Aws_REGION()
			g["view"] = "timeSeries"
			g["yAxis"] = object{"left": object{"min": 0, "showUnits": false}}
			widgets = append(widgets, object{
				"type":       "metric",
				"width":      graphWidth,
				"height":     graphHeight,
				"x":          i * graphWidth,
				"y":          y,
				"properties": g,
			})
		}
		y += graphHeight
	}
	// The statistics that the graphs show: sums, maxima, and the median and 95th percentile of
	// durations.
	sums := []string{statSum}
	most := []string{statMax}
	durations := []string{"p50", statP95}
	row(e.revenue(), e.concurrency(), e.graph("Ready", nil, most, readyMetrics()...))
	row(
		e.gateway("Gateway: requests", statSum, "Count", "4xx", "5xx"),
		e.graph("Gateway: its own failures", nil, sums, metricGatewayErrors),
		e.gateway("Gateway: ms", statP95, "Latency", "IntegrationLatency"),
	)
	row(
		e.graph("Settlements", nil, sums, append(service.SettlementMetrics(), service.MetricListed, service.MetricBroken, service.MetricRefused)...),
		e.graph("Faults of others", nil, sums, service.MetricFacilitator, service.MetricPrimaryFailed, service.MetricFallbackSettled, service.MetricFallbackFailed, service.MetricUsedAsPaid, service.MetricUnlisted, service.MetricUnreceipted, service.MetricLedger, service.MetricRateLimited, service.MetricOverloaded),
		e.graph("Settlement: ms", nil, durations, service.MetricSettle),
	)
	row(
		e.graph("Reconcile: open and owed", nil, most, service.MetricOpen, service.MetricOwedUnclaimed, service.MetricOwedLong, service.MetricRefundsDue),
		e.graph("Reconcile: found", nil, sums, service.MetricSettledLate, service.MetricRefusedLate, service.MetricReconcileFailed),
		e.graph("Reconcile: not settled", nil, most, service.MetricStillOpen, service.MetricCannotTell, service.MetricLeft),
	)
	operations := func(title string, of ...any) {
		row(
			e.graph(title, of, sums, service.MetricRequests, service.MetricChallenges, service.MetricAnswers, service.MetricReplayed),
			e.graph(title+": failures", of, sums, service.MetricFaults, service.MetricUncertain, service.MetricOwed, service.MetricInternal),
			e.graph(title+": ms", of, durations, service.MetricLookup, service.MetricSettle),
		)
	}
	operations(catalog.PathMCP, service.DimensionTransport, service.TransportMCP)
	for _, o := range catalog.All() {
		operations(o.Path, service.DimensionOperation, o.Slug)
	}
	e.add("Dashboard", "CloudWatch::Dashboard", object{
		// Dashboard names are unique in an account, so the name includes the region: another
		// region can have a stack of the same name.
		"DashboardName": e.settings.stack + "-" + *e.Region(),
		// The graphs show the last six hours.
		"DashboardBody": e.ToJsonString(object{"start": "-PT6H", "widgets": widgets}, nil),
	})
}

// graph returns a graph of the service's metrics with the given statistics. The graph shows
// one value of a dimension, such as one operation, or the totals if no dimension is given.
func (e *envelope) graph(title string, of []any, stats []string, names ...string) object {
	return graphOf(title, service.Namespace(e.settings.stack), of, stats, names)
}

// gateway returns a graph of the metrics that API Gateway itself records for the API.
func (e *envelope) gateway(title, stat string, names ...string) object {
	return graphOf(title, "AWS/ApiGateway", []any{"ApiId", e.resource(idAPI).Ref()}, []string{stat}, names)
}

func graphOf(title, namespace string, of []any, stats, names []string) object {
	var metrics []any
	for _, name := range names {
		for _, stat := range stats {
			shown := object{"stat": stat}
			if len(stats) > 1 {
				shown["label"] = name + " " + stat
			}
			metrics = append(metrics, metric(namespace, name, of, shown))
		}
	}
	return object{"title": title, "metrics": metrics}
}

// metric returns a metric in the form that the definition of a dashboard needs, with its
// dimension and its display options.
func metric(namespace, name string, of []any, shown object) []any {
	return slices.Concat([]any{namespace, name}, of, []any{shown})
}

// metricGatewayErrors is the metric that the template counts in the gateway's log.
const metricGatewayErrors = "GatewayErrors"

// readyMetrics returns the names of the metrics that each run of reconcile sets to 1 or 0.
func readyMetrics() []string {
	all := []string{service.MetricReady}
	for _, probe := range []string{service.ProbeLedger, service.ProbeFacilitator, service.ProbeResolvers, service.ProbeChain, service.ProbeMark, service.ProbeOrigin} {
		all = append(all, service.ReadyMetric(probe))
	}
	return all
}

// concurrency returns a graph of the concurrent invocations of each function, and of the
// invocations that Lambda turned away.
func (e *envelope) concurrency() object {
	var metrics []any
	for _, slug := range functionSlugs() {
		of := []any{"FunctionName", e.resource(sam.LogicalID(slug)).Ref()}
		for _, s := range []series{{name: "ConcurrentExecutions", stat: statMax}, {name: "Throttles", stat: statSum}} {
			metrics = append(metrics, metric("AWS/Lambda", s.name, of, object{"stat": s.stat, "label": slug + " " + s.name}))
		}
	}
	return object{"title": "Concurrency", "metrics": metrics}
}

// revenue returns a graph of the hourly revenue in US dollars: the number of settlements,
// multiplied by the prices in the catalog. The command "make books" reports the amounts that
// were really paid.
func (e *envelope) revenue() object {
	var terms []string
	metrics := []any{nil}
	for i, o := range catalog.All() {
		id := fmt.Sprintf("m%d", i)
		shown := object{"id": id, "stat": statSum, "visible": false}
		metrics = append(metrics, metric(service.Namespace(e.settings.stack), service.SettlementMetrics()[0], []any{service.DimensionOperation, o.Slug}, shown))
		terms = append(terms, fmt.Sprintf("FILL(%s, 0) * %s", id, o.Amount))
	}
	metrics[0] = []any{object{"label": "an hour", "expression": "(" + strings.Join(terms, " + ") + ") / 1000000"}}
	return object{"title": "Revenue: USD", "metrics": metrics, "period": hour}
}

// savedQuery is a CloudWatch Logs Insights query.
type savedQuery struct {
	name, text string
	gateway    bool // the query searches the gateway's log, not the functions' log
}

// savedQueries returns the queries that the runbook starts from. A word in capitals is a
// placeholder, which the operator replaces.
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
		name: "refusals",
		text: `filter msg = "request" and ispresent(payer_unanswered)
| stats count(*) as requests, count_distinct(payer_unanswered) as payers by code, settlement, reason
| sort payers desc`,
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
		text: `fields @timestamp, open, settled_late, refused_late, still_open, cannot_tell, owed, owed_over_an_hour, refunds_due, failed, not_ready, error, ms
| filter msg = "reconcile"
| sort @timestamp desc`,
	}, {
		name: "gateway", gateway: true,
		text: `fields @timestamp, route, status, integration_status, integration_error, error, ms
| filter status like /^5/ or status = "429"
| sort @timestamp desc`,
	}}
}

// queries creates the saved queries, in a folder with the stack's name.
func (e *envelope) queries() {
	for _, q := range savedQueries() {
		group := idFunctionsLog
		if q.gateway {
			group = idLog
		}
		e.add(sam.Pascal(strings.ReplaceAll(q.name, " ", "-"))+"Query", "Logs::QueryDefinition", object{
			"Name":          e.settings.stack + "/" + q.name,
			"QueryString":   q.text,
			"LogGroupNames": []any{e.resource(group).Ref()},
		})
	}
}
