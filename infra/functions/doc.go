// Package functions tests the built functions, configured by template.yaml: their cold start, the
// AWS permissions that they use, and the scheduled reconcile. It has only tests.
package functions
