// Package snippets runs the programs of the documentation page as they are
// shown: it starts the whole service, reads the page that it serves, saves each
// program under the name that the page gives it, and runs the command that the
// page says. There is nothing here but tests.
package snippets
