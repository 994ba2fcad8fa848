// Package bill is what a client that pays does with what a server asks for: it reads the ways
// to pay, signs one of them with a key from a file, and holds the signed receipt to what came.
package bill
