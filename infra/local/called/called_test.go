package called

import (
	"runtime/debug"
	"testing"
)

func TestProgramOf(t *testing.T) {
	t.Parallel()
	const pkg = "example.com/m/cmd/operate"
	at := func(version string) *debug.BuildInfo {
		return &debug.BuildInfo{Path: pkg, Main: debug.Module{Path: "example.com/m", Version: version}}
	}
	for name, c := range map[string]struct {
		name  string
		build *debug.BuildInfo
		want  string
	}{
		"go run at a version": {"/tmp/go-build1/b001/exe/operate", at("v1.2.3"), "go run " + pkg + "@v1.2.3"},
		"go run in a clone":   {"/tmp/go-build1/b001/exe/operate", at("(devel)"), "operate"},
		"installed":           {"operate", at("v1.2.3"), "operate"},
		"in this folder":      {"./operate", at("v1.2.3"), "./operate"},
		"without a build":     {"/bin/operate", nil, "/bin/operate"},
	} {
		if got := programOf(c.name, c.build); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	words := []Word{{Name: "KEY", Value: "'a|b'"}, {Name: "TO", Flag: "-to", Value: "copy"}, {Name: "FORCE", Flag: "-force"}}
	env := map[string]string{Variable: "make"}
	byMake := Here(func(name string) string { return env[name] }, "/tmp/operate")
	if got, want := byMake.Command("refund", words...), "make refund KEY='a|b' TO=copy FORCE=1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	alone := Here(func(string) string { return "" }, "operate")
	if got, want := alone.Command("refund", words...), "operate refund 'a|b' -to copy -force"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	again := Word{Name: "AGAIN", Flag: "-again", Value: "1"}
	if got, want := byMake.Target("pay", again)+", "+alone.Target("pay", again), "make pay AGAIN=1, operate -again 1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestVersionOf(t *testing.T) {
	t.Parallel()
	const commit = "0123456789012345678901234567890123456789"
	built := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{
			GoVersion: "go1.26.0", Path: "example.com/m/cmd/operate",
			Main: debug.Module{Path: "example.com/m", Version: version}, Settings: settings,
		}
	}
	at := debug.BuildSetting{Key: "vcs.revision", Value: commit}
	changed := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for name, c := range map[string]struct {
		build *debug.BuildInfo
		want  string
	}{
		"a release":           {built("v1.2.3"), "operate of example.com/m v1.2.3, go1.26.0"},
		"a commit":            {built("v1.2.3", at), "operate of example.com/m v1.2.3, commit " + commit + ", go1.26.0"},
		"a changed clone":     {built("(devel)", at, changed), "operate of example.com/m (devel), commit " + commit + " with changes, go1.26.0"},
		"without its commit":  {built("(devel)"), "operate (devel), go1.26.0, of example.com/m; built in a clone, where git rev-parse HEAD prints the commit"},
		"without its version": {built(""), "operate (devel), go1.26.0, of example.com/m; built in a clone, where git rev-parse HEAD prints the commit"},
		"without a build":     {nil, "pay of an unknown version"},
	} {
		if got := versionOf("pay", c.build); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestVersionIsAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want bool
	}{
		{[]string{"pay", "--version"}, true},
		{[]string{"pay", "-version"}, true},
		{[]string{"pay"}, false},
		{[]string{"judge", "-url", "http://127.0.0.1:1", "node", "--version"}, false}, // judge passes the last argument on to the seller's program
	} {
		if line, asked := Version(c.args); asked != c.want || (line != "") != c.want {
			t.Errorf("%q: %q, %v", c.args, line, asked)
		}
	}
}
