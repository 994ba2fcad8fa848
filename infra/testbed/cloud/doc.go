// Package cloud replaces AWS in the suites: servers that are compatible with DynamoDB, and a
// host of functions behind an HTTP API. It is separate from package testbed so that tests of
// packages for sellers need nothing from AWS.
package cloud
