package clients

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// program is one that pays, with the tools that it needs.
type program struct {
	id, title string
	tools     func(*testing.T) workshop
	// command is the program as the page of a service shows it, ready to run.
	command func(*testing.T, program, workshop, service, string) *exec.Cmd
	check   string // a command that must find nothing; empty: none
	install func(*testing.T) string
}

func payingPrograms() []program {
	return []program{
		{"typescript-receipt", "TypeScript", nodeWorkshop, withKey, typeCheck + "pay.mts", npmInstall},
		retries(),
		{"python-receipt", "Python", pythonWorkshop, withKey, "python -m py_compile pay.py", pipInstall},
		{"go", "Go", goWorkshop, withKey, "go vet .", goInstall},
	}
}

// shortPrograms are those that a language begins with: they pay, and print the
// status and the answer in one line.
func shortPrograms() []program {
	return []program{
		{"typescript", "TypeScript", nodeWorkshop, withKey, typeCheck + "pay.mts", npmInstall},
		{"python", "Python", pythonWorkshop, withKey, "python -m py_compile pay.py", pipInstall},
	}
}

// maxShort is how many lines a short program has at most.
const maxShort = 8

func TestShortPrograms(t *testing.T) {
	t.Parallel()
	for _, p := range shortPrograms() {
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			w := p.tools(t)
			s := start(t, x402test.Honest)
			if n := strings.Count(strings.TrimSpace(p.asShown(t, w, s)), "\n") + 1; n > maxShort {
				t.Errorf("%d lines", n)
			}
			o := runShown(t, p, w, s)
			status, body, _ := strings.Cut(o.out, " ")
			if status != "200" {
				t.Errorf("it printed %q\n%s", o.out, o.notes)
			}
			o.out = body
			o.checkAnswer(t)
			s.checkPaidOnce(t)
		})
	}
}

// asShown saves a program as the page shows it, and returns it. What the page says
// to install must be what is tested here, and the program's check find nothing.
func (p program) asShown(t *testing.T, w workshop, s service) string {
	t.Helper()
	shown := readPage(t, s)
	install, _ := shown.commands(t, p.title)
	if want := p.install(t); install != want {
		t.Errorf("the page says %q, and what is tested here is %q", install, want)
	}
	w.save(t, shown.names[p.id], shown.programs[p.id])
	if out, err := w.shell(t, p.check).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", p.check, err, out)
	}
	return shown.programs[p.id]
}

const typeCheck = "npx tsc --noEmit --strict --module nodenext --target es2022 --skipLibCheck --types node "

// retries is the program that asks until it has its answer.
func retries() program {
	return program{"retries", "With retries", nodeWorkshop, withKey, typeCheck + "retry.mts", npmInstall}
}

// persistent are the programs that end with the answer, whatever is lost on the
// way: the one that signs each attempt anew under one key, and the one that is
// given a signature.
func persistent() []program {
	return []program{retries(), {id: "signed", tools: curlWorkshop, command: withSignature}}
}

// placeholder stands for the key in the command on the page.
const placeholder = "PRIVATE_KEY=0x…"

func TestPayingPrograms(t *testing.T) {
	t.Parallel()
	for _, p := range payingPrograms() {
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			w := p.tools(t)
			s := start(t, x402test.Honest)
			p.asShown(t, w, s)
			t.Run("pays", func(t *testing.T) {
				notes := paysOnce(t, p, w, s, 1)
				if hash := s.books.Transfers()[0].Transaction; !strings.Contains(notes, hash) {
					t.Errorf("stderr does not show the transaction %s: %s", hash, notes)
				}
			})
			t.Run("run again", func(t *testing.T) {
				// The money moves and the news is lost: the service answers 503.
				// Nobody knows the transaction here, where there is no chain to
				// ask. Who runs the program until it has the answer signs anew
				// each time, and pays once.
				s := start(t, x402test.FailAfter)
				o := runShown(t, p, w, s)
				for runs := 1; o.err != nil && strings.Contains(o.notes, "503") && runs < 10; runs++ {
					o = runShown(t, p, w, s)
				}
				o.checkAnswer(t)
				s.checkPaidOnce(t)
			})
			t.Run("fails", func(t *testing.T) { failsLoudly(t, p, w, start(t, x402test.Refuse)) })
		})
	}
}

// outcome is what a program did.
type outcome struct {
	out, notes string
	err        error
}

// process is a program at work.
type process struct {
	cmd        *exec.Cmd
	out, notes bytes.Buffer
	ended      chan error
}

// prepare saves the program as the page of a service shows it. What is run is
// the command of that page with the workshop's payer. The address that it calls is url,
// which leads to that service.
func prepare(t *testing.T, p program, w workshop, s service, url string) *process {
	t.Helper()
	r := &process{cmd: p.command(t, p, w, s, url), ended: make(chan error, 1)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.notes
	return r
}

func (r *process) start(t *testing.T) {
	t.Helper()
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- r.cmd.Wait() }()
}

// wait returns when the program has ended.
func (r *process) wait() outcome {
	err := <-r.ended
	return outcome{r.out.String(), r.notes.String(), err}
}

// newPayer is a fresh private key.
func newPayer() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return "0x" + hex.EncodeToString(key)
}

// withKey is the command of a page on a program that signs by itself. It is the
// same payer whenever it is run in one workshop.
func withKey(t *testing.T, p program, w workshop, s service, url string) *exec.Cmd {
	t.Helper()
	shown := readPage(t, s)
	w.save(t, shown.names[p.id], strings.ReplaceAll(shown.programs[p.id], s.url, url))
	_, command := shown.commands(t, p.title)
	if !strings.HasPrefix(command, placeholder+" ") {
		t.Fatalf("the command %q has no place for the key", command)
	}
	return w.shell(t, strings.Replace(command, placeholder, "PRIVATE_KEY="+w.payer, 1))
}

// runShown runs a program to its end.
func runShown(t *testing.T, p program, w workshop, s service) outcome {
	t.Helper()
	return runAt(t, p, w, s, s.url)
}

// runAt is runShown for an address that leads to the service.
func runAt(t *testing.T, p program, w workshop, s service, url string) outcome {
	t.Helper()
	r := prepare(t, p, w, s, url)
	r.start(t)
	return r.wait()
}

// checkAnswer holds what a program did to the answer.
func (o outcome) checkAnswer(t *testing.T) {
	t.Helper()
	if o.err != nil {
		t.Fatalf("%v\n%s\n%s", o.err, o.out, o.notes)
	}
	printed := o.out
	if head, body, ok := strings.Cut(printed, "\r\n\r\n"); ok && strings.HasPrefix(head, "HTTP/") {
		printed = body
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(printed), &got); err != nil {
		t.Fatalf("stdout is not JSON: %v: %s\n%s", err, o.out, o.notes)
	}
	if diff := cmp.Diff(answer(t), got); diff != "" {
		t.Errorf("the answer: %s", diff)
	}
}

// checkPaidOnce looks into the books.
func (s service) checkPaidOnce(t *testing.T) {
	t.Helper()
	if moved := s.books.Transfers(); len(moved) != 1 || moved[0].Value != catalog.DNS().Amount {
		t.Fatalf("money moved: %+v, want once %s", moved, catalog.DNS().Amount)
	}
}

// paysOnce runs a program that must end with the answer and have paid for it
// once. It returns what was printed beside the answer.
func paysOnce(t *testing.T, p program, w workshop, s service, settles int) string {
	t.Helper()
	o := runShown(t, p, w, s)
	o.checkAnswer(t)
	s.checkPaidOnce(t)
	if !strings.Contains(o.notes, "200") || !strings.Contains(o.notes, "eip155:8453") {
		t.Errorf("stderr does not show the status and the receipt: %s", o.notes)
	}
	if n, _ := s.books.Settles(); n != settles {
		t.Errorf("%d settlements were asked for, want %d", n, settles)
	}
	return o.notes
}

// failsLoudly has a payer without money: the program must say so and end with
// a status other than 0, and must not try another payment.
func failsLoudly(t *testing.T, p program, w workshop, s service) {
	o := runShown(t, p, w, s)
	if o.err == nil {
		t.Errorf("it ended well without having paid: %s", o.out)
	}
	if !strings.Contains(o.notes, "402") {
		t.Errorf("stderr does not show the status: %s", o.notes)
	}
	if n, _ := s.books.Settles(); n != 1 || len(s.books.Transfers()) != 0 {
		t.Errorf("%d settlements, moved %+v", n, s.books.Transfers())
	}
}

// npmInstall is the page's command for the versions that are tested here.
func npmInstall(t *testing.T) string {
	t.Helper()
	v, err := testbed.PackageVersions(".")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("npm install @x402/fetch@%s @x402/evm@%s viem@%s tsx", v["@x402/fetch"], v["@x402/evm"], v["viem"])
}

func pipInstall(t *testing.T) string {
	t.Helper()
	return "pip install 'x402[evm,requests]==" + pinned(t, requirements, `(?m)^x402==(\S+)`) + "'"
}

func goInstall(t *testing.T) string {
	t.Helper()
	file := filepath.Join("testdata", "go", "go.mod")
	return fmt.Sprintf("go mod init pay && go get github.com/decred/dcrd/dcrec/secp256k1/v4@%s golang.org/x/crypto@%s",
		pinned(t, file, `secp256k1/v4 (v\S+)`), pinned(t, file, `golang.org/x/crypto (v\S+)`))
}

func pinned(t *testing.T, file, pattern string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(pattern).FindSubmatch(b)
	if m == nil {
		t.Fatalf("%s does not match %s", file, pattern)
	}
	return string(m[1])
}

// TestEveryProgramIsRun finds a program on the page that no test runs.
func TestEveryProgramIsRun(t *testing.T) {
	t.Parallel()
	run := []string{"curl", "signed", receiptProgram().id}
	for _, p := range append(payingPrograms(), shortPrograms()...) {
		run = append(run, p.id)
	}
	shown := map[string]bool{}
	for id := range readPage(t, start(t, x402test.Honest)).programs {
		shown[id] = true
	}
	want := map[string]bool{}
	for _, id := range run {
		want[id] = true
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("programs run (-) and shown (+): %s", diff)
	}
}
