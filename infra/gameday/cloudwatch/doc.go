// Package cloudwatch is as much of Amazon CloudWatch as it takes to say whether
// an alarm would go off: metrics out of log lines, by the embedded format or by a
// filter, statistics, metric math, and
// the evaluation of alarms as a synthesized template defines them.
//
// A property, statistic or function that it does not know is an error, never
// skipped: an alarm that is judged by half of its definition is not judged.
//
// Time is a number of periods. Who brings the values says which period they
// belong to, so that one period of an alarm can be a round of a test.
package cloudwatch
