// Package gameday makes every dependency of the deployed service fail once, with
// the functions as make build builds them and the template deploys them. It checks
// what clients see, what is owed afterwards, and which alarms go off. make gameday
// runs it and prints the report.
//
// The test binary starts itself again in a new network namespace. There
// every address of IPv4 is on the loopback interface, so each scenario has a
// separate world: public addresses with an HTTPS origin and an RDAP registry,
// a resolver, a play-money facilitator and a node of its chain, a DynamoDB
// table behind a proxy, and the functions behind the Lambda host. No packet can
// leave the namespace.
//
// A scenario begins without faults, then something fails, then it is repaired.
// Afterwards every payer sends the same signature again until there is a final
// answer. Then the facilitator has at most one transfer for each authorization, and
// money has moved exactly for those payers who were answered or whom make owed
// lists. make books finds no difference between the table and the chain.
//
// Alarms are read from the template that the CDK app synthesizes, and judged from what the
// functions print and from what is counted in the gateway's log. Time is compressed: a scenario
// is a sequence of rounds, and the output of one round is one period of every alarm, whether
// that is 5 minutes or 15. A line belongs to the round in which its own timestamp lies; none is
// copied. An alarm on four periods needs four rounds, in each of which reconcile runs.
//
// The code that is not a test simulates as much of Amazon CloudWatch as it takes to decide
// whether an alarm of this deployment would go off: metrics from log lines, by the embedded
// format or by a filter, statistics, metric math, and the evaluation of alarms as a synthesized
// template defines them. An unknown property, statistic or function is an error and is never
// skipped, because half a definition decides nothing. Time is a number of periods, if the caller
// says to which period values belong (History), or of minutes, in each of which an alarm is
// evaluated with the values so far (Minutes).
package gameday
