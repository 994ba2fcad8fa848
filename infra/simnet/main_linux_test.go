package simnet

import (
	"cmp"
	"context"
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
	"github.com/hostfacts/hostfacts/pkg/fault"
	_ "github.com/hostfacts/hostfacts/pkg/operations" // what the programs are made of: the cache of go test sees imports only
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-shell") { // somebody has typed RTT
		flag.Usage = func() { fmt.Fprintln(os.Stderr, "RTT is a duration, such as 50ms") }
	}
	flag.Parse()
	// The tables have no delay: where there is one, it is TestDelay's.
	if f := flag.Lookup("test.run"); *rtt > 0 && !*shell && f != nil && f.Value.String() == "" {
		_ = f.Value.Set("^TestDelay$")
	}
	os.Exit(testbed.Isolate(m, 48, build))
}

// build makes the local runner, and beside it the functions as make build builds
// them and the openrdap command at the version in go.mod.
func build(ctx context.Context, dir string) error {
	root := filepath.Join("..", "..")
	err := testbed.BuildCommand(ctx, root, testbed.LocalRunner, filepath.Join(dir, "local"))
	if *shell || *runs > 1 {
		return err // neither needs the others
	}
	return errors.Join(err,
		testbed.BuildFunctions(ctx, root, filepath.Join(dir, "functions")),
		testbed.BuildCommand(ctx, root, "github.com/openrdap/rdap/cmd/rdap", filepath.Join(dir, "rdap")),
	)
}

func builtIn(name string) string { return filepath.Join(testbed.Built(), name) }

// shell asks for a shell in the internet instead of the tests (make simnet).
var shell = flag.Bool("shell", false, "open a shell in the internet, with the service running")

func openShell(t *testing.T, n *internet) {
	r := startRunner(t, n)
	dir := t.TempDir()
	if err := useResolvers(dir); err != nil {
		fmt.Fprintln(os.Stderr, "dig and curl do not know this internet's names:", err)
	}
	all := ""
	for _, op := range catalog.All() {
		lines := namesFor(op.Slug)
		all += strings.Join(lines, "")
		fmt.Println(strings.Join(lines[:min(5, len(lines))], ""))
	}
	file := filepath.Join(dir, "names.txt")
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("All names of this internet are in %s (NAMES).\n", file)
	if *rtt > 0 {
		fmt.Printf("\nEverything but the service and this shell is a round trip of %s away.\n", *rtt)
	}
	fmt.Printf("\nThe service is on %s (URL). Its log ends with this shell. For example:\n\n"+
		"  pay \"$URL/v1/tools/ssl-check?domain=expired.example.com\"\n  curl -I https://example.com/\n\n", r.url)
	cmd := exec.Command(cmp.Or(os.Getenv("SHELL"), "/bin/sh"))
	cmd.Env = append(os.Environ(), "URL="+r.url, "SSL_CERT_FILE="+n.ca.File, "CURL_CA_BUNDLE="+n.ca.File,
		"NAMES="+file, "PATH="+must(filepath.Abs("../../build"))+":"+os.Getenv("PATH"), "PS1=simnet$ ")
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

// namesFor are lines with all names for an operation and what is answered, a code or
// 200: the outcomes in turn.
func namesFor(slug string) []string {
	var lines []string
	nth := map[fault.Code]int{}
	turn := map[string]int{} // of a line
	for _, r := range tableRows() {
		line := fmt.Sprintf("%s  %-44s %s\n", slug, r.domain, cmp.Or(r.code(), "200"))
		if r.op == slug && r.code() != fault.InvalidType && r.code() != fault.InvalidPort && !slices.Contains(lines, line) { // because of the name
			lines, turn[line] = append(lines, line), nth[r.code()]
			nth[r.code()]++
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return turn[a] - turn[b] })
	return lines
}
