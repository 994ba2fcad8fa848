// Package simnet holds a small internet in a Linux network namespace, and the
// table of paid requests to the built service in it; all of it is tests.
//
// The test binary builds the local runner, starts itself again in a user,
// network and mount namespace of its own, and there gives every address of
// IPv4 to the loopback interface. So the runner works with its production
// settings: it asks 1.1.1.1, 8.8.8.8 and 9.9.9.10, connects to public
// addresses on port 443 and trusts the certificates of registries by
// SSL_CERT_FILE. Only its limits are off, because all cases are one client.
// There is no uplink: nothing can leave. make simnet opens a shell in it.
//
// To add a case, add a line to one of the table_*_test.go files, and where it
// needs a host of its own, one to hosts_test.go. Every answer is held to the
// shape that the catalog gives and to what package fault says about its code;
// a line says what is special about it. A tap on the namespace's packets sees
// every address that anybody tries to connect to, and no connection to one
// that is not public may be among them.
//
// Machines without the ip command, and those that do not permit unprivileged
// namespaces, skip the tests with the reason.
package simnet
