package main

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"

	"github.com/hostfacts/hostfacts/infra/sam"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/service"
)

// tolerated is how many events, such as payments in doubt, an alarm tolerates in a period. A
// period with more events counts as bad.
const tolerated = 2

// minSamples is the number of samples from which a percentile of durations is meaningful.
const minSamples = 20

// slowSettlement is the bound of the alarm facilitator-slow, in milliseconds. A settlement
// normally takes one or two blocks of two seconds each. Its time limit is at least 13 s.
const slowSettlement = 8000 // ms

// certificateDays is the bound of the alarm "certificate". This alarm goes off if the
// certificate of the public origin expires in fewer days than this bound.
const certificateDays = 21

// alarms creates all alarms of the deployment except those of template.yaml, which roll a
// release back and notify nobody. Each alarm reports one cause, whichever operation it
// affects; the dashboard and the log show the operation. Each alarm notifies one of two
// topics: pages, which need action now, and tickets, which can wait for the next working day.
func (e *envelope) alarms(page, ticket *string) {
	for _, a := range e.pageAlarms() {
		e.alarm(a, page)
	}
	for _, a := range e.ticketAlarms() {
		e.alarm(a, ticket)
	}
}

// faultsAlarm returns an alarm on a dependency of sales, such as the facilitator. The alarm
// goes off if two of three periods are bad. A period is bad if more than a few requests
// of payers failed because of the dependency, or if reconcile's probe of the dependency failed.
func (e *envelope) faultsAlarm(name, metric, probe, means string) alarm {
	return alarm{
		name:       name,
		means:      means,
		of:         []series{e.serviceMetric("faults", metric, statSum), e.serviceMetric("ready", service.ReadyMetric(probe), statMin)},
		expression: "FILL(faults, 0) + IF(FILL(ready, 1) > 0, 0, 3)",
		bound:      tolerated,
		period:     minutes5,
		periods:    3,
		breaching:  2,
	}
}

// pageAlarms returns the alarms that page somebody. No single customer can set them off.
func (e *envelope) pageAlarms() []alarm {
	return []alarm{{
		name:  "errors",
		means: "A function failed in a way that is a bug: an internal error, a crash, a time-out, or a call that Lambda turned away.",
		of: []series{
			e.serviceMetric("gateway", metricGatewayErrors, statSum),
			e.serviceMetric("internal", service.MetricInternal, statSum),
		},
		expression: "FILL(gateway, 0) + FILL(internal, 0)",
		period:     minutes5,
	}, e.faultsAlarm("facilitator-faults", service.MetricFacilitator, service.ProbeFacilitator,
		"The facilitator is down, not configured, or refuses our credentials: nobody can pay."),
		e.faultsAlarm("ledger-faults", service.MetricLedger, service.ProbeLedger,
			"The ledger's table does not answer or does not take a verdict, or a record in it cannot be read: sales fail, or are not on record."), {
			// Reconcile cannot read the ledger's mark while the ledger does not answer. The
			// alarm ledger-faults reports that fault, and this alarm does not.
			name: "ledger-mark",
			means: "The ledger's table is not marked as this stack's, or for another payee: it may be another table than before, " +
				"so that payments are answered twice and debts are forgotten.",
			of: []series{
				e.serviceMetric("mark", service.ReadyMetric(service.ProbeMark), statMin),
				e.serviceMetric("ledger", service.ReadyMetric(service.ProbeLedger), statMin),
			},
			expression: "IF(FILL(ledger, 1) > 0, IF(FILL(mark, 1) > 0, 0, 1))",
			period:     minutes5,
			periods:    3,
			breaching:  2,
		}, {
			// A payer can provoke an unclear reply of the facilitator, which leaves the
			// payment in doubt. That payment counts in the alarm "refused", and not in this
			// one.
			name:  "uncertain",
			means: "The facilitator takes payments and gives no verdict, of more than one payer, and more than it settles: it is not known whether they were made.",
			of: []series{
				e.serviceMetric("least", service.MetricSilentPayer, statMin),
				e.serviceMetric("most", service.MetricSilentPayer, statMax),
				e.serviceMetric("silent", service.MetricSilentPayer, statCount),
				e.serviceMetric("settled", service.SettlementMetrics()[0], statSum),
			},
			expression: "IF(most > least, IF(silent > FILL(settled, 0), silent, 0), 0)",
			bound:      tolerated,
			period:     minutes15,
		}, {
			name:      "resolvers",
			means:     "No resolver of DNS_RESOLVERS answers: every lookup fails on our side, and what was paid is owed.",
			of:        []series{e.serviceMetric("", service.ReadyMetric(service.ProbeResolvers), statMin)},
			bound:     1,
			below:     true,
			period:    minutes5,
			periods:   3,
			breaching: 2,
		}, {
			// Reconcile cannot check the origin while the resolvers fail or the gateway cannot
			// call functions. Other alarms report these faults.
			name:  "public-origin",
			means: "A stranger does not reach the service at its public origin: its name, its certificate, or its mapping to the API is lost.",
			of: []series{
				e.serviceMetric("origin", service.ReadyMetric(service.ProbeOrigin), statMin),
				e.serviceMetric("resolvers", service.ReadyMetric(service.ProbeResolvers), statMin),
				e.serviceMetric("gateway", metricGatewayErrors, statSum),
			},
			expression: "IF(FILL(resolvers, 1) > 0, IF(FILL(gateway, 0) > 0, 0, IF(FILL(origin, 1) > 0, 0, 1)))",
			period:     minutes5,
			periods:    3,
			breaching:  2,
		}, {
			// This alarm goes off only when the metric has no more data, because no value is
			// below the bound of 0. Before the first run of reconcile, the alarm is already in
			// the state for missing data, so it notifies nobody. The alarm evaluates a single
			// period: for several, CloudWatch would wait until several are empty.
			name:    "reconcile-silent",
			means:   "No run of reconcile ended for a quarter of an hour: nobody looks whether the service is ready, and payments in doubt stay in doubt.",
			of:      []series{e.serviceMetric("", service.MetricReady, statMax)},
			below:   true,
			period:  minutes5,
			missing: missingTells,
		}}
}

// ticketAlarms returns the alarms for the next working day. An alarm that a customer can set
// off, for example by lookups of dead hosts, evaluates a whole day, so it raises at most one
// ticket a day. A cause that another alarm reports raises no second ticket. A failed run of
// reconcile does not report how many payments are open and how many refunds are due. The
// alarms on these numbers then keep their state, because a missing number must not end an
// alarm.
func (e *envelope) ticketAlarms() []alarm {
	slowLookup := float64(deadlineOfTools().Milliseconds()) * 5 / 8
	return []alarm{{
		name: "lookups",
		means: fmt.Sprintf("Over a day, and while the resolvers answered, payers paid and the lookup failed on our side, "+
			"or one lookup in twenty took longer than %.1f s.", slowLookup/1000),
		of: append(e.percentile(service.MetricLookup), e.serviceMetric("owed", service.MetricOwed, statSum),
			e.serviceMetric("runs", service.ReadyMetric(service.ProbeResolvers), statCount),
			e.serviceMetric("ready", service.ReadyMetric(service.ProbeResolvers), statSum)),
		// If the probe of the resolvers failed in two or more runs of reconcile, the alarm
		// "resolvers" reports that fault, and this alarm does not.
		expression: fmt.Sprintf("IF(FILL(runs, 0) > (FILL(ready, 0) + 1), 0, FILL(owed, 0) + IF(FILL(n, 0) >= %d, IF(p95 > %v, %d, 0), 0))",
			minSamples, slowLookup, tolerated+1),
		bound:  tolerated,
		period: day,
	}, {
		name:  "facilitator-slow",
		means: "One settlement in twenty took longer than 8 s over an hour. Beyond 13 s, 15 s at most, they end in doubt.",
		of: append(e.percentile(service.MetricSettle), e.serviceMetric("uncertain", service.MetricUncertain, statSum),
			e.serviceMetric("settled", service.SettlementMetrics()[0], statSum)),
		expression: fmt.Sprintf("IF(n >= %d, IF(FILL(uncertain, 0) > FILL(settled, 0), 0, p95))", minSamples),
		bound:      slowSettlement,
		period:     hour,
	}, {
		// One payer alone cannot set off this alarm. But wallets cost nothing, so one person
		// can pose as several payers whose payments are refused. These refusals keep nobody
		// else from paying. So this alarm raises a ticket, not a page.
		name:  "refused",
		means: "For half an hour the payments of more than one payer were refused, by this service or by the facilitator, or were left in doubt by a verdict, and none was settled.",
		of: []series{
			e.serviceMetric("least", service.MetricRefusedPayer, statMin),
			e.serviceMetric("most", service.MetricRefusedPayer, statMax),
			e.serviceMetric("tries", service.MetricRefusedPayer, statCount),
			e.serviceMetric("settled", service.SettlementMetrics()[0], statSum),
		},
		expression: "IF(FILL(settled, 0) > 0, 0, IF(most > least, tries, 0))",
		bound:      tolerated,
		period:     hour / 2,
	}, {
		name:   "overloaded",
		means:  "Over a day, paid lookups were turned away because all places of an operation were taken.",
		of:     []series{e.serviceMetric("", service.MetricOverloaded, statSum)},
		bound:  tolerated,
		period: day,
	}, {
		name:  "concurrency",
		means: "In some minute of the last day four fifths of the Lambda invocations that the account may run at once were running or reserved: soon calls are turned away.",
		of: []series{
			{id: "used", namespace: "AWS/Lambda", name: "ConcurrentExecutions", stat: statMax},
			{id: "claimed", namespace: "AWS/Lambda", name: "ClaimedAccountConcurrency", stat: statMax},
		},
		expression: "claimed / SERVICE_QUOTA(used)",
		bound:      0.8,
		period:     day,
	}, {
		name:   "receipts",
		means:  "Over a day, answers came without a signed receipt although there is a key: it is not published, or cannot be read.",
		of:     []series{e.serviceMetric("", service.MetricUnreceipted, statSum)},
		period: day,
	}, {
		name:    "certificate",
		means:   fmt.Sprintf("The certificate of the public origin ends within %d days, and AWS renews one two months before.", certificateDays),
		of:      []series{e.serviceMetric("", service.MetricCertificateDays, statMin)},
		bound:   certificateDays,
		below:   true,
		period:  hour,
		missing: missingIgnore,
	}, {
		name:    "chain",
		means:   "For an hour the node of RPC_URL has not answered: what is in doubt stays in doubt.",
		of:      []series{e.serviceMetric("", service.ReadyMetric(service.ProbeChain), statMax)},
		bound:   1,
		below:   true,
		period:  minutes15,
		periods: 4,
	}, {
		// Without a chain node, reconcile cannot find out what became of payments in doubt.
		// The alarm "chain" reports that fault, and this alarm does not.
		name:  "reconcile-open",
		means: "For an hour every run found payments in doubt that cannot be made any more, and the chain answers: some are not being settled by evidence.",
		of: []series{
			e.serviceMetric("open", service.MetricOpen, statMax),
			e.serviceMetric("still", service.MetricStillOpen, statMax),
			e.serviceMetric("chain", service.ReadyMetric(service.ProbeChain), statMax),
		},
		// If a run of reconcile fails, the series "open" has no value. The alarm must then
		// keep its state, so the expression must have no value either. The inner IF alone
		// would return 0 for a missing "open". The outer IF returns no value if its condition
		// has none.
		expression: "IF(open >= 0, IF(FILL(chain, 1) > 0, open > still, 0))",
		period:     minutes15,
		periods:    4,
		missing:    missingIgnore,
	}, {
		name:    "reconcile-refund",
		means:   "Somebody has paid and no lookup is left to answer with: a refund is due.",
		of:      []series{e.serviceMetric("", service.MetricRefundsDue, statMax)},
		period:  day,
		missing: missingIgnore,
	}, {
		// While the ledger does not answer, each run of reconcile fails. The alarm
		// ledger-faults reports that fault, and this alarm does not.
		name:  "reconcile-failing",
		means: "Two runs of three could not deal with some record, and the ledger answers.",
		of: []series{
			e.serviceMetric("failed", service.MetricReconcileFailed, statSum),
			e.serviceMetric("ledger", service.ReadyMetric(service.ProbeLedger), statMin),
		},
		expression: "IF(FILL(ledger, 1) > 0, failed)",
		period:     minutes5,
		periods:    3,
		breaching:  2,
	}}
}

// percentile returns two series for an alarm on durations: their 95th percentile, and the
// number of samples. The alarm's expression needs that number to ignore periods with too few
// samples.
func (e *envelope) percentile(of string) []series {
	return []series{e.serviceMetric("p95", of, statP95), e.serviceMetric("n", of, statCount)}
}

// deadlineOfTools returns the shortest deadline of the operations that make a lookup.
func deadlineOfTools() time.Duration {
	least := time.Hour
	for _, o := range catalog.All() {
		if o.Kind != catalog.SmokeTest { // the smoke test makes no lookup
			least = min(least, o.Deadline)
		}
	}
	return least
}

// The CloudWatch statistics that alarms and graphs use.
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
	missingIgnore = "ignore"
	// missingTells makes the alarm notify its topic when the metric has no more data.
	missingTells = "missing"
)

// Alarm periods, in seconds.
const (
	minutes5  = 5 * 60
	minutes15 = 15 * 60
	hour      = 60 * 60
	day       = 24 * hour
)

// series is a CloudWatch metric with a statistic.
type series struct {
	id              string // its name in the alarm's expression
	namespace, name string
	stat            string
}

// alarm describes an alarm. The alarm goes off when the value of its only series, or of its
// expression over several series, is above its bound (or below it, if below is set).
type alarm struct {
	name       string // unique, in kebab case; the runbook has an entry with this name
	means      string
	of         []series
	expression string
	bound      float64
	below      bool   // whether the alarm goes off below the bound; otherwise it goes off above the bound
	period     int    // length of a period, in seconds
	periods    int    // how many of the latest periods the alarm evaluates; 0 means 1
	breaching  int    // in how many of these periods the value must be beyond the bound; 0 means in all of them
	missing    string // how the alarm treats a period without data; empty means missingGood
}

// alarm creates an alarm that notifies a topic when it goes off, but not when all is well again.
func (e *envelope) alarm(a alarm, topic *string) {
	comparison := "GreaterThanThreshold"
	actions := []*string{topic}
	if a.below {
		comparison = "LessThanThreshold"
	}
	periods := max(a.periods, 1)
	missing := cmp.Or(a.missing, missingGood)
	properties := object{
		"AlarmName":          e.settings.stack + "-" + a.name,
		"AlarmDescription":   a.means + " " + catalog.Runbook + "#alarm-" + a.name,
		"AlarmActions":       actions,
		"ComparisonOperator": comparison,
		"Threshold":          a.bound,
		"TreatMissingData":   missing,
		"EvaluationPeriods":  periods,
		"DatapointsToAlarm":  cmp.Or(a.breaching, periods),
	}
	if missing == missingTells {
		properties["InsufficientDataActions"] = actions
	}
	metric := func(s series) object { return object{"Namespace": s.namespace, "MetricName": s.name} }
	if one := a.of[0]; a.expression == "" {
		maps.Copy(properties, metric(one))
		properties["Statistic"] = one.stat
		properties["Period"] = a.period
	} else {
		var queries []any
		for _, s := range a.of {
			stat := object{"Metric": metric(s), "Period": a.period, "Stat": s.stat}
			queries = append(queries, object{"Id": s.id, "ReturnData": false, "MetricStat": stat})
		}
		properties["Metrics"] = append(queries, object{
			"Id":         "value",
			"ReturnData": true,
			"Expression": a.expression,
		})
	}
	e.add(sam.Pascal(a.name)+"Alarm", "CloudWatch::Alarm", properties)
}

// serviceMetric returns a series: a statistic of one of the service's metrics, over all
// operations together. Expressions refer to the series by id.
func (e *envelope) serviceMetric(id, name, stat string) series {
	return series{id: id, namespace: service.Namespace(e.settings.stack), name: name, stat: stat}
}

// budgetAlarm creates a budget that notifies the topic when 80 % of the monthly limit is
// spent, or when the forecast reaches the limit. The budget covers the whole account, because
// AWS knows the cost of a stack only if the stack's tags are activated for billing.
// CloudFormation chooses the budget's name, for two reasons. Budget names must be unique in
// the account over all regions. A change of the notifications replaces the budget, and the
// replacement would fail if the new budget had the old name.
func (e *envelope) budgetAlarm(topic *string) awscdk.CfnResource {
	when := func(kind string, percent float64) object {
		return object{
			"Notification": object{
				"NotificationType":   kind,
				"ComparisonOperator": "GREATER_THAN",
				"Threshold":          percent,
				"ThresholdType":      "PERCENTAGE",
			},
			"Subscribers": []any{object{"SubscriptionType": "SNS", "Address": topic}},
		}
	}
	return e.add("Budget", "Budgets::Budget", object{
		"Budget": object{
			"BudgetType":  "COST",
			"TimeUnit":    "MONTHLY",
			"BudgetLimit": object{"Amount": e.budget, "Unit": "USD"},
		},
		"NotificationsWithSubscribers": []any{when("ACTUAL", 80), when("FORECASTED", 100)},
	})
}
