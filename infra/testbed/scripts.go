package testbed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Script plays one section of a script.
type Script interface {
	// Prepare handles a line that begins with %, which sets up the section.
	Prepare(line string)
	// Command runs a line that begins with $, and returns its output.
	Command(line string) string
}

// Scripts runs the scripts of testdata. A script is a file of sections, which begin with "== "
// and a name. A line of a section that begins with % prepares the section. A line that begins
// with $ is a command; the lines below it are its expected output. If update is true, the output
// is written into the file instead of being compared.
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
			said := body // unchanged if the section does not run
			t.Run(filepath.Base(name)+" "+title, func(t *testing.T) {
				said = play(start(t), body)
				if diff := cmp.Diff(body, said); diff != "" && !update {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
			got += "== " + title + "\n" + said
		}
		if update {
			Check(os.WriteFile(name, []byte(got), 0o600))
		}
	}
}

// play runs the lines of a section, and returns the section with their new output.
func play(s Script, section string) string {
	said := ""
	for line := range strings.Lines(section) {
		sign, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch sign {
		case "%":
			said += line
			s.Prepare(rest)
		case "$":
			said += line + s.Command(rest)
		}
	}
	return said
}
