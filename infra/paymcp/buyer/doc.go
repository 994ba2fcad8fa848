// Package buyer buys answers from tools, with one charge for each question.
//
// Calls of the same tool with the same arguments are one purchase until the purchase has an
// answer, and for Window after that. A signature is on disk before it is sent. The next call
// for the same question sends the same signature again, even if the process was restarted, or
// if another process uses the same folder. A signature can be executed only once, so sending it
// again never charges twice. After a signature was sent, the package makes another one for the
// same purchase only in these cases:
//
//   - The server refused the signature and says that it did not charge.
//   - The server refused the signature, and the chain says that the signature moved no money and
//     never will.
//   - There is no chain to ask, the signature has expired, and the server refused it every time
//     without an attempt to settle.
//
// In any other case, above all if a signature was sent and got no answer, the package never
// makes another one by itself. A person who knows that the purchase was not charged can
// say so (pay-mcp forget).
//
// Whatever a server says, the book of package purse counts each signature for 24 hours.
package buyer
