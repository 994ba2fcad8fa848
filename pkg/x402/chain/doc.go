// Package chain answers x402.Evidence from an Ethereum node over JSON-RPC: did
// this EIP-3009 authorization move money to us?
//
// What it says, and on what:
//
//	the authorization's own Transfer, to the payee, of the value   Paid
//	  the same, in a block over 60 s older than the first claim    NeverPaid
//	  to another account, or of another value                      NeverPaid
//	AuthorizationCanceled                                          NeverPaid
//	spent, and spent already over 60 s before the first claim      NeverPaid
//	unused at latest, latest before validBefore                    StillOpen
//	unused at latest, safe before validBefore                      StillOpen
//	unused at latest and at safe, safe past validBefore            NeverPaid
//	everything else                                                CannotTell
//
// That an authorization is used does not prove a payment: authorizationState is
// true after a cancellation, too, and a third party can submit an authorization
// that it copied. So the log of the authorization itself, and the transfer that it
// made, decide. The authorization's own Transfer is the token's log with the next
// log index, because USDC emits the two one after the other; a transaction that
// holds several payments is read one payment at a time.
//
// A receipt counts at the latest head. A refusal by time needs a block that
// the node calls safe (or finalized, if it does not know safe), so that no
// reorganisation makes the authorization executable again. No refusal of any kind
// is taken from a node whose latest block is minutes away from our clock.
//
// Only complete and consistent replies count: a malformed reply, a log that a
// reorganisation removed, a receipt of another block than its log's, and two
// statements that contradict each other are all CannotTell with a cause.
//
// Calls per answer, beside one eth_chainId per Client (the tests count them):
//
//	Paid, the transaction is known               2  receipt, block
//	Paid, it has to be searched                  5  state, latest, logs, receipt, block
//	another transfer                             5  as above
//	cancelled                                    3  state, latest, logs
//	spent before the first claim                 5  state, latest, logs, block, state
//	open                                         2  state, latest
//	expired, not safe yet                        3  state, latest, safe
//	expired unused                               4  state, latest, safe, state
//	what one transaction has transferred         2  receipt, block (Received)
//
// It also answers x402.Scanner: which transfers have reached a payee since a
// block, up to the newest that the node calls safe, and which authorization
// moved each. Reading by range finds money that a facilitator had called refused,
// and money that came without a request, and its cost depends on what was
// transferred. Asking about each refused payment would do neither. Transfers are searched for by range of blocks, with the last
// block of the range, which the node must have. A transfer is an
// authorization's if the token's log right before it says so in the
// transaction's receipt, which must have the same transfers as the search had;
// its block's header must be the one on the chain. Where that is not bounded,
// because a receipt is too long or a block has more than twenty such
// transactions, the block's AuthorizationUsed logs are searched for instead. A
// run costs two messages if no block is new, three if no transfer is and four
// if one is, and one more for each further 10,000 blocks, or 25 transfers in
// blocks of their own; more where a node caps ranges or batches.
//
// On loopback, with the node on the same two cores, that is 0.2 ms for a known
// transaction and 0.5 ms for a searched one (BenchmarkFind); across a network
// it is the round trips.
package chain
