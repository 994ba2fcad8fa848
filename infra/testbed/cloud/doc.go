// Package cloud is what the suites have in the place of AWS: servers that are compatible with
// DynamoDB, and a host of functions behind an HTTP API. It is apart from package testbed so
// that tests of what a seller imports need nothing of AWS.
package cloud
