package house

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var printStats = flag.Bool("stats.print", false, "print the measures of the code, as make stats does")

// Limits for the code. TestStats fails if the code exceeds them.
const (
	mostLines      = 400 // lines of a file
	mostComplexity = 20  // cognitive complexity of a function
)

// Goals for the code. A new feature may exceed them: no test fails.
const (
	goalDensity = 7.3    // tokens per code line; projects that many people read have 6.2 to 7.0
	goalLinked  = 190000 // tokens of all code that is linked into commands
)

// TestStats checks that each file and function is small enough for a reader to keep in mind.
// Folders may import each other only in the circles that knownCircles lists, and each of these
// circles must exist. The total amount of code is not limited. With -stats.print, the test
// prints all measures.
func TestStats(t *testing.T) {
	r := readTree(t)
	checkFiles(t, r)
	checkFunctions(t, r)
	checkFolders(t, r)
	if *printStats {
		printSummary(os.Stdout, r)
		printRooms(os.Stdout, r)
	}
}

func checkFiles(t *testing.T, r tree) {
	for _, f := range r.files {
		if f.lines > mostLines {
			t.Errorf("%s has %d lines, of %d at most", f.name, f.lines, mostLines)
		}
	}
}

func checkFunctions(t *testing.T, r tree) {
	for _, f := range r.files {
		for _, fn := range f.functions {
			if fn.complexity > mostComplexity {
				t.Errorf("%s: %s has a cognitive complexity of %d, of %d at most", f.name, fn.name, fn.complexity, mostComplexity)
			}
		}
	}
}

func checkFolders(t *testing.T, r tree) {
	found, known := folderCircles(r.imports), knownCircles()
	for _, circle := range found {
		if !slices.Contains(known, circle) {
			t.Errorf("these folders import each other: %s", circle)
		}
	}
	for _, circle := range known {
		if !slices.Contains(found, circle) {
			t.Errorf("these folders no longer import each other: take them off knownCircles: %s", circle)
		}
	}
}

// total is the sum of the measures of some files.
type total struct {
	files, lines, longFiles int // longFiles is the number of files with too many lines
	functions               int
	size                    size
	style                   style
	complexities            []int // the cognitive complexity of each function for which it is not 0
}

func (s *total) add(f goFile) {
	s.files++
	s.lines += f.lines
	if f.lines > mostLines {
		s.longFiles++
	}
	s.size.add(f.size)
	s.style.add(f.style)
	s.functions += len(f.functions)
	for _, fn := range f.functions {
		if fn.complexity > 0 {
			s.complexities = append(s.complexities, fn.complexity)
		}
	}
}

// distribution describes the cognitive complexity of functions. Like gocognit, it leaves out
// functions whose complexity is 0. So it can be compared with what gocognit prints for other
// projects.
type distribution struct {
	mean                 float64
	p99, max, aboveLimit int // aboveLimit is the number of functions above the limit
}

func (s *total) complexity() distribution {
	if len(s.complexities) == 0 {
		return distribution{}
	}
	sorted := slices.Sorted(slices.Values(s.complexities))
	var d distribution
	sum := 0
	for _, n := range sorted {
		sum += n
		if n > mostComplexity {
			d.aboveLimit++
		}
	}
	d.mean = float64(sum) / float64(len(sorted))
	d.p99 = sorted[len(sorted)*99/100]
	d.max = sorted[len(sorted)-1]
	return d
}

// printSummary prints the measures of the code that is linked into commands. In a second
// column, it prints the measures of all other code: tests, their helpers, infra/bench, and the
// Go modules that modules() does not return.
func printSummary(w io.Writer, r tree) {
	var linked, others total
	for _, f := range r.files {
		if f.isLinked {
			linked.add(f)
		} else {
			others.add(f)
		}
	}
	row := func(name string, value func(total) string, note string) {
		fmt.Fprintf(w, "%-42s %10s %10s   %s\n", name, value(linked), value(others), note)
	}
	number := func(value func(total) int) func(total) string {
		return func(s total) string { return fmt.Sprint(value(s)) }
	}
	held := fmt.Sprintf("at most %d; held", mostComplexity)
	fmt.Fprintf(w, "%-42s %10s %10s\n", "Go code", "linked", "other")
	row("files", number(func(s total) int { return s.files }), "")
	row(fmt.Sprintf("  above %d lines", mostLines), number(func(s total) int { return s.longFiles }), "0; held")
	row("lines", number(func(s total) int { return s.lines }), "")
	row("code lines", number(func(s total) int { return s.size.codeLines }), "")
	row("tokens", number(func(s total) int { return s.size.tokens }), fmt.Sprintf("goal: at most %d linked", goalLinked))
	row("tokens a code line", func(s total) string { return fmt.Sprintf("%.2f", s.size.density()) }, fmt.Sprintf("goal: about %.1f linked", goalDensity))
	row("statements of three assignments or more", number(func(s total) int { return s.style.assignments }), "goal: 0")
	row("literals indexed in place of a condition", number(func(s total) int { return s.style.literals }), "goal: 0")
	row("calls of cmp.Or", number(func(s total) int { return s.style.defaults }), "goal: defaults and nothing else")
	row("functions", number(func(s total) int { return s.functions }), "")
	row("  cognitive complexity above 0, mean", func(s total) string { return fmt.Sprintf("%.1f", s.complexity().mean) }, "")
	row("  99th percentile", number(func(s total) int { return s.complexity().p99 }), "")
	row("  largest", number(func(s total) int { return s.complexity().max }), held)
	row(fmt.Sprintf("  above %d", mostComplexity), number(func(s total) int { return s.complexity().aboveLimit }), "0; held")
	circles := folderCircles(r.imports)
	fmt.Fprintf(w, "%-42s %10d %10s   the list knownCircles, which only becomes shorter\n", "circles of folders", len(circles), "")
	for _, circle := range circles {
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(circle, " ", ", "))
	}
}

// printRooms prints, for each folder, the measures of the code that is linked into commands.
// The folder with the most tokens per code line comes first.
func printRooms(w io.Writer, r tree) {
	rooms := map[string]*total{}
	for _, f := range r.files {
		if !f.isLinked {
			continue
		}
		room := roomOf(f.folder())
		if rooms[room] == nil {
			rooms[room] = &total{}
		}
		rooms[room].add(f)
	}
	names := slices.SortedFunc(maps.Keys(rooms), func(a, b string) int {
		denser := rooms[b].size.density() - rooms[a].size.density()
		return int(denser * 1000)
	})
	const row = "%-28s %10v %8v %10v %12v %9v %7v %11v\n"
	fmt.Fprintf(w, "\n"+row, "Linked, by room", "code lines", "tokens", "a line", "assignments", "literals", "cmp.Or", "complexity")
	for _, name := range names {
		s := rooms[name]
		density := fmt.Sprintf("%.2f", s.size.density())
		if s.size.density() > goalDensity {
			density = "> " + density
		}
		fmt.Fprintf(w, row, name, s.size.codeLines, s.size.tokens, density, s.style.assignments, s.style.literals, s.style.defaults, s.complexity().max)
	}
	fmt.Fprintf(w, "\n> is above the goal of %.1f tokens a code line; complexity is that of the worst function.\n", goalDensity)
}

// roomOf returns the folder under which printRooms counts the code of a folder. The folders
// below functions/ contain generated code, and count as one folder. Any other folder counts by
// itself.
func roomOf(folder string) string {
	if path.Dir(folder) == "functions" {
		return "functions"
	}
	return folder
}
