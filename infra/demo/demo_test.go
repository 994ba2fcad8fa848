package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
)

// TestDemo runs "make demo" and checks every event that the demo prints. At the end, the service
// has one transfer for one answer. The seller without a ledger has three transfers for one
// answer.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as make demo: make verify runs it")
	}
	t.Parallel()
	cmd := testbed.Command(t, "make", "-s", "-C", testbed.Root(), "demo")
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Run(); err != nil {
		t.Fatalf("make demo: %v\n%s\n%s", err, &out, &notes)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("what is not a terminal gets colours")
	}
	const verdict = "\n\nSame purchase, same failures: 0.005 USDC paid with a ledger, 0.015 without.\n"
	if !strings.HasSuffix(out.String(), verdict) {
		t.Errorf("it does not end with %q", verdict)
	}
	with, without := columns(out.String())
	for name, c := range map[string]struct{ got, want []string }{
		"the service": {with, []string{
			"client signs payment 1", "facilitator moves payment 1", "facilitator answers 500",
			"client is told 503: Settlement is not confirmed; retry. (waits)",
			"client signs payment 2", "facilitator is asked for payment 1 (no money moves)", "seller is killed (kill -9)", "client gets no answer",
			"client signs payment 3", "seller is down", "client gets no answer", "seller is started again",
			"client signs payment 4", "the killed process still holds payment 1; the seller waits until its lease ends",
			"client is told 409 (after a time): A payment for this request is being processed; retry. (waits)",
			"seller goes on (after a time) after the kill", "facilitator: payment 1 moved before", "seller answers", "network loses the answer", "client gets no answer",
			"client signs payment 5", "client has the answer: MX mx1.example.com",
			"transfers 1, answers 1",
		}},
		"the other seller": {without, []string{
			"client signs payment 1", "facilitator moves payment 1", "facilitator answers 500", "client is told 402: Please pay.",
			"client signs payment 2", "facilitator is asked for payment 2 (no money moves)", "seller is killed (kill -9)", "client gets no answer",
			"client signs payment 3", "seller is down", "client gets no answer", "seller is started again",
			"client signs payment 4", "facilitator moves payment 4", "seller answers", "network loses the answer", "client gets no answer",
			"client signs payment 5", "facilitator moves payment 5", "client has the answer: MX mx1.example.com",
			"transfers 3, answers 1",
		}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("the column of %s (-want +got):\n%s\n%s", name, diff, &out)
		}
	}
}

// columns returns the events in the two columns of a page, one text for each event. It removes
// the times (see removeTimes). In the left column it also removes repeated events, because the
// client repeats a request more often on a slow machine.
func columns(page string) (left, right []string) {
	rule := strings.Repeat("-", column)
	_, page, _ = strings.Cut(page, rule+"\n")
	page, _, _ = strings.Cut(page, "Same purchase")
	for line := range strings.Lines(page) {
		if line = strings.TrimRight(line, "\n"); !strings.Contains(line, rule) && len(line) > margin {
			left = appendLine(left, line[margin:min(len(line), margin+column)])
			right = appendLine(right, line[min(len(line), margin+column+gap):])
		}
	}
	for i, event := range left {
		left[i] = removeTimes(event)
	}
	for i, event := range right {
		right[i] = removeTimes(event)
	}
	return slices.Compact(left), right
}

// removeTimes returns an event without its times. If the event has a time on every machine
// (the client pauses, or somebody waits for a lease), removeTimes puts a mark in place of the
// time. If the event has a time only on a busy machine, removeTimes leaves no trace of it.
func removeTimes(event string) string {
	for _, change := range []struct{ times, to string }{
		{`\(waits \d+s\)$`, "(waits)"},
		{`told 409 after [1-9]\d?s:`, "told 409 (after a time):"},
		{`told (\d+) after \d+s:`, "told $1:"},
		{`goes on, [1-9]\d?s after`, "goes on (after a time) after"},
	} {
		event = regexp.MustCompile(change.times).ReplaceAllString(event, change.to)
	}
	return event
}

// appendLine adds a line to the events of its column. An indented line continues the last
// event.
func appendLine(events []string, line string) []string {
	text := strings.TrimSpace(line)
	switch {
	case text == "":
		return events
	case strings.HasPrefix(line, "  "):
		events[len(events)-1] += " " + text
		return events
	}
	return append(events, text)
}

// TestFindsOut checks that the demo fails if the service charges twice: a seller without a
// ledger runs in place of the service.
func TestFindsOut(t *testing.T) {
	t.Parallel()
	thirty := testbed.Program(t, "./infra/demo/thirty")
	var out bytes.Buffer
	err := play(t.Context(), &out, false, thirty, thirty)
	if err == nil || !strings.Contains(err.Error(), "transfers to the service: 3, answers from it: 1") {
		t.Errorf("the error is %v\n%s", err, &out)
	}
	if strings.Contains(out.String(), "Same purchase") || strings.Contains(out.String(), "still holds") {
		t.Errorf("it praises a ledger, and there is none:\n%s", &out)
	}
}

// TestWithoutPrograms checks that the demo says which program is missing, and leaves no files.
func TestWithoutPrograms(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	err := play(context.Background(), &out, false, "no-such-program", "neither")
	if err == nil || !strings.Contains(err.Error(), "make demo builds what it starts") || out.Len() > 0 {
		t.Errorf("without programs: %v, %s", err, &out)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestColours checks that a terminal gets colours, unless the environment turns them off.
func TestColours(t *testing.T) {
	terminal := testbed.Must(os.OpenFile(os.DevNull, os.O_WRONLY, 0)) // a character device, like a terminal
	defer terminal.Close()
	file := testbed.Must(os.Create(t.TempDir() + "/page"))
	defer file.Close()
	for name, c := range map[string]struct {
		out  *os.File
		env  map[string]string
		want bool
	}{
		"a terminal":      {terminal, nil, true},
		"no colour":       {terminal, map[string]string{"NO_COLOR": "1"}, false},
		"a dumb terminal": {terminal, map[string]string{"TERM": "dumb"}, false},
		"a file":          {file, nil, false},
	} {
		if got := mayHaveColours(c.out, func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%s has colours: %v, want %v", name, got, c.want)
		}
	}
}

// TestTimeline checks that a page has the same text with and without colours, and that it fits
// into 80 columns.
func TestTimeline(t *testing.T) {
	var pages [2]bytes.Buffer
	for i, colours := range []bool{false, true} {
		p := &timeline{out: &pages[i], colours: colours}
		p.begin()
		p.try(1)
		p.recordRight(bad, "an event that is far too long for the line of a column, and ends later")
		p.recordRight(money, "another")
		p.printLeft(plain, "one on the left")
		p.end()
		with := sums{transfers: 1, answers: 1, paid: 5000}
		without := sums{transfers: 3, answers: 1, paid: 15000}
		p.printTotals(with, without)
		p.printVerdict(with, without)
	}
	colourless := regexp.MustCompile(`\x1b\[\d*m| +$`).ReplaceAllString(pages[1].String(), "")
	colourless = regexp.MustCompile(`(?m) +$`).ReplaceAllString(colourless, "")
	if diff := cmp.Diff(pages[0].String(), colourless); diff != "" || pages[1].String() == pages[0].String() {
		t.Errorf("with colours (-without +with):\n%s", diff)
	}
	for line := range strings.Lines(pages[0].String()) {
		if len(line) > 80 { // the length includes the newline
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	left, right := columns(pages[0].String())
	want := []string{"an event that is far too long for the line of a column, and ends later", "another", "transfers 3, answers 1"}
	if !slices.Equal(left, []string{"one on the left", "transfers 1, answers 1"}) || !slices.Equal(right, want) {
		t.Errorf("columns %q and %q:\n%s", left, right, &pages[0])
	}
}

// TestThirtyLines checks that the seller without a ledger has at most 30 lines, as the head of
// the timeline says. The test counts from func main on, without empty lines and comments.
func TestThirtyLines(t *testing.T) {
	source := string(testbed.Must(os.ReadFile("thirty/main.go")))
	_, code, _ := strings.Cut(source, "\nfunc main() {")
	lines := 1
	for line := range strings.Lines(code) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "//") {
			lines++
		}
	}
	if lines > 30 {
		t.Errorf("the seller of thirty lines has %d", lines)
	}
}
