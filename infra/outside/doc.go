// Package outside does what somebody does who has no clone, in an empty folder: the program
// that README prints is compiled, run and paid by the commands that it prints; the
// operator's commands are run at a version; and what a seller's program depends on is
// counted. All of it is tests.
//
// The tree is packed into a proxy of files (infra/testbed/modproxy), and dependencies come
// from this machine's module cache. The programs of README listen where README says, in a
// network of the suite's own.
package outside
