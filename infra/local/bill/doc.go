// Package bill is the client's side of a payment. It parses the offer of a server, signs a
// payment in one of the offered ways with a key from a file, and checks the signed receipt
// against the answer.
package bill
