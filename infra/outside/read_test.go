package outside

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// step is one thing that a reader of README does: save a program, or type a command. Exactly
// one of the fields is set.
type step struct {
	program string
	command string
}

// commandStart matches the beginning of a shell command: optional variables, and then one of
// the programs that README tells its readers to run.
var commandStart = regexp.MustCompile(`^(\$ )?([A-Z_]+=\S+ +)*(go (mod|get|run|build|install|env|doc)|git|make|sam|mkdir|cd|curl|export) `)

// codeSpan matches a piece of code within a sentence.
var codeSpan = regexp.MustCompile("`([^`]+)`")

// continuedLine matches the end of a line whose command continues in the next line.
var continuedLine = regexp.MustCompile(`\s*\\\n\s*`)

// steps returns the steps in the code blocks of a section of a Markdown file, in their order.
// They are the first complete Go program, and the commands in all shell blocks.
func steps(markdown, section string) []step {
	var all []step
	for _, block := range blocks(textOf(markdown, section)) {
		first, _, _ := strings.Cut(block, "\n")
		isProgram := func(s step) bool { return s.program != "" }
		switch {
		case strings.HasPrefix(first, "package main") && !slices.ContainsFunc(all, isProgram):
			all = append(all, step{program: block})
		case commandStart.MatchString(first):
			all = append(all, commandsOf(block)...)
		}
	}
	return all
}

// beforeSections, used as the title of a section, means the text before the first section.
const beforeSections = ""

// textOf returns the text of the section with the given title.
func textOf(markdown, section string) string {
	if section == beforeSections {
		text, _, _ := strings.Cut(markdown, "\n## ")
		return text
	}
	_, rest, _ := strings.Cut(markdown, "\n## "+section+"\n")
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// quotedCommands returns the commands that are quoted within the sentences of a section,
// without duplicates.
func quotedCommands(markdown, section string) []step {
	sentences, fenced := "", false
	for line := range strings.Lines(textOf(markdown, section)) {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case !fenced && !strings.HasPrefix(line, "    "):
			sentences += strings.TrimSpace(line) + " "
		}
	}
	var all []step
	for _, found := range codeSpan.FindAllStringSubmatch(sentences, -1) {
		s := step{command: found[1]}
		if commandStart.MatchString(s.command+" ") && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// blocks returns the code blocks of a text: those between fences, and those that are indented
// by four spaces.
func blocks(text string) []string {
	var all []string
	var block strings.Builder
	end := func() {
		if code := strings.Trim(block.String(), "\n"); code != "" {
			all = append(all, code)
		}
		block.Reset()
	}
	fenced := false
	for line := range strings.Lines(text) {
		code, indented := strings.CutPrefix(line, "    ")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			end()
		case fenced:
			block.WriteString(line)
		case indented:
			block.WriteString(code)
		case strings.TrimSpace(line) == "" && block.Len() > 0:
			block.WriteString("\n") // an indented block continues after an empty line
		default:
			end()
		}
	}
	end()
	return all
}

// commandsOf returns the commands of a shell block. If the block begins with the prompt "$ ",
// only the lines with a prompt are commands, and the other lines are output.
func commandsOf(block string) []step {
	var all []step
	prompted := strings.HasPrefix(block, "$ ")
	for line := range strings.Lines(continuedLine.ReplaceAllString(block, " ")) {
		line, prompt := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if prompted && !prompt {
			continue
		}
		if line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, step{command: line})
		}
	}
	return all
}

func TestSteps(t *testing.T) {
	t.Parallel()
	const markdown = `# Title

    go run ./before

` + "```console\n$ make answer\nprice: 1\n{\n```\n" + `

## Sell

Text.

    go mod init x
    # a comment

    A=1 B=2 go run . \
      there

` + "```go\npackage main\n\nfunc main() {}\n```\n" + `
Text with ` + "`go doc x` and `go vet`, `A=1 make\nrun`, and again `go doc x`" + `.

    seller, err := New()
    go serve()

` + "```sh\n$ curl -i x   # said\n```\n```go\npackage main // another\n```\n" + `
## Next

    go run ./after
`
	want := []step{
		{command: "go mod init x"}, {command: "A=1 B=2 go run . there"},
		{program: "package main\n\nfunc main() {}"}, {command: "curl -i x   # said"},
	}
	if got := steps(markdown, "Sell"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	said := []step{{command: "go doc x"}, {command: "A=1 make run"}}
	if got := quotedCommands(markdown, "Sell"); !slices.Equal(got, said) {
		t.Errorf("in sentences: %q, want %q", got, said)
	}
	if got, want := steps(markdown, beforeSections), []step{{command: "go run ./before"}, {command: "make answer"}}; !slices.Equal(got, want) {
		t.Errorf("before the first section: %q, want %q", got, want)
	}
	if got := steps(markdown, "Sel"); len(got) != 0 {
		t.Errorf("of no section: %q", got)
	}
}
