// Package storm contains only a test. In it, several processes of a shop share one ledger
// file. The shop is a chi router that sells a GET handler and a POST handler, over HTTP and as
// tools of the Model Context Protocol. The processes are killed (SIGKILL) again and again. The
// clocks of the processes may disagree. A handler may fail, panic, end its process or exceed
// its time limit. The facilitator may settle a payment and say that it did not, refuse the
// payment, give no answer, or settle much later. The node that the processes ask lags behind
// the chain and is often down. For each try, a client signs a new payment or repeats the last
// one, and uses HTTP or a tool. Clients lose replies, and buy the same thing again.
//
// Afterwards, the processes run once more without faults, some of the clients come back, and
// Seller.Reconcile runs. Then the test checks every transfer of money. A purchase may be
// charged again only if its previous payment was answered and that answer could no longer be
// returned. Each transfer must be answered, or listed as an owed answer, or listed as a refund
// that is due. If the shop asks no node, a transfer may also be listed as in doubt, or as
// refused by the facilitator. No answer may have been given without money.
//
// This test uses real processes in real time. A seed decides what the clients do and in what
// order faults come, but two runs with the same seed differ, because they also depend on the
// clock and the scheduler. The checks do not depend on how busy the machine is. "make storm"
// runs 1,000 purchases.
package storm
