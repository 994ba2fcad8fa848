package testbed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Script executes the lines of one section of a script.
type Script interface {
	// Prepare handles a line that begins with %, which sets up the section.
	Prepare(line string)
	// Command runs a line that begins with $, and returns its output.
	Command(line string) string
}

// Scripts runs the scripts of testdata. A script is a file of sections. Each section begins
// with "== " and a name. A line that begins with % prepares the section. A line that begins
// with $ is a command; the lines below it are the command's expected output. If update is
// true, the output is written into the file instead of being compared.
func Scripts(t *testing.T, update bool, start func(*testing.T) Script) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no script in testdata: %v", err)
	}
	for _, name := range files {
		text := Must(os.ReadFile(name))
		got, sections, _ := strings.Cut(string(text), "== ")
		for section := range strings.SplitSeq(sections, "\n== ") {
			title, body, _ := strings.Cut(strings.TrimSuffix(section, "\n")+"\n", "\n")
			result := body // stays unchanged if the section is not run
			t.Run(filepath.Base(name)+" "+title, func(t *testing.T) {
				result = runSection(start(t), body)
				if diff := cmp.Diff(body, result); diff != "" && !update {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
			got += "== " + title + "\n" + result
		}
		if update {
			Check(os.WriteFile(name, []byte(got), 0o600))
		}
	}
}

// runSection executes the lines of a section. It returns the section with the output that the
// commands have now.
func runSection(s Script, section string) string {
	result := ""
	for line := range strings.Lines(section) {
		sign, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch sign {
		case "%":
			result += line
			s.Prepare(rest)
		case "$":
			result += line + s.Command(rest)
		}
	}
	return result
}
