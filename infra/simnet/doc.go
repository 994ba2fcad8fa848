// Package simnet has tests that run the built service in a small internet, which is simulated
// in a Linux network namespace. A table of paid requests lists the expected answers.
//
// The test binary builds the local runner and starts itself again in a user, network and mount
// namespace. There it assigns every IPv4 address to the loopback interface. So the runner
// works with its production settings: it queries the resolvers 1.1.1.1, 8.8.8.8 and 9.9.9.10,
// connects to public addresses on port 443, and gets the certificate authority of the
// simulated hosts from SSL_CERT_FILE. Only the runner's limits are off, because all requests
// come from one client. The namespace has no uplink, so no packet can leave it. "make simnet"
// opens a shell in it. The same requests are also sent to the functions, which run as the
// template deploys them.
//
// With -rtt, the runner, the payers and the shell are in a second network namespace. Each
// namespace has a TUN device, and a forwarder in this process connects the two devices. It
// forwards packets in order, each half a round trip after it arrived. With -broken the
// forwarder also loses packets, chosen by a seeded generator, and the first resolver is dead
// or slow. "make bench" then compares how long lookups take with how long dig and curl take
// for the same lookups.
//
// To add a case, add a row to sites_linux_test.go. Each row requests an operation for one of
// the hosts there. The rows cover every code and every field of the whole service. They do not
// repeat what the tests of the lookup packages cover with servers on loopback.
// testdata/corpora has addresses that are not public, and redirects that try to lead to such
// addresses. A tap on the namespace's packets sees every attempt to connect.
package simnet
