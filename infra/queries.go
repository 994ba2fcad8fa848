package main

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"
)

// savedQuery is a saved query of CloudWatch Logs Insights.
type savedQuery struct {
	name, text string
	gateway    bool // over the gateway's log, not those of the functions
}

// savedQueries are those that the runbook begins with. A word in capitals is for whoever
// asks to fill in.
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
		text: `fields @timestamp, operation, status, code, states, settlement, evidence, purchase, reason, request_id
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
		text: `fields @timestamp, @log, msg, code, stack, record.status, record.metrics.durationMs, @message
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
	functions := make([]*string, 0, len(slugs()))
	for _, slug := range slugs() {
		functions = append(functions, e.logs[slug])
	}
	for _, q := range savedQueries() {
		groups := &functions
		if q.gateway {
			groups = &[]*string{e.resource(idLog).Ref()}
		}
		awslogs.NewCfnQueryDefinition(e.Stack, jsii.String(q.id()), &awslogs.CfnQueryDefinitionProps{
			Name: jsii.String(e.settings.stack + "/" + q.name), QueryString: jsii.String(q.text), LogGroupNames: groups,
		})
	}
}

// id is the logical id of a saved query.
func (q savedQuery) id() string { return pascal(strings.ReplaceAll(q.name, " ", "-")) + "Query" }
