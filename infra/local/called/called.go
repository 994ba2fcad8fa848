// Package called knows how a person types the commands of this module: as make targets, or,
// without a clone, in the way that the program was called. So the next step in a message can be
// typed where it is read.
package called

import (
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// Variable is set to "make" by the recipes of the Makefile.
const Variable = "CALLED_BY"

// As tells how the running program was called. The zero value means by make.
type As struct{ program string }

// Here returns how the running program was called, from its environment and its name.
func Here(getenv func(string) string, name string) As {
	if getenv(Variable) == "make" {
		return As{}
	}
	build, _ := debug.ReadBuildInfo()
	return As{programOf(name, build)}
}

// programOf returns what a person types to run the program again. A program that go run has
// built at a version is below a temporary folder, by its whole path.
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

// Program returns what a person types before the name of a command, or fallback if that is make.
func (a As) Program(fallback string) string {
	if a.ByMake() {
		return fallback
	}
	return a.program
}

// Word is an argument. For make it has a name, as in KEY=...; for the program it stands
// alone, or behind a flag.
type Word struct {
	Name  string
	Flag  string // with its dash; empty: the word is an argument by its place
	Value string // as a shell takes it; empty: a flag without a value, NAME=1 for make
}

// Text is the word as it is typed.
func (a As) Text(w Word) string {
	switch {
	case a.ByMake() && w.Value == "":
		return w.Name + "=1"
	case a.ByMake():
		return w.Name + "=" + w.Value
	}
	return strings.TrimSpace(w.Flag + " " + w.Value)
}

// Command is a command line of a program that has several commands, each a target of make.
func (a As) Command(name string, words ...Word) string {
	return a.line(a.Program("make")+" "+name, words)
}

// Of is a command line of a program that is one target of make.
func (a As) Of(target string, words ...Word) string {
	return a.line(a.Program("make "+target), words)
}

func (a As) line(begin string, words []Word) string {
	for _, w := range words {
		begin += " " + a.Text(w)
	}
	return begin
}
