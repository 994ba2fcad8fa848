package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// TestMutants checks that every mutant can be made and tried. The old text must occur once in
// the file, and must have no comment at the end of a line. The new text must be different. The
// changed file must compile, and the mutant's test must exist. Without TestMutants, a mutant
// that cannot be tried would be noticed only when someone tries all mutants, which takes an
// hour.
func TestMutants(t *testing.T) {
	lists, err := filepath.Glob("../prove/mutants/*.toml")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no lists of mutants: %v", err)
	}
	var made []madeMutant
	for _, list := range lists {
		mutants := mutantsOf(t, list)
		if len(mutants) == 0 {
			t.Errorf("%s lists no mutants", list)
		}
		for _, m := range mutants {
			checkTestOf(t, list, m)
			text, ok := applyMutant(t, list, m)
			if ok && strings.HasSuffix(m.File, ".go") {
				made = append(made, madeMutant{mutant: m, list: list, text: text})
			}
		}
	}
	checkCompile(t, made)
}

// applyMutant returns the text of a mutant's file after the mutant's change. ok is false if
// the change cannot be made.
func applyMutant(t *testing.T, list string, m mutant) (text string, ok bool) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("../..", m.File))
	if err != nil {
		t.Errorf("%s, %q: %v", list, m.What, err)
		return "", false
	}
	if found := strings.Count(string(source), m.Old); found != 1 {
		t.Errorf("%s, %q: its text occurs %d times in %s, not once:\n%s", list, m.What, found, m.File, m.Old)
		return "", false
	}
	if strings.Contains(m.Old, " // ") {
		t.Errorf("%s, %q quotes a comment, so a change of the comment would break the mutant", list, m.What)
	}
	if m.Old == m.New {
		t.Errorf("%s, %q changes nothing", list, m.What)
	}
	return strings.Replace(string(source), m.Old, m.New, 1), true
}

// mutant is an entry of a file in infra/prove/mutants. The text New replaces the text Old in the
// file File. With the arguments Test, go test must then fail.
type mutant struct {
	What, File, Old, New, Test string
}

// madeMutant is a mutant of a Go file, with the whole changed file.
type madeMutant struct {
	mutant
	list, text string
}

func mutantsOf(t *testing.T, list string) []mutant {
	t.Helper()
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Mutants []mutant `toml:"mutant"`
	}
	if err := toml.Unmarshal(text, &file); err != nil {
		t.Fatalf("%s: %v", list, err)
	}
	return file.Mutants
}

// declaredTest matches the declaration of a test that go test -run can choose.
var declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// checkTestOf checks m.Test, the arguments of go test. They must name a package of the
// repository, and each pattern of -run in them must match a test of that package.
func checkTestOf(t *testing.T, list string, m mutant) {
	t.Helper()
	arguments := strings.Fields(m.Test)
	folder := "../.."
	if len(arguments) > 2 && arguments[0] == "-C" {
		folder = filepath.Join(folder, arguments[1])
		arguments = arguments[2:]
	}
	if len(arguments) == 0 {
		t.Errorf("%s, %q names no test", list, m.What)
		return
	}
	files, err := filepath.Glob(filepath.Join(folder, arguments[0], "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s, %q: %s has no tests (%v)", list, m.What, arguments[0], err)
		return
	}
	var declared []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range declaredTest.FindAllStringSubmatch(string(source), -1) {
			declared = append(declared, found[1])
		}
	}
	run := slices.Index(arguments, "-run")
	if run < 0 {
		return
	}
	if run+1 == len(arguments) {
		t.Errorf("%s, %q: -run without a pattern", list, m.What)
		return
	}
	for pattern := range strings.SplitSeq(arguments[run+1], "|") {
		name, _, _ := strings.Cut(pattern, "/") // the text after the slash names a subtest
		matches, err := regexp.Compile(name)
		if err != nil {
			t.Errorf("%s, %q: %v", list, m.What, err)
			continue
		}
		if !slices.ContainsFunc(declared, matches.MatchString) {
			t.Errorf("%s, %q: %s has no test %s", list, m.What, arguments[0], name)
		}
	}
}
