// Package outside has tests that do what a reader of README does, in an empty folder. They
// clone this tree, run the service and pay it with the printed commands; they compile and run
// the printed program of a seller; they run the operator's commands with go run at a version;
// and they list the modules that a seller's program depends on.
//
// The tree is packed into a module proxy of files (infra/testbed/modproxy) and into a git
// repository; dependencies come from this machine's module cache. The programs of README listen
// where README says, in a network namespace of the suite.
package outside
