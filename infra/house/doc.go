// Package house checks properties of the source tree that its readers rely on: files and
// functions of limited size, no further import cycle of folders, and generated styles, scripts
// and highlighted programs that match their sources.
//
// It is a separate module because it needs a measure of complexity, a highlighter and a
// minifier, and a program that imports the module above does not depend on these. It imports
// nothing from that module.
package house
