// Package storm has no code but a test. In it several processes of a shop, which is a router
// of chi, share one ledger file. They sell a GET handler and a POST handler, over HTTP and as
// tools of the Model Context Protocol. They are killed (SIGKILL) all the time. Their clocks
// disagree, their handlers fail, panic, end their process, or take longer than they may. Their
// facilitator settles and says that it did not, refuses, is silent, or settles much later, and
// the node that they ask is behind and often down. The clients sign again or repeat their
// payment, change the transport from try to try, lose replies, and buy again what they have.
//
// When all that is over, the processes are started once more without faults, a part of the
// clients come back, and Seller.Reconcile runs. Then every transfer of money is judged. Its
// purchase was charged once while its answer stood, and the transfer is answered, owed and
// listed, or due back and listed. Nobody was answered without money.
//
// Unlike the other tests of this repository it is about real processes in real time. It has a
// seed, which decides what clients do and in what order faults come, but two runs with one seed
// are not the same: the clock and the scheduler are parts of it. What it judges does not depend
// on how busy the machine is. "make storm" runs 1,000 purchases.
package storm
