// Package filelock lets one process at a time do something, by the lock of a file.
// The suites install and build what they share below it.
package filelock
