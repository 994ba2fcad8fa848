// Package purse keeps on disk what must survive if a process is killed: how much may be spent
// and who may be paid (Allowance), what was signed in the last day (the book, written by
// Reserve), and each purchase with its signature and its answer (Purchase). Several processes
// may use one folder at once.
//
// A payment is first recorded in the book, then stored in the file of its purchase, and only
// then sent. So the budget counts every signature that a server can have, even one that the
// server refused, because a refused signature can still be settled until it expires.
package purse
