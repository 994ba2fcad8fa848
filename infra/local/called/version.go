package called

import (
	"cmp"
	"path"
	"runtime/debug"
)

// Version reports whether -version or --version is the only argument of a command. If so, it
// also returns the line that the command then prints. The first element of args is the name of
// the program.
func Version(args []string) (line string, asked bool) {
	if len(args) != 2 || args[1] != "-version" && args[1] != "--version" {
		return "", false
	}
	build, _ := debug.ReadBuildInfo()
	return versionOf(path.Base(args[0]), build), true
}

// versionOf returns a line with the version of the module and the commit from which a program
// was built. A program that make built does not record its commit. In that case the line says
// how to get the commit from git.
func versionOf(name string, build *debug.BuildInfo) string {
	if build == nil {
		return name + " of an unknown version"
	}
	settings := map[string]string{}
	for _, s := range build.Settings {
		settings[s.Key] = s.Value
	}
	const clone = "(devel)" // the version that go build records in a clone
	version := cmp.Or(build.Main.Version, clone)
	program := path.Base(build.Path)
	commit := settings["vcs.revision"]
	if version == clone && commit == "" {
		return program + " " + version + ", " + build.GoVersion + ", of " + build.Main.Path +
			"; built in a clone, where git rev-parse HEAD prints the commit"
	}
	line := program + " of " + build.Main.Path + " " + version
	if commit != "" {
		line += ", commit " + commit
	}
	if commit != "" && settings["vcs.modified"] == "true" {
		line += " with changes"
	}
	return line + ", " + build.GoVersion
}
