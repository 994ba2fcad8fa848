// Package gameday makes every dependency of the deployed service fail once. It runs the
// functions that "make build" builds, configured as the template deploys them. It checks what
// clients see, what is owed afterwards, and which alarms go off. "make gameday" runs it and prints
// the report.
//
// The test binary starts itself again in a new network namespace. No packet can leave the
// namespace, and every IPv4 address is on its loopback interface. So each scenario can have a
// separate world: an HTTPS origin and an RDAP registry at public addresses, a resolver, a
// play-money facilitator and a node of its chain, a DynamoDB table behind a proxy, and the
// functions behind the Lambda host.
//
// A scenario begins without faults, then something fails, then it is repaired. Afterwards
// every payer sends the same signature again until there is a final answer. At the end, the
// facilitator must have made at most one transfer for each authorization. A payer's money must
// have moved if and only if the payer got an answer or "make owed" lists the payer. "make books"
// must find no difference between the table and the chain.
//
// Alarms are read from the template that the CDK app synthesizes. They are evaluated from the
// output of the functions and from the metrics counted in the gateway's log. Time is
// compressed: a scenario is a sequence of rounds, and each round counts as one period of every
// alarm, whether the period is 5 minutes or 15 minutes long. A line belongs to the round that
// contains its timestamp. An alarm that evaluates four periods needs four rounds. Reconcile
// runs in every round.
//
// The code outside of tests simulates the parts of Amazon CloudWatch that decide whether an
// alarm of this deployment goes off: metrics from log lines (in the embedded metric format, or
// by a filter), statistics, metric math, and the evaluation of alarms as a synthesized template
// defines them. An unknown property, statistic or function is always an error, because an alarm
// with an incomplete definition cannot be evaluated. Time can be counted in two ways: in periods,
// if the caller assigns values to periods (History), or in minutes, if an alarm is evaluated
// every minute with the values so far (Minutes).
package gameday
