// Package gameday plays a day on which everything breaks, with the functions as
// make build builds them and the template deploys them, and looks at what
// clients see, what is owed afterwards, and which alarms go off; all of it is
// tests. make gameday runs it and prints the report.
//
// The test binary starts itself again in a network namespace of its own. There
// every address of IPv4 is on the loopback interface, so each scenario has a
// world to itself: public addresses with an HTTPS origin and an RDAP registry,
// three resolvers, a play-money facilitator and a node of its chain, a DynamoDB
// table behind a proxy, and the functions behind the Lambda host. Nothing can leave.
//
// A scenario is calm, then something breaks, then it is mended. Afterwards every
// payer sends the same signature again until there is a final answer. Then the
// books have at most one transfer for each authorization, and money has moved
// exactly for those who were answered or whom make owed lists.
//
// Alarms are read from the template that the CDK app synthesizes, and judged by
// package cloudwatch from what the functions printed and from what Lambda
// measures. Time is compressed: a scenario is a sequence of rounds, and whatever
// is printed in one round is one period of every alarm, be that 5 minutes or 15.
// A line belongs to the round in which its own timestamp lies; none is copied.
// An alarm on four periods needs four rounds, in each of which reconcile runs.
package gameday
