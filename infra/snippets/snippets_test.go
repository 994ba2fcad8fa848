package snippets

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// program is one that pays, with the tools that it needs.
type program struct {
	id, title string
	tools     func(*testing.T) workshop
	check     string // a command that must find nothing; empty: none
	install   func(*testing.T) string
}

func payingPrograms() []program {
	return []program{
		{
			"typescript", "TypeScript", nodeWorkshop,
			"npx tsc --noEmit --strict --module nodenext --target es2022 --skipLibCheck --types node pay.mts", npmInstall,
		},
		{"python", "Python", pythonWorkshop, "python -m py_compile pay.py", pipInstall},
		{"go", "Go", goWorkshop, "go vet .", goInstall},
	}
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
			shown := readPage(t, s)
			install, _ := shown.commands(t, p.title)
			if want := p.install(t); install != want {
				t.Errorf("the page says %q, and what is tested here is %q", install, want)
			}
			w.save(t, shown.names[p.id], shown.programs[p.id])
			if out, err := w.shell(t, p.check).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", p.check, err, out)
			}
			t.Run("pays", func(t *testing.T) {
				notes := paysOnce(t, p, w, s, 1)
				if hash := s.books.Transfers()[0].Transaction; !strings.Contains(notes, hash) {
					t.Errorf("stderr does not show the transaction %s: %s", hash, notes)
				}
			})
			t.Run("retries", func(t *testing.T) {
				// The money moves and the news is lost: the service answers 503,
				// and only a client that keeps its signature pays once. Nobody
				// knows the transaction here, where there is no chain to ask.
				paysOnce(t, p, w, start(t, x402test.FailAfter), 2)
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

// runShown saves the program as the page of a service shows it, and runs the
// command of that page with a fresh key.
func runShown(t *testing.T, p program, w workshop, s service) outcome {
	t.Helper()
	shown := readPage(t, s)
	w.save(t, shown.names[p.id], shown.programs[p.id])
	_, command := shown.commands(t, p.title)
	if !strings.HasPrefix(command, placeholder+" ") {
		t.Fatalf("the command %q has no place for the key", command)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	var notes strings.Builder
	cmd := w.shell(t, strings.Replace(command, placeholder, "PRIVATE_KEY=0x"+hex.EncodeToString(key), 1))
	cmd.Stderr = &notes
	out, err := cmd.Output()
	return outcome{string(out), notes.String(), err}
}

// paysOnce runs a program that must end with the answer and have paid for it
// once. It returns what was printed beside the answer.
func paysOnce(t *testing.T, p program, w workshop, s service, settles int) string {
	t.Helper()
	o := runShown(t, p, w, s)
	if o.err != nil {
		t.Fatalf("%v\n%s\n%s", o.err, o.out, o.notes)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(o.out), &got); err != nil {
		t.Fatalf("stdout is not JSON: %v: %s", err, o.out)
	}
	if diff := cmp.Diff(answer(t), got); diff != "" {
		t.Errorf("the answer: %s", diff)
	}
	moved := s.books.Transfers()
	if len(moved) != 1 || moved[0].Value != catalog.DNS().Amount {
		t.Fatalf("money moved: %+v, want once %s", moved, catalog.DNS().Amount)
	}
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
	v, err := npmVersions(filepath.Join("testdata", "typescript"))
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
	run := []string{"curl", "signed"}
	for _, p := range payingPrograms() {
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
