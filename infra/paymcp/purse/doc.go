// Package purse keeps on disk what must not be forgotten when a process is killed: what may be
// spent and to whom (Allowance), what was signed in the last day (the book, by Reserve), and
// each purchase with its signature and its answer (Purchase). Several processes may use one
// folder at once.
//
// A signature is in the book before it is in a purchase, and in the file of its purchase
// before it is sent. So the budget counts every signature that a server can have, whatever
// the server says of it: one that was refused can still be settled until it expires.
package purse
