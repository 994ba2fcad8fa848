package outside

import (
	"archive/zip"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/infra/testbed/programs"
	"github.com/hostfacts/hostfacts/pkg/boot"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/x402"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// firstSections returns the titles of the sections of README that a reader follows first. The
// reader types the commands of these sections one after the other, beginning with "git clone".
func firstSections() []string { return []string{"Try it in a minute", "Pay from a program"} }

// resolversByDefault returns the DNS resolvers that the service uses if none are configured.
func resolversByDefault() []string { return []string{"1.1.1.1", "8.8.8.8", "9.9.9.10"} }

// TestReadmeOfAClone types the commands of firstSections as README prints them, beginning in an
// empty folder. The repository that "git clone" gets has the files of this tree. The service
// must start at the address that README names, and at least two commands must send requests to
// it. The test runs DNS servers at the addresses in resolversByDefault.
func TestReadmeOfAClone(t *testing.T) {
	text := string(testbed.Must(os.ReadFile(readme)))
	var todo, said []step
	for _, section := range firstSections() {
		todo = append(todo, steps(text, section)...)
		said = append(said, quotedCommands(text, section)...)
	}
	r := newReader(t, t.TempDir(), todo)
	r.environment = insteadOfGitHub(t)
	zone := testbed.ReadZone(t, "example.com. 300 A 192.0.2.77\nexample.com. 300 MX 10 mx1.example.com.\n")
	for _, addr := range resolversByDefault() {
		testbed.Check(testbed.IP("addr add " + addr + "/32 dev lo"))
		s := testbed.Must(testbed.ListenDNS(addr+":53", zone))
		t.Cleanup(func() { testbed.Check(s.Close()) })
	}
	paid := 0
	seen := map[string]bool{}
	for _, s := range append(todo, said...) {
		command := commandOf(s)
		if command == "make test" || seen[command] {
			continue // .ci/run runs "make test" (see TestContinuousIntegration)
		}
		seen[command] = true
		if elsewhere := localAddr.FindStringSubmatch(command); elsewhere != nil {
			startAtAddr(t, command, elsewhere[1])
			continue
		}
		if r.typeStep(t, s) {
			paid++
		}
	}
	r.checkServer(t)
	if r.server == nil || paid < 2 {
		t.Errorf("one that listened: %v, %d commands that asked it", r.server != nil, paid)
	}
	if _, err := os.Stat(filepath.Join(r.home, "hostfacts", ".git")); err != nil {
		t.Errorf("the reader has no clone: %v", err)
	}
}

// startAtAddr types a command that starts the service at the address addr. README prints this
// command for a reader on whose machine another program has the usual address. In this test,
// that program is the service that the reader has already started. The second service starts
// in another clone, and must answer a request.
func startAtAddr(t *testing.T, command, addr string) {
	t.Helper()
	r := &reader{home: cloneFolder(t), stateFolder: t.TempDir(), serverAddr: addr}
	r.typeCommand(t, command)
	client := &x402test.Client{HTTP: &http.Client{Timeout: testbed.Patience}}
	reply, err := client.Get(t.Context(), "http://"+addr+catalog.PathHealth, "")
	if err != nil || reply.Status != http.StatusOK {
		t.Errorf("%s listens, and answers %d, %v:\n%s", command, reply.Status, err, r.stderr)
	}
	r.checkServer(t)
}

// commandOf returns the command of a step, without a trailing comment.
func commandOf(s step) string {
	command, _, _ := strings.Cut(s.command, " #")
	return strings.TrimSpace(command)
}

// insteadOfGitHub returns environment variables for git. With these, "git clone" gets a local
// repository with the current files of this tree instead of the repository on GitHub.
func insteadOfGitHub(t *testing.T) []string {
	t.Helper()
	repository := filepath.Join(t.TempDir(), "hostfacts.git")
	git := func(arguments ...string) {
		t.Helper()
		cmd := exec.Command("git", arguments...)
		cmd.Env = append(os.Environ(), "GIT_DIR="+repository, "GIT_WORK_TREE="+testbed.Root())
		programs.Run(t, cmd)
	}
	git("init", "--quiet", "--initial-branch=main")
	git("add", "--all")
	git("-c", "user.name=Suite", "-c", "user.email=suite@example.com", "commit", "--quiet", "--message=The tree")
	return []string{
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url." + repository + ".insteadOf",
		"GIT_CONFIG_VALUE_0=" + catalog.Homepage,
	}
}

// moneySection is the section of README about taking real money.
const moneySection = "From play money to real money"

// TestMoneyOfAClone types the commands of moneySection, with an address and a URL in place of
// the blanks that the reader must fill in. Each command must start the service. The service
// must offer the right network and payee, and its documentation must say what kind of money it
// takes.
func TestMoneyOfAClone(t *testing.T) {
	if err := testbed.NoNamespaces(); err != nil {
		t.Skipf("README's program listens at an address that may be another's here: %v", err)
	}
	loopback()
	const payee = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	home := cloneFolder(t)
	filled := strings.NewReplacer("0x...", payee, "https://...", "https://facilitator.example")
	todo := steps(string(testbed.Must(os.ReadFile(readme))), moneySection)
	takes := []struct{ network, payee, docs string }{
		{x402.Base, boot.LocalPayTo, "takes play money"},
		{x402.BaseSepolia, boot.LocalPayTo, "Base Sepolia, a test network"},
		{x402.Base, payee, ""},
	}
	if len(todo) != len(takes) {
		t.Fatalf("the section has %d commands, and %d are known: %q", len(todo), len(takes), todo)
	}
	for i, s := range todo {
		t.Run(s.command, func(t *testing.T) { // when the subtest ends, the service is stopped
			r := &reader{home: home, stateFolder: t.TempDir(), serverAddr: boot.LocalAddr}
			r.typeCommand(t, filled.Replace(s.command))
			r.checkServer(t)
			if r.server == nil {
				t.Fatal("it does not listen")
			}
			client := &x402test.Client{HTTP: &http.Client{Timeout: testbed.Patience}}
			offer := testbed.Must(client.Challenge(t.Context(), "http://"+boot.LocalAddr+catalog.Ping().Path)).Accepts[0]
			if offer.Network != takes[i].network || offer.PayTo != takes[i].payee {
				t.Errorf("it is paid on %s to %s, want %+v", offer.Network, offer.PayTo, takes[i])
			}
			docs := testbed.Must(client.Get(t.Context(), "http://"+boot.LocalAddr+catalog.PathDocs, ""))
			if !strings.Contains(string(docs.Body), takes[i].docs) || strings.Contains(string(docs.Body), "takes play money") != (i == 0) {
				t.Errorf("the page does not say %q", takes[i].docs)
			}
		})
	}
}

// TestContinuousIntegration checks that .ci/run runs the tests that README describes.
func TestContinuousIntegration(t *testing.T) {
	t.Parallel()
	script := string(testbed.Must(os.ReadFile(filepath.Join(testbed.Root(), ".ci", "run"))))
	for _, line := range []string{"\nmake check\n", "\nsuite test\n", "\nsuite verify\n", "  make \"$1\" GOTEST="} {
		if !strings.Contains(script, line) {
			t.Errorf(".ci/run has no line %q", line)
		}
	}
}

// judgeSection is the section of README about judging a third-party seller.
const judgeSection = "Judge your own seller"

// TestJudgeOfAClone types the command of judgeSection. The judged seller is like the examples
// in the documentation of x402: it has no ledger. So the judge must report that the seller
// charges payers twice.
func TestJudgeOfAClone(t *testing.T) {
	if err := testbed.NoNamespaces(); err != nil {
		t.Skipf("README's seller listens at an address that may be another's here: %v", err)
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("README's seller needs Node")
	}
	loopback()
	home := cloneFolder(t)
	testbed.Check(os.WriteFile(filepath.Join(home, "server.js"), testbed.Must(os.ReadFile("testdata/server.js")), 0o600))
	todo := steps(string(testbed.Must(os.ReadFile(readme))), judgeSection)
	if len(todo) != 1 {
		t.Fatalf("the section has %d commands: %q", len(todo), todo)
	}
	r := &reader{home: home, stateFolder: t.TempDir(), serverAddr: "127.0.0.1:9"} // no program listens at this address, so no command becomes the server
	out, _ := r.typeCommand(t, todo[0].command)
	said := regexp.MustCompile(`(?m)^(clean +1/1 |reply-lost +2/1 not promised|kill-while +2/1 not promised|\d+ held, 0 broken, \d+ not promised)`)
	if found := said.FindAllString(string(out), -1); len(found) != 4 {
		t.Errorf("found %q in:\n%s", found, out)
	}
}

// cloneFolder returns a new folder with the files of this tree.
func cloneFolder(t *testing.T) string {
	t.Helper()
	tree := packModule(t).Module
	found := testbed.Must(filepath.Glob(filepath.Join(proxy.folder, "github.com", "*", "*", "@v", tree.Version+".zip")))
	if len(found) != 1 {
		t.Fatalf("%d archives of the tree: %q", len(found), found)
	}
	archive := testbed.Must(zip.OpenReader(found[0]))
	folder := t.TempDir()
	testbed.Check(os.CopyFS(folder, archive))
	testbed.Check(archive.Close())
	return filepath.Join(folder, filepath.FromSlash(tree.Path+"@"+tree.Version))
}
