package called

import (
	"cmp"
	"path"
	"runtime/debug"
)

// Version returns the line that a command prints when -version or --version is its only
// argument. args are the arguments of the process, beginning with its name.
func Version(args []string) (line string, asked bool) {
	if len(args) != 2 || args[1] != "-version" && args[1] != "--version" {
		return "", false
	}
	build, _ := debug.ReadBuildInfo()
	return versionOf(path.Base(args[0]), build), true
}

// versionOf returns the version of the module and the commit that a program was built from.
// make builds without the commit, which git knows in a clone.
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
	line := path.Base(build.Path) + " of " + build.Main.Path + " " + version
	switch commit := settings["vcs.revision"]; {
	case commit != "" && settings["vcs.modified"] == "true":
		line += ", commit " + commit + " with changes"
	case commit != "":
		line += ", commit " + commit
	case version == clone:
		line += ", built in a clone: git rev-parse HEAD prints its commit"
	}
	return line + ", " + build.GoVersion
}
