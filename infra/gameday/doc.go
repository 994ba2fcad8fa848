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
// Alarms are read from the template that the CDK app synthesizes, and judged from
// what the functions print and from what is counted in the gateway's log. Time is compressed: a
// scenario is a sequence of rounds, and what is printed in one round is one period
// of every alarm, whether that is 5 minutes or 15. A line belongs to the round in
// which its own timestamp lies; none is copied. An alarm on four periods needs four
// rounds, in each of which reconcile runs.
//
// What is not a test is as much of Amazon CloudWatch as it takes to say whether an
// alarm of this deployment would go off: metrics out of log lines, by the embedded
// format or by a filter, statistics, metric math, and the evaluation of alarms as a
// synthesized template defines them. A property, statistic or function that it does
// not know is an error, never skipped: an alarm that is judged by half of its
// definition is not judged. What no alarm here has it does not know. Time is a number of
// periods, where who brings the values says which period they belong to (History), or of
// minutes, in each of which an alarm is evaluated by what has come until then (Minutes).
package gameday
