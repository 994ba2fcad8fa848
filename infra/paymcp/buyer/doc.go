// Package buyer buys answers from tools, with one charge for each question.
//
// The same tool with the same arguments is one purchase while it has no answer, and for Window
// after its answer. Its signature is on disk before it is sent, and the next call for the same
// question sends the same signature again, whether it is the host's repeat, a restarted process
// or another process on the same folder. A server can execute a signature only once, so sending
// it again never charges twice. The package decides when another signature may be made for a
// purchase whose signature was sent:
//
//   - the server refused it and says that it was not charged: at once;
//   - the server refused it, and the chain says that it never moved money: then;
//   - without a chain to ask, it has expired, and the server refused it every time that it was
//     sent, before it tried to settle: then;
//   - anything else, above all a signature that was sent and had no answer: never by itself. A
//     person who knows that it was not charged can say so (pay-mcp forget).
//
// Whatever a server says, the book of package purse counts each signature for 24 hours.
package buyer
