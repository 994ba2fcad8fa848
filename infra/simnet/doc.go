// Package simnet holds a small internet in a Linux network namespace, and the
// table of paid requests to the built service in it; all of it is tests.
//
// The test binary builds the local runner, starts itself again in a user, network and
// mount namespace, and there gives every address of IPv4 to the loopback
// interface. So the runner works with its production settings: it asks 1.1.1.1, 8.8.8.8
// and 9.9.9.10, connects to public addresses on port 443 and trusts the certificates of
// registries by SSL_CERT_FILE. Only its limits are off, because all cases are one
// client. There is no uplink: nothing can leave. make simnet opens a shell in it. The
// functions, as the template deploys them, answer the same table in it.
//
// With -rtt, the runner, those who pay and the shell are in a second network namespace.
// A TUN device in each and a forwarder in this process join the two: it hands every
// packet on in its order, half a round trip after it came. With -broken it also loses some, by a
// seeded generator, and the first resolver is dead or slow: what lookups take then is measured
// beside dig and curl, for make bench.
//
// To add a case, add a line to sites_linux_test.go: a row asks about a host of the tables. What
// the package of a lookup proves of peers on loopback is not repeated here: the rows are every
// code, and every field, of the whole service. testdata/corpora holds addresses that are not
// public, and redirects that try to lead to such. A tap on the namespace's packets sees every
// attempt to connect.
package simnet
