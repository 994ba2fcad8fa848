package simnet

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/lookup"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // what the programs are made of: the cache of go test sees imports only
	"github.com/hostfacts/hostfacts/pkg/x402/fault"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-shell") { // somebody has typed RTT
		flag.Usage = func() { fmt.Fprintln(os.Stderr, "RTT is a duration, such as 50ms") }
	}
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run()) // the rows are looked at, and not played
	}
	// The tables have no delay: where there is one, it is TestDelay's.
	if f := flag.Lookup("test.run"); *rtt > 0 && !*shell && f != nil && f.Value.String() == "" {
		_ = f.Value.Set("^TestDelay$")
	}
	packages := []string{testbed.LocalRunner, testbed.AllFunctions}
	if *shell || *runs > 1 {
		packages = packages[:1] // neither needs the functions
	}
	os.Exit(testbed.Isolate(m, 48, packages...))
}

// shell asks for a shell in the internet instead of the tests (make simnet).
var shell = flag.Bool("shell", false, "open a shell in the internet, with the service running")

func openShell(t *testing.T, n *internet) {
	r := startRunner(t, n)
	dir := t.TempDir()
	if err := useResolvers(dir); err != nil {
		fmt.Fprintln(os.Stderr, "dig and curl do not know this internet's names:", err)
	}
	for _, op := range catalog.All() {
		lines := namesFor(op.Slug)
		fmt.Println(strings.Join(lines[:min(5, len(lines))], ""))
	}
	if err := namesCommand(dir); err != nil {
		t.Fatal(err)
	}
	fmt.Println("names prints all names of this internet, names dns those for one tool.")
	if *rtt > 0 {
		fmt.Printf("\nEverything but the service and this shell is a round trip of %s away.\n", *rtt)
	}
	fmt.Printf("\nThe service is on %s (URL). Its log ends with this shell. For example:\n\n"+
		"  pay \"$URL/v1/tools/ssl-check?domain=expired.example.com\"\n  curl -I https://example.com/\n\n", r.url)
	cmd := exec.Command(cmp.Or(os.Getenv("SHELL"), "/bin/sh"))
	cmd.Env = append(os.Environ(), "URL="+r.url, "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File,
		"PATH="+testbed.Must(filepath.Abs("../../build"))+":"+dir+":"+os.Getenv("PATH"), "PS1=simnet$ ")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := n.far.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, cmd.Path+":", err) // of the last command, mostly
	}
}

// useResolvers gives the programs of this mount namespace our resolvers.
func useResolvers(dir string) error {
	file := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+resolverAddrs()[0]+"\n"), 0o600); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	return syscall.Mount(file, "/etc/resolv.conf", "", syscall.MS_BIND, "")
}

// namesCommand writes the program names, which prints those of every tool, or of one.
func namesCommand(dir string) error {
	all := ""
	for _, op := range catalog.All() {
		all += strings.Join(namesFor(op.Slug), "")
	}
	file := filepath.Join(dir, "names.txt")
	program := fmt.Sprintf("#!/bin/sh\ngrep \"^${1:+$1 }\" '%s'\n", file)
	return errors.Join(os.WriteFile(file, []byte(all), 0o600), os.WriteFile(filepath.Join(dir, "names"), []byte(program), 0o700)) //nolint:gosec // a program is executable
}

// The shell has a command that prints the names of each tool, several outcomes first.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	if err := namesCommand(dir); err != nil {
		t.Fatal(err)
	}
	for _, op := range catalog.All() {
		lines := namesFor(op.Slug)
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "names"), op.Slug).CombinedOutput()
		if named := op.Kind != catalog.SmokeTest; (err == nil) != named || named && (string(out) != strings.Join(lines, "") ||
			len(lines) < 5 || strings.Fields(lines[0])[2] == strings.Fields(lines[1])[2]) {
			t.Errorf("names %s: %v\n%s", op.Slug, err, out)
		}
	}
}

// namesFor are lines of names and what is answered about them, the outcomes in turn.
func namesFor(slug string) []string {
	var lines []string
	nth := map[fault.Code]int{}
	turn := map[string]int{} // of a line
	for _, r := range tableRows() {
		line := fmt.Sprintf("%s  %-44s %s\n", slug, r.domain, cmp.Or(r.code(), "200"))
		if r.op == slug && r.code() != lookup.InvalidType && r.code() != lookup.InvalidPort && !slices.Contains(lines, line) { // because of the name
			lines, turn[line] = append(lines, line), nth[r.code()]
			nth[r.code()]++
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return turn[a] - turn[b] })
	return lines
}
