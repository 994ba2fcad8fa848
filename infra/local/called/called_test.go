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
	if got, want := byMake.Of("pay", again)+", "+alone.Of("pay", again), "make pay AGAIN=1, operate -again 1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
