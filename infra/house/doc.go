// Package house checks properties of the source tree that its readers rely on: files and
// functions of limited size, no new import cycle of folders, and generated styles, scripts and
// highlighted programs that match their sources.
//
// It is a separate module because it needs tools: a measure of complexity, a highlighter and a
// minifier. A program that imports the module of this repository must not depend on these tools.
// Package house imports nothing from that module.
package house
