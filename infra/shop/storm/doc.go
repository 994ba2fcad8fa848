// Package storm contains only a test. In it, several processes of a shop share one ledger
// file. The shop is a chi router that sells a GET handler and a POST handler, over HTTP and as
// tools of the Model Context Protocol. The processes are killed (SIGKILL) all the time. Their
// clocks disagree, and their handlers fail, panic, end the process or take longer than they
// may. Their facilitator settles and says that it did not, refuses, does not answer, or
// settles much later. The node that the processes ask lags behind the chain and is often down.
// The clients sign again or repeat their payment, change the transport from try to try, lose
// replies, and buy the same thing again.
//
// Afterwards, the processes run once more without faults, some of the clients come back, and
// Seller.Reconcile runs. Then the test checks every transfer of money. Each purchase must have
// been charged only once while its answer could be returned. Each transfer must be answered,
// or listed as an owed answer, or listed as a refund that is due. No answer may have been
// given without money.
//
// Unlike the other tests of this repository, this test uses real processes in real time. A
// seed decides what the clients do and in what order faults come, but two runs with the same
// seed differ, because they also depend on the clock and the scheduler. The checks do not
// depend on how busy the machine is. "make storm" runs 1,000 purchases.
package storm
