// Package storm has only a test. In it several processes of a shop, a chi router, share one
// ledger file. They sell a GET handler and a POST handler, over HTTP and as tools of the Model
// Context Protocol. They are killed (SIGKILL) all the time. Their clocks disagree, their
// handlers fail, panic, end their process, or take longer than they may. Their facilitator
// settles and says that it did not, refuses, is silent, or settles much later, and the node that
// they ask is behind and often down. The clients sign again or repeat their payment, change the
// transport from try to try, lose replies, and buy the same thing again.
//
// Afterwards, the processes are started once more without faults, some of the clients come back,
// and Seller.Reconcile runs. Then every transfer of money is judged. Its purchase was charged
// once while its answer stood, and the transfer is answered, owed and listed, or due back and
// listed. Nobody was answered without money.
//
// Unlike the other tests of this repository, it uses real processes in real time. It has a seed,
// which decides what clients do and in what order faults come, but two runs with one seed
// differ, because the clock and the scheduler take part. The checks do not depend on how busy
// the machine is. "make storm" runs 1,000 purchases.
package storm
