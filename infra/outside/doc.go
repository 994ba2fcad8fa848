// Package outside has tests that do what a reader of README does, in an empty folder. They
// clone this tree, run the service and pay it with the printed commands; they compile and run
// the printed program of a seller; they run the operator's commands with "go run" and a
// version; and they list the modules that a seller's program depends on.
//
// The tests pack the tree into a module proxy that consists of files (infra/testbed/modproxy),
// and into a git repository. Dependencies come from this machine's module cache. The programs
// of README listen at the addresses that README names, in a network namespace that only these
// tests use.
package outside
