// Package called knows how a person types the commands of this module: as make targets or,
// without a clone, in the way in which the program was called. A message can therefore show
// the next command as the person must type it.
package called

import (
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// Variable is set to "make" by the recipes of the Makefile.
const Variable = "CALLED_BY"

// As describes how the running program was called. The zero value means that make called it.
type As struct{ program string }

// Here returns how the running program was called, from its environment and its name.
func Here(getenv func(string) string, name string) As {
	if getenv(Variable) == "make" {
		return As{}
	}
	build, _ := debug.ReadBuildInfo()
	return As{programOf(name, build)}
}

// programOf returns what a person types to run the program again. After go run package@version, its
// name is an absolute path in a temporary folder, which nobody can type.
func programOf(name string, build *debug.BuildInfo) string {
	if build == nil || !filepath.IsAbs(name) {
		return name
	}
	if version := build.Main.Version; strings.HasPrefix(version, "v") {
		return "go run " + build.Path + "@" + version
	}
	return path.Base(build.Path)
}

// ByMake reports whether commands are typed as make targets.
func (a As) ByMake() bool { return a.program == "" }

// Program returns what a person types before the name of a command. If make runs the command,
// Program returns the text fallback.
func (a As) Program(fallback string) string {
	if a.ByMake() {
		return fallback
	}
	return a.program
}

// Word is an argument of a command. For make it has a name, as in KEY=...; for the program it
// is a positional argument or follows a flag.
type Word struct {
	Name  string
	Flag  string // with its dash; empty for a positional argument
	Value string // quoted for a shell; empty for a flag without a value, which is NAME=1 for make
}

// Text returns the word as a person types it.
func (a As) Text(w Word) string {
	switch {
	case a.ByMake() && w.Value == "":
		return w.Name + "=1"
	case a.ByMake():
		return w.Name + "=" + w.Value
	}
	return strings.TrimSpace(w.Flag + " " + w.Value)
}

// Command returns a command line for a program with several commands, each of which is a
// target of make.
func (a As) Command(name string, words ...Word) string {
	return a.line(a.Program("make")+" "+name, words)
}

// Of returns a command line for a program that is one target of make.
func (a As) Of(target string, words ...Word) string {
	return a.line(a.Program("make "+target), words)
}

func (a As) line(begin string, words []Word) string {
	for _, w := range words {
		begin += " " + a.Text(w)
	}
	return begin
}
