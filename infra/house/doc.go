// Package house holds the tree to what its readers count on: files and functions that can
// be kept in mind, no further circle of folders, and styles, scripts and coloured programs
// of the pages that are made of their sources.
//
// It is a separate module, because it needs what a program never does: a measure of
// complexity, a highlighter and a minifier. Nobody who imports the module above has them
// among the modules that theirs depends on. It imports nothing of that module.
package house
