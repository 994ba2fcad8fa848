package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// TestMutants looks whether every mutant can still be made: the text that it changes
// occurs in its file once. One that cannot be made proves nothing, and is noticed only when
// somebody runs all of them, which takes an hour.
func TestMutants(t *testing.T) {
	lists, err := filepath.Glob("../prove/mutants/*.toml")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no lists of mutants: %v", err)
	}
	for _, list := range lists {
		var rooms struct {
			Mutants []struct {
				What, File, Old, New, Test string
			} `toml:"mutant"`
		}
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		if err := toml.Unmarshal(text, &rooms); err != nil {
			t.Fatalf("%s: %v", list, err)
		}
		if len(rooms.Mutants) == 0 {
			t.Errorf("%s lists no mutants", list)
		}
		for _, m := range rooms.Mutants {
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
