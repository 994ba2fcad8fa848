// Package called formats the commands of this module as a person must type them. If make
// started the running program, commands are make targets. Otherwise they begin with the name
// by which the program was called. Messages use this package to print the next command.
package called

import (
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// Variable is the name of an environment variable. The recipes of the Makefile set it to
// "make".
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

// programOf returns what a person types to run the program again. After go run
// package@version, the program's own name is an absolute path in a temporary folder, so
// programOf returns the go run command instead. After go run in a clone, it returns the last
// element of the path of the package.
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

// Program returns what a person types before the name of a command: the name of the running
// program. If make called the program, it returns the given text instead, such as "make".
func (a As) Program(fallback string) string {
	if a.ByMake() {
		return fallback
	}
	return a.program
}

// Word is one argument of a command line. On a make command line, the argument has a name, as
// in KEY=... On the program's own command line, the argument follows a flag or is positional.
type Word struct {
	Name  string
	Flag  string // the flag with its dash; empty for a positional argument
	Value string // the value, quoted for a shell; empty if the flag takes no value: make then gets NAME=1
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

// Command returns the command line for one command of a program that has several commands. Each
// of these commands has its own make target.
func (a As) Command(name string, words ...Word) string {
	return a.commandLine(a.Program("make")+" "+name, words)
}

// Target returns the command line for a program that has a single make target.
func (a As) Target(target string, words ...Word) string {
	return a.commandLine(a.Program("make "+target), words)
}

func (a As) commandLine(begin string, words []Word) string {
	for _, w := range words {
		begin += " " + a.Text(w)
	}
	return begin
}
