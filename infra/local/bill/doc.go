// Package bill handles a server's request for payment on the client's side: it parses the
// offer, signs one of its ways to pay with a key from a file, and checks the signed receipt
// against the answer.
package bill
