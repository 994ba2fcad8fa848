package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// TestMutants checks that every mutant can still be made: the text that the mutant changes must
// occur exactly once in the file. Without this test, a mutant that cannot be made would only be
// noticed when someone runs all of them, which takes an hour.
func TestMutants(t *testing.T) {
	lists, err := filepath.Glob("../prove/mutants/*.toml")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no lists of mutants: %v", err)
	}
	for _, list := range lists {
		mutants := mutantsOf(t, list)
		if len(mutants) == 0 {
			t.Errorf("%s lists no mutants", list)
		}
		for _, m := range mutants {
			source, err := os.ReadFile(filepath.Join("../..", m.File))
			if err != nil {
				t.Errorf("%s, %q: %v", list, m.What, err)
				continue
			}
			if found := strings.Count(string(source), m.Old); found != 1 {
				t.Errorf("%s, %q: its text occurs %d times in %s, not once:\n%s", list, m.What, found, m.File, m.Old)
			}
			if m.Old == m.New || m.Test == "" {
				t.Errorf("%s, %q changes nothing, or names no test", list, m.What)
			}
		}
	}
}

// mutant is an entry of a list. New replaces the text Old in File, and then Test must fail.
type mutant struct {
	What, File, Old, New, Test string
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
