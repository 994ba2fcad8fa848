package simnet

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hostfacts/hostfacts/pkg/catalog"
	"github.com/hostfacts/hostfacts/pkg/fault"
)

// shell asks for a shell in the internet instead of the tests (make simnet).
var shell = flag.Bool("shell", false, "open a shell in the internet, with the service running")

// openShell runs the user's shell until it ends.
func openShell(t *testing.T, n *internet) {
	r := startRunner(t, n)
	pay, err := filepath.Abs(filepath.Join("..", "..", "build"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := useResolvers(dir); err != nil {
		fmt.Fprintln(os.Stderr, "dig and curl do not know this internet's names:", err)
	}
	for _, op := range catalog.All() {
		if list := namesFor(op.Slug); len(list) > 0 {
			fmt.Printf("\n%s?domain=\n", op.Path)
			for _, e := range list[:exampleNames] {
				fmt.Printf("  %-44s %s\n", e.domain, e.outcome)
			}
		}
	}
	if err := namesCommand(dir); err != nil {
		fmt.Fprintln(os.Stderr, "there is no command names:", err)
	} else {
		fmt.Print("\nnames prints all names of this internet, names dns those for one tool.\n")
	}
	if *rtt > 0 {
		fmt.Printf("\nEverything but the service and this shell is a round trip of %s away.\n", *rtt)
	}
	fmt.Printf("\nThe service is on %s (URL). Its log ends with this shell. For example:\n\n"+
		"  pay \"$URL/v1/tools/ssl-check?domain=expired.example.com\"\n  curl -I https://example.com/\n\n", r.url)
	program := cmp.Or(os.Getenv("SHELL"), "/bin/sh")
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "URL="+r.url, "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File,
		"PATH="+pay+":"+dir+":"+os.Getenv("PATH"), "PS1=simnet$ ")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = n.far.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, program+":", err) // of the last command, mostly
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

// example is a name to ask an operation for, and what is answered: a code, or 200.
type example struct {
	domain, outcome string
	nth             int // of its outcome
}

// exampleNames is how many names per operation the shell begins with.
const exampleNames = 5

// namesFor are all names for an operation, the outcomes in turn.
func namesFor(slug string) []example {
	var list []example
	nth := map[string]int{}
	for _, r := range tableRows() {
		if r.op != slug || r.code() == fault.InvalidType || r.code() == fault.InvalidPort {
			continue // not because of the name
		}
		e := example{domain: r.domain, outcome: cmp.Or(string(r.code()), "200")}
		if slices.ContainsFunc(list, func(o example) bool { return o.domain == e.domain && o.outcome == e.outcome }) {
			continue
		}
		e.nth = nth[e.outcome]
		nth[e.outcome]++
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b example) int { return cmp.Or(a.nth-b.nth, strings.Compare(a.outcome, b.outcome)) })
	return list
}

// namesCommand writes a program into dir that prints all names, or those for the
// tools that it is given: a line for each outcome of a tool.
func namesCommand(dir string) error {
	var text strings.Builder
	var slugs []string
	for _, op := range catalog.All() {
		by := map[string][]string{}
		for _, e := range namesFor(op.Slug) {
			by[e.outcome] = append(by[e.outcome], e.domain)
		}
		for _, outcome := range slices.Sorted(maps.Keys(by)) {
			fmt.Fprintf(&text, "%s %s: %s\n", op.Slug, outcome, strings.Join(by[outcome], " "))
		}
		if len(by) > 0 {
			slugs = append(slugs, op.Slug)
		}
	}
	file := filepath.Join(dir, "names.txt")
	program := fmt.Sprintf(`#!/bin/sh
[ $# -gt 0 ] || exec cat '%s'
for tool do
  grep "^$tool " '%[1]s' || { echo "names: there is no tool $tool; there are: %s" >&2; exit 2; }
done
`, file, strings.Join(slugs, " "))
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "names"), []byte(program), 0o700) //nolint:gosec // a program is executable
}

// TestNames: five names per tool to begin with, of as many outcomes as there are,
// and a command that prints them all.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	if err := namesCommand(dir); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "names"), args...).CombinedOutput()
		return string(out), err
	}
	whole, err := run()
	if err != nil {
		t.Fatalf("%v: %s", err, whole)
	}
	for _, op := range catalog.All() {
		if op.Kind == catalog.SmokeTest {
			continue // it takes no name
		}
		list := namesFor(op.Slug)
		first, outcomes := map[string]bool{}, map[string]bool{}
		one, err := run(op.Slug)
		for i, e := range list {
			outcomes[e.outcome] = true
			if i < exampleNames {
				first[e.outcome] = true
			}
			if !strings.Contains(one, " "+e.domain) {
				t.Errorf("names %s lacks %s", op.Slug, e.domain)
			}
		}
		if len(list) < exampleNames || len(first) < min(exampleNames, len(outcomes)) {
			t.Errorf("%s begins with %v", op.Slug, list[:min(exampleNames, len(list))])
		}
		if err != nil || !strings.Contains(whole, one) || strings.Count(one, "\n") != len(outcomes) {
			t.Errorf("names %s: %v\n%s", op.Slug, err, one)
		}
	}
	if out, err := run("nslookup"); err == nil || !strings.Contains(out, "no tool nslookup") || !strings.Contains(out, "ssl-check") {
		t.Errorf("an unknown tool: %v, %s", err, out)
	}
}
