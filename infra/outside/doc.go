// Package outside does what a reader of README does, in an empty folder: it clones this tree,
// runs the service and pays with the printed commands; it compiles and runs the printed program
// of a seller; it runs the operator's commands at a version, and lists the modules that a
// seller's program depends on. All of it is tests.
//
// The tree is packed into a module proxy of files (infra/testbed/modproxy) and into a git
// repository; dependencies come from this machine's module cache. The programs of README listen
// where README says, in a network namespace of the suite.
package outside
