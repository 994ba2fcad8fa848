package clients

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// program is a program that the documentation page shows.
type program struct {
	id, title string
	tools     func(*testing.T) workshop // returns a workshop that has the program's packages
	from      registry                  // the registry from which the program's packages are installed
	short     bool                      // the program prints nothing but one line with the status and the answer
}

const typeCheck = "npx tsc --noEmit --strict --module nodenext --target es2022 --skipLibCheck --types node "

func payingPrograms() []program {
	return []program{
		{id: "typescript", title: "TypeScript", tools: nodeWorkshop, from: npm(), short: true},
		{id: "typescript-receipt", title: "TypeScript", tools: nodeWorkshop, from: npm()},
		retryProgram(),
		{id: "python", title: "Python", tools: pythonWorkshop, from: pip(), short: true},
		{id: "python-receipt", title: "Python", tools: pythonWorkshop, from: pip()},
		{id: "go", title: "Go", tools: goWorkshop, from: goModules()},
		receiptProgram(),
		{id: "agent", title: "Paying over MCP", tools: nodeWorkshop, from: npm()},
	}
}

// retryProgram returns the program that repeats its request until it has the answer.
func retryProgram() program {
	return program{id: "retries", title: "With retries", tools: nodeWorkshop, from: npm()}
}

// signedKey is an entry of the environment. It gives the program with the id "signed" its
// idempotency key.
const signedKey = "IDEMPOTENCY_KEY=call-1"

// signedProgram returns the program that sends a payment which was signed elsewhere.
func signedProgram() program { return program{id: "signed", tools: curlWorkshop} }

// maxShort is the greatest number of lines in a short program.
const maxShort = 8

// placeholder stands for the payer's private key in the commands on the page.
const placeholder = "PRIVATE_KEY=0x…"

// TestPayingPrograms runs every program of the page as the page shows it, except those that
// TestCurl runs. It installs and runs each program with the printed commands, in an empty
// folder. Each program must pay, on the main network and on a test network. A second run with
// the printed key must not pay again. The short programs and the Go program must also pay at
// the shop. Two rules apply to all programs except the short ones. If the result of the first
// payment is lost, a second run must not pay again. If the payer has no money, the program must
// fail with a message.
func TestPayingPrograms(t *testing.T) {
	t.Parallel()
	run := map[string]bool{"curl": true, "signed": true} // TestCurl runs these two
	for _, p := range payingPrograms() {
		run[p.id] = true
	}
	first := start(t)
	shown := readPage(t, first)
	llms := string(first.document(t, catalog.PathLLMs))
	for id := range shown.programs {
		if !run[id] {
			t.Errorf("no test runs %s, which the page shows", id)
		}
	}
	t.Run(".mts", func(t *testing.T) { shown.checkAll(t, nodeWorkshop, ".mts", typeCheck+"*.mts") })
	t.Run(".go", func(t *testing.T) { shown.checkAll(t, goWorkshop, ".go", "go vet .") })
	for _, p := range payingPrograms() {
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			w, s := p.from.emptyFolder(t), start(t)
			install, _ := shown.commands(t, p.title)
			p.from.install(t, w, install)
			if p.short {
				p.checkShort(t, shown, llms)
			}
			t.Run("pays", func(t *testing.T) { p.checkPays(t, w, s) })
			t.Run("pays on a test network", func(t *testing.T) { p.checkPaysOn(t, w, newTestnetWorld(t).start(t), x402.BaseSepolia) })
			if p.short || p.id == "go" {
				t.Run("pays at the shop", func(t *testing.T) {
					there := startShop(t, shopGoods(), wideWindow)
					p.outcomeOf(t, p.changedCommand(t, w, s, catalog.DNS().ExampleURL(s.url), there.url+there.goods.path)).checkPaid(t, there)
				})
			}
			if !p.short {
				t.Run("run again", func(t *testing.T) { p.checkPaysOnce(t, w) })
				t.Run("fails", func(t *testing.T) { p.checkRefused(t, w) })
			}
		})
	}
}

// checkAll checks all programs in one language with a single command, which must succeed.
func (p page) checkAll(t *testing.T, tools func(*testing.T) workshop, suffix, command string) {
	t.Parallel()
	w := tools(t)
	for id, code := range p.programs {
		if strings.HasSuffix(p.names[id], suffix) {
			w.save(t, id+suffix, code)
		}
	}
	if out, err := w.shell(t, command).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// checkShort checks that a program has at most maxShort lines, and that llms.txt has the
// program and its commands.
func (p program) checkShort(t *testing.T, shown page, llms string) {
	t.Helper()
	text := strings.TrimSpace(shown.programs[p.id])
	if n := strings.Count(text, "\n") + 1; n > maxShort {
		t.Errorf("%d lines", n)
	}
	install, run := shown.commands(t, p.title)
	for _, part := range []string{text, shown.names[p.id], install, run} {
		if !strings.Contains(llms, part) {
			t.Errorf("llms.txt, from which others run the program, lacks %s", part)
		}
	}
}

// checkPays runs the program three times. The first run must pay and print the expected
// output. The second run has the key of the first, and must get the answer without paying. The
// third run gets no key, so it must choose a new one and pay again.
func (p program) checkPays(t *testing.T, w workshop, s service) {
	o := p.checkPaysOn(t, w, s, x402.Base)
	p.run(t, w.withKey(t, o.key), s, s.url).checkPaid(t, s)
	if n, _ := s.books.Settles(); n != 1 {
		t.Errorf("%d settlements were asked for, want 1", n)
	}
	if next := p.run(t, w, s, s.url); next.err != nil || next.key == o.key || len(s.books.Transfers()) != 2 {
		t.Errorf("without a key: %v, the keys %q and %q, moved %+v", next.err, o.key, next.key, s.books.Transfers())
	}
}

// checkPaysOn runs the program as the page of the service s shows it. The program must pay.
// Unless it is short, it must print the name of the network and the transaction.
func (p program) checkPaysOn(t *testing.T, w workshop, s service, network string) outcome {
	o := p.run(t, w, s, s.url)
	o.checkPaid(t, s)
	var parts []string
	if p.id != "agent" {
		parts = append(parts, "200")
	}
	if !p.short {
		parts = append(parts, network, s.books.Transfers()[0].Transaction)
	}
	if p.id == "receipt" {
		parts = append(parts, verdictHolds+"127.0.0.1%3A")
	}
	for _, part := range parts {
		if !strings.Contains(o.notes, part) {
			t.Errorf("it does not show %s: %s", part, o.notes)
		}
	}
	return o
}

// checkPaysOnce runs the program against a facilitator that moves the money but does not
// report it. The service answers 503, because it has no node that knows the transaction. The
// program is run again until it has the answer. It signs a new payment in each run, and must
// be charged once.
func (p program) checkPaysOnce(t *testing.T, w workshop) {
	s := start(t, x402test.FailAfter)
	o := p.run(t, w, s, s.url)
	w = w.withKey(t, o.key)
	for runs := 1; o.err != nil && runs < 10; runs++ {
		if !strings.Contains(o.notes, "503") && !strings.Contains(o.notes, "settlement_uncertain") {
			break
		}
		o = p.run(t, w, s, s.url)
	}
	o.checkPaid(t, s)
}

// checkRefused runs the program for a payer who has no money, and checks the program's
// message.
func (p program) checkRefused(t *testing.T, w workshop) {
	s := start(t, x402test.Refuse)
	if o := p.run(t, w, s, s.url); o.err == nil || !strings.Contains(o.notes, "402") {
		t.Errorf("it does not end with the status: %v\n%s\n%s", o.err, o.out, o.notes)
	}
	if n, _ := s.books.Settles(); n != 1 || len(s.books.Transfers()) != 0 {
		t.Errorf("%d settlements, moved %+v", n, s.books.Transfers())
	}
}

// changedCommand returns a command that runs a changed copy of the program on the page of the
// service s. In the copy, the text old is replaced by other. Both are addresses, or beginnings
// of addresses. All runs in one workshop have the same payer.
func (p program) changedCommand(t *testing.T, w workshop, s service, old, other string) *exec.Cmd {
	shown := readPage(t, s)
	code := strings.ReplaceAll(shown.programs[p.id], old, other)
	if p.id == "signed" {
		return w.shell(t, code, "SIGNATURE="+sign(t, s.url), signedKey)
	}
	w.save(t, shown.names[p.id], code)
	_, command := shown.commands(t, p.title)
	return w.shellWithKey(t, command)
}

// outcome is what a program has printed, and how it has ended.
type outcome struct {
	out, notes string // stdout and stderr
	key        string // the purchase's key, which the program prints; it is removed from notes
	err        error
}

// keyLine matches the line in which a program prints the key of its purchase.
var keyLine = regexp.MustCompile(`(?m)^IDEMPOTENCY_KEY=([0-9A-Za-z-]{26,36})\n`)

// withKey returns a copy of the workshop in which programs get the given idempotency key.
func (w workshop) withKey(t *testing.T, key string) workshop {
	if key == "" {
		t.Fatal("the program has printed no key")
	}
	w.env = append(slices.Clone(w.env), "IDEMPOTENCY_KEY="+key)
	return w
}

// startProgram starts a program, and returns a function that waits for its end.
func startProgram(t *testing.T, cmd *exec.Cmd) (end func() outcome) {
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	testbed.Check(cmd.Start())
	return func() outcome {
		o := outcome{err: cmd.Wait(), out: out.String(), notes: notes.String()}
		if line := keyLine.FindStringSubmatch(o.notes); line != nil {
			o.key, o.notes = line[1], strings.Replace(o.notes, line[0], "", 1)
		}
		return o
	}
}

// run runs a program to its end.
func (p program) run(t *testing.T, w workshop, s service, url string) outcome {
	return p.outcomeOf(t, p.changedCommand(t, w, s, s.url, url))
}

func (p program) outcomeOf(t *testing.T, cmd *exec.Cmd) outcome {
	o := startProgram(t, cmd)()
	if p.short {
		status, answer, _ := strings.Cut(o.out, " ")
		o.notes, o.out = o.notes+status, answer
	}
	return o
}

// newPayer returns a new private key.
func newPayer() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return "0x" + hex.EncodeToString(key)
}

// checkPaid checks that a program printed the right answer, and that the facilitator made one
// transfer.
func (o outcome) checkPaid(t *testing.T, s service) {
	if o.err != nil {
		t.Fatalf("%v\n%s\n%s", o.err, o.out, o.notes)
	}
	printed := o.out
	if head, body, ok := strings.Cut(printed, "\r\n\r\n"); ok && strings.HasPrefix(head, "HTTP/") {
		printed = body
	}
	if diff := cmp.Diff(s.goods.answer, decodeJSON[map[string]any](t, []byte(printed))); diff != "" {
		t.Errorf("the answer: %s", diff)
	}
	if moved := s.books.Transfers(); len(moved) != 1 || moved[0].Value != s.goods.amount {
		t.Fatalf("money moved: %+v, want once %s", moved, s.goods.amount)
	}
}

// page has the parts of the documentation page.
type page struct {
	byLabel  map[string][]string // the blocks of code, by label
	programs map[string]string   // the text of each program, by id
	names    map[string]string   // the file name that the page gives each program, by id
}

func readPage(t *testing.T, s service) page {
	root := testbed.Must(html.Parse(bytes.NewReader(s.document(t, catalog.PathDocs))))
	p := page{byLabel: map[string][]string{}, programs: map[string]string{}, names: map[string]string{}}
	for n := range root.Descendants() {
		if n.Data != "pre" {
			continue
		}
		label := testbed.Attribute(n.Parent, "aria-label")
		p.byLabel[label] = append(p.byLabel[label], testbed.Text(n))
		if id, ok := strings.CutPrefix(testbed.Attribute(n, "id"), "code-"); ok {
			p.programs[id] = testbed.Text(n)
			for bar := range n.Parent.Parent.Descendants() { // the elements of the block of code
				if testbed.Attribute(bar, "class") == "bar" {
					p.names[id] = strings.TrimSpace(testbed.Text(bar))
				}
			}
		}
	}
	return p
}

// commands returns the two lines of a program's "Install and run" block.
func (p page) commands(t *testing.T, title string) (install, run string) {
	block := p.byLabel["Install and run, "+title]
	if len(block) != 1 {
		t.Fatalf("%d blocks say how to install and run %s", len(block), title)
	}
	install, run, ok := strings.Cut(block[0], "\n")
	if !ok || strings.Contains(run, "\n") {
		t.Fatalf("%s: not two commands: %q", title, block[0])
	}
	return install, run
}
