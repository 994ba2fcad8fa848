// Package cloud replaces AWS in the tests. It starts servers that are compatible with DynamoDB,
// and it runs functions behind an HTTP API. It is not part of package testbed, because tests of
// packages for sellers must not import the AWS SDK.
package cloud
