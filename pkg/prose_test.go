package pkg_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// proseFile matches a path of this module in backticks or in a Markdown link.
var proseFile = regexp.MustCompile("[`(]((?:pkg|infra|functions|events|\\.ci|\\.github)/[A-Za-z0-9_./-]+)[`)]")

// TestProse checks that the paths that the Markdown files name exist.
func TestProse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"README.md", "infra/RUNBOOK.md", ".github/CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		found := proseFile.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no file", name)
		}
		for _, m := range found {
			if _, err := os.Stat(filepath.Join("..", strings.TrimSuffix(m[1], "/..."))); err != nil {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
}
