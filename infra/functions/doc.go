// Package functions tests the built functions, configured by template.yaml: their cold start, the
// AWS permissions that they use, and the scheduled reconcile. All of it is tests.
package functions
